"""Requests that arrive together as one call of a model: a bounded, fair queue for asyncio.

It knows no HTTP. The model is called in the thread of an executor, one call at a time.
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
# Items that a request gets at once into a batch while others wait: a large one holds up none.
TURN = 8


class BusyError(LongtailError):
    """There is no room in the queue, or nothing is taken any more."""


@dataclass(eq=False)
class _Request(Generic[Item, Result]):
    items: Sequence[Item]
    answered: asyncio.Future[list[Result]]
    since: float
    n_taken: int = 0
    results: list[Result] = field(default_factory=list)


class Batcher(Generic[Item, Result]):
    """A queue in front of a function that works best on many items at once.

    Args:
        call: gets items, returns a result for each; runs in `executor`.
        max_batch: items of a call. max_wait: seconds that it waits for more, while requests come
            together; a request that comes alone is not held up.
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
        self._is_closed, self._together = False, False
        self._worker: asyncio.Task[None] | None = None

    async def submit(self, items: Sequence[Item]) -> list[Result]:
        """The results of some items, in their order; raises what the call raised for them.

        If it is cancelled, what still waits leaves the queue.
        """
        if self._is_closed:
            raise BusyError("the service is stopping. Try again on the next one.")
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
        """Finish what was accepted, and accept no more."""
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
        """A short wait since the first arrived, unless requests come one at a time."""
        loop, first = asyncio.get_running_loop(), self._waiting[0]
        end = first.since + self.max_wait
        while (
            (self._together or len(self._waiting) > 1)
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

    def _take(self) -> list[tuple[_Request[Item, Result], Sequence[Item]]]:
        """The next batch: a turn of each request, then of those that have more."""
        batch: dict[_Request[Item, Result], int] = {}
        room = self.max_batch
        while room and self._waiting:
            request = self._waiting.popleft()
            n_left = len(request.items) - request.n_taken - batch.get(request, 0)
            n_items = min(TURN, n_left, room)
            batch[request] = batch.get(request, 0) + n_items
            room -= n_items
            if n_items < n_left:
                self._waiting.append(request)
        taken = []
        for request, n_items in batch.items():
            taken.append((request, request.items[request.n_taken : request.n_taken + n_items]))
            request.n_taken += n_items
            self.n_waiting -= n_items
        self._together = len(taken) > 1
        return taken

    async def _call(self, batch: list[tuple[_Request[Item, Result], Sequence[Item]]]) -> None:
        batch = [(request, part) for request, part in batch if not request.answered.done()]
        items = [item for _, part in batch for item in part]
        if not items:
            return
        loop = asyncio.get_running_loop()
        try:  # an error of anything else would end the worker, and all requests would wait
            self.observe(len(items))
            results = await loop.run_in_executor(self.executor, self.call, items)
        except Exception as error:
            if len(batch) > 1:  # only the request that fails by itself has an error
                for one in batch:
                    await self._call([one])
                return
            self._fail(batch[0][0], error)
            return
        start = 0
        for request, part in batch:
            request.results += results[start : start + len(part)]
            start += len(part)
            if len(request.results) == len(request.items) and not request.answered.done():
                request.answered.set_result(request.results)

    def _fail(self, request: _Request[Item, Result], error: Exception) -> None:
        if not request.answered.done():
            request.answered.set_exception(error)
