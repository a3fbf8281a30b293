"""Dynamic batching: concurrent requests become one call of a model. A bounded, fair asyncio queue.

Independent of HTTP. The model runs in the thread of an executor, one call at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from longtail.errors import LongtailError

Item = TypeVar("Item")
Result = TypeVar("Result")
# Items of one request per round of filling a batch, so that a large request does not delay others.
TURN = 8


class BusyError(LongtailError):
    """The queue is full or closed."""


@dataclass(eq=False)
class _Request(Generic[Item, Result]):
    items: Sequence[Item]
    answered: asyncio.Future[list[Result]]
    arrived: float
    n_taken: int = 0
    results: list[Result] = field(default_factory=list)


_Batch = list[tuple[_Request[Item, Result], Sequence[Item]]]
"""Requests, with the items of each that are in the batch."""


class Batcher(Generic[Item, Result]):
    """A queue in front of a function that is fastest on many items at once.

    Args:
        call: takes a list of items, returns one result per item; runs in `executor`.
        max_batch: items per call.
        max_wait: seconds that a batch waits for more items, if requests arrive concurrently; a
            single request does not wait.
        capacity: items that may wait.
        observe: called with the number of items of each call.
    """

    def __init__(
        self,
        call: Callable[[list[Item]], list[Result]],
        executor: Executor,
        *,
        max_batch: int = 32,
        max_wait: float = 0.005,
        capacity: int = 1024,
        observe: Callable[[int], Any] = lambda n_items: None,
    ) -> None:
        self.call, self.executor, self.observe = call, executor, observe
        self.max_batch, self.max_wait, self.capacity = max_batch, max_wait, capacity
        self.n_waiting = 0
        self._waiting: deque[_Request[Item, Result]] = deque()
        self._changed = asyncio.Event()
        self._is_closed, self._is_concurrent = False, False
        self._worker: asyncio.Task[None] | None = None

    async def submit(self, items: Sequence[Item]) -> list[Result]:
        """The results of some items, in their order; raises what `call` raised for them.

        When cancelled, the items that still wait leave the queue.
        """
        if self._is_closed:
            raise BusyError("the service is stopping. Try again once it has restarted.")
        if self.n_waiting + len(items) > self.capacity:
            raise BusyError(
                f"{self.n_waiting} of at most {self.capacity} documents wait already. Try again "
                "later."
            )
        if not items:
            return []
        loop = asyncio.get_running_loop()
        if self._worker is None:
            self._worker = loop.create_task(self._work())
        request = _Request[Item, Result](items, loop.create_future(), loop.time())
        self._waiting.append(request)
        self.n_waiting += len(items)
        self._changed.set()
        try:
            return await request.answered
        finally:
            if request in self._waiting:
                self._waiting.remove(request)
                self.n_waiting -= len(items) - request.n_taken

    async def close(self) -> None:
        """Accept no more requests, and finish those that were accepted."""
        self._is_closed = True
        self._changed.set()
        if self._worker is not None:
            await self._worker

    async def _work(self) -> None:
        while self._waiting or not self._is_closed:
            if not self._waiting:
                self._changed.clear()
                await self._changed.wait()
                continue
            await self._wait_for_more()
            await self._call(self._take())

    async def _wait_for_more(self) -> None:
        """Wait until `max_wait` after the first request arrived, if requests are concurrent."""
        loop = asyncio.get_running_loop()
        end = self._waiting[0].arrived + self.max_wait
        while (
            (self._is_concurrent or len(self._waiting) > 1)
            and 0 < self.n_waiting < self.max_batch
            and not self._is_closed
            and loop.time() < end
        ):
            self._changed.clear()
            try:
                async with asyncio.timeout_at(end):
                    await self._changed.wait()
            except TimeoutError:
                return

    def _take(self) -> _Batch[Item, Result]:
        """The next batch: up to TURN items per request in turn, until it is full."""
        n_items: dict[_Request[Item, Result], int] = {}
        room = self.max_batch
        while room and self._waiting:
            request = self._waiting.popleft()
            n_left = len(request.items) - request.n_taken - n_items.get(request, 0)
            n_more = min(TURN, n_left, room)
            n_items[request] = n_items.get(request, 0) + n_more
            room -= n_more
            if n_more < n_left:
                self._waiting.append(request)
        batch = []
        for request, n in n_items.items():
            batch.append((request, request.items[request.n_taken : request.n_taken + n]))
            request.n_taken += n
            self.n_waiting -= n
        self._is_concurrent = len(batch) > 1
        return batch

    async def _call(self, batch: _Batch[Item, Result]) -> None:
        batch = [(request, part) for request, part in batch if not request.answered.done()]
        items = [item for _, part in batch for item in part]
        if not items:
            return
        loop = asyncio.get_running_loop()
        try:  # an error outside of it would end the worker, and every request would wait forever
            self.observe(len(items))
            results = await loop.run_in_executor(self.executor, self.call, items)
        except Exception as error:
            if len(batch) > 1:  # one by one, so that only the request at fault gets the error
                for request_part in batch:
                    await self._call([request_part])
            elif not batch[0][0].answered.done():
                batch[0][0].answered.set_exception(error)
            return
        start = 0
        for request, part in batch:
            request.results += results[start : start + len(part)]
            start += len(part)
            if len(request.results) == len(request.items) and not request.answered.done():
                request.answered.set_result(request.results)
