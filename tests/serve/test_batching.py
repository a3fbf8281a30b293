"""The queue in front of a model, without HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from itertools import chain
from typing import Any

import pytest

from longtail.serve.batching import TURN, Batcher, BusyError


class Model:
    """Doubles numbers, records its batches, and waits for `go`."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, items: list[int]) -> list[int]:
        assert self.go.wait(20)
        self.batches.append(items)
        if -1 in items:
            raise ValueError("minus one")
        return [2 * item for item in items]


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def asynchronous(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**fixtures), 20))

    return run


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0.002)


@asynchronous
async def test_concurrent_requests_are_one_call(model: Model, thread: ThreadPoolExecutor) -> None:
    batcher = Batcher[int, int](model, thread, max_batch=8)
    answers = await asyncio.gather(*(batcher.submit([k, k + 10]) for k in range(4)))
    assert answers == [[2 * k, 2 * k + 20] for k in range(4)]
    assert [len(batch) for batch in model.batches] == [8]
    assert await batcher.submit([]) == []
    await batcher.close()


@asynchronous
async def test_batches_are_bounded_and_large_requests_do_not_delay_small_ones(
    model: Model, thread: ThreadPoolExecutor
) -> None:
    batcher = Batcher[int, int](model, thread, max_batch=TURN + 2, capacity=100)
    model.go.clear()
    large = asyncio.ensure_future(batcher.submit(list(range(80))))
    small = [asyncio.ensure_future(batcher.submit([100 + k])) for k in range(3)]
    await settle()
    model.go.set()
    await asyncio.gather(*small)
    assert not large.done() and {100, 101, 102} <= set(chain(*model.batches[:2]))
    assert await large == [2 * k for k in range(80)]
    assert max(map(len, model.batches)) <= TURN + 2
    await batcher.close()


@asynchronous
async def test_only_concurrent_requests_wait(model: Model, thread: ThreadPoolExecutor) -> None:
    batcher = Batcher[int, int](model, thread, max_wait=10)
    for k in range(3):
        assert await asyncio.wait_for(batcher.submit([k]), 5) == [2 * k]
    short = Batcher[int, int](model, thread, max_wait=0.02)
    await asyncio.gather(short.submit([1]), short.submit([2]))
    model.batches.clear()
    first = asyncio.ensure_future(short.submit([3]))
    await asyncio.sleep(0.005)
    await asyncio.gather(first, short.submit([4]))
    assert model.batches == [[3, 4]], "the second came while the batch waited"


@asynchronous
async def test_a_full_queue_refuses_until_there_is_room(
    model: Model, thread: ThreadPoolExecutor
) -> None:
    batcher = Batcher[int, int](model, thread, max_batch=1, capacity=2)
    model.go.clear()
    first = asyncio.ensure_future(batcher.submit([1]))
    await settle()
    others = [asyncio.ensure_future(batcher.submit([k])) for k in (2, 3)]
    await settle()
    with pytest.raises(BusyError, match="2 of at most 2 documents wait already"):
        await batcher.submit([4])
    model.go.set()
    assert await asyncio.gather(first, *others) == [[2], [4], [6]]
    assert await batcher.submit([4, 5]) == [8, 10] and batcher.n_waiting == 0


@asynchronous
async def test_cancelled_requests_leave_the_queue(model: Model, thread: ThreadPoolExecutor) -> None:
    batcher = Batcher[int, int](model, thread, max_batch=2, capacity=5)
    model.go.clear()
    first = asyncio.ensure_future(batcher.submit([1, 2]))
    await settle()
    gone = asyncio.ensure_future(batcher.submit([7, 7, 7, 7]))
    await settle()
    assert batcher.n_waiting == 4
    gone.cancel()
    await settle()
    assert batcher.n_waiting == 0
    first.cancel()
    kept = asyncio.ensure_future(batcher.submit([3]))
    await settle()
    model.go.set()
    assert await kept == [6]
    assert 7 not in chain(*model.batches)


@asynchronous
async def test_metrics_that_fail_leave_no_request_waiting(
    model: Model, thread: ThreadPoolExecutor
) -> None:
    faults = iter([OSError("the folder of the metrics is gone")])

    def observe(_: int) -> None:
        for fault in faults:
            raise fault

    batcher = Batcher[int, int](model, thread, observe=observe)
    with pytest.raises(OSError, match="is gone"):
        await batcher.submit([1])
    assert await batcher.submit([2]) == [4]


@asynchronous
async def test_only_the_request_that_fails_has_the_error(
    model: Model, thread: ThreadPoolExecutor
) -> None:
    batcher = Batcher[int, int](model, thread)
    requests = [batcher.submit([1]), batcher.submit([-1, 5]), batcher.submit([2])]
    first, wrong, last = await asyncio.gather(*requests, return_exceptions=True)
    assert (first, last) == ([2], [4]) and isinstance(wrong, ValueError)
    assert await batcher.submit([3]) == [6]


@asynchronous
async def test_close_finishes_accepted_requests(model: Model, thread: ThreadPoolExecutor) -> None:
    batcher = Batcher[int, int](model, thread, max_batch=1)
    model.go.clear()
    accepted = [asyncio.ensure_future(batcher.submit([k])) for k in range(5)]
    await settle()
    closing = asyncio.ensure_future(batcher.close())
    await settle()
    with pytest.raises(BusyError, match="stopping"):
        await batcher.submit([9])
    model.go.set()
    await closing
    assert await asyncio.gather(*accepted) == [[2 * k] for k in range(5)]
