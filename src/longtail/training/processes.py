"""Several processes that train one network, as torchrun and accelerate start them.

The main process (rank 0) does all work but the steps of a training alone. The others wait for the
functions that it calls in them, and for its end.
"""

from __future__ import annotations

import atexit
import io
import os
import re
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from longtail.errors import InputError, LongtailError
from longtail.training.devices import JOINED, n_processes
from longtail.training.interrupt import StoppedError

Result = TypeVar("Result")
Helper = Generator[None, Any, None]
"""What another process runs: it is sent what the main process sends."""
# The main process may read, tokenize and solve linear models for long between two messages. A
# process that ends closes its connections, which the others notice at once.
PATIENCE = timedelta(days=30)


class LostProcessError(StoppedError):
    """Another process has ended, and with it the training."""

    def __init__(self, reason: Exception) -> None:
        # Without the line of gloo's source, and its advice.
        why = re.sub(r"^\[[^]]*\] ", "", str(reason).partition(". ")[0])
        super().__init__(f"another process of this training has ended ({why}).", 1)


@dataclass(frozen=True)
class _Call:
    """A message: run this generator function."""

    function: Callable[..., Helper]
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class _End:
    """The last message: the result of the work, or its error."""

    result: Any = None
    error: LongtailError | None = None


class _Link:
    """The connection of this process to the others."""

    def __init__(self) -> None:
        self.rank, self.count = dist.get_rank(), dist.get_world_size()
        self.messages = dist.new_group(backend="gloo", timeout=PATIENCE)
        on_gpu = torch.cuda.is_available() and dist.is_nccl_available()
        self.gpus = dist.new_group(backend="nccl") if on_gpu else None
        self.is_used = False
        """Whether the processes work together now."""
        self.is_broken = False
        """Whether the processes cannot go on together: one is lost, or failed within a step."""

    def send(self, message: Any) -> None:
        if self.is_broken:
            raise LostProcessError(RuntimeError("a step failed before"))
        buffer = io.BytesIO()
        # An older protocol writes arrays as text.
        torch.save(message, buffer, pickle_protocol=5)
        with self._noticing_loss():
            dist.broadcast_object_list([buffer.getvalue()], 0, self.messages)

    def receive(self) -> Any:
        received: list[Any] = [None]
        with self._noticing_loss():
            dist.broadcast_object_list(received, 0, self.messages)
        # The GPU of the main process is another one here. Like all of torch's messages these are
        # pickled; they come from the program that this process runs, too.
        places = {"cuda:0": f"cuda:{_local_rank()}"}
        return torch.load(io.BytesIO(received[0]), map_location=places, weights_only=False)

    def add_up(self, values: Tensor) -> None:
        """Sum a flat tensor over all processes, in place."""
        with self._noticing_loss():
            if values.device.type == "cuda":
                dist.all_reduce(values, group=self.gpus)
            else:
                on_cpu = values.cpu()
                dist.all_reduce(on_cpu, group=self.messages)
                values.copy_(on_cpu)

    @contextmanager
    def _noticing_loss(self) -> Iterator[None]:
        """Raise a LostProcessError if the other processes are not reached."""
        was_broken, self.is_broken = self.is_broken, True
        try:
            yield
        except RuntimeError as error:
            outlive_torchrun()
            raise LostProcessError(error) from error
        self.is_broken = was_broken

    def close(self) -> None:
        """End the connection; no reference to it may be left, or it stays open."""
        dist.destroy_process_group(self.messages)
        del self.messages, self.gpus


_link: _Link | None = None


def rank() -> int:
    """The number of this process; 0 is the main one."""
    return int(os.environ.get("RANK") or 0)


def together(work: Callable[[], Result]) -> Result:
    """Do work in the main process with the help of the others, which get its result or error.

    Called within such work, or by the only process, it is just a call.
    """
    global _link
    if n_processes() == 1 or (_link is not None and _link.is_used):
        return work()
    link = _link = _link or _connect()
    link.is_used = True
    try:
        result: Result = _lead(link, work) if link.rank == 0 else _help(link)
        return result
    finally:
        link.is_used = False
        if link.is_broken:
            # The others may wait for this process, which goes on without them.
            _disconnect()


def _connect() -> _Link:
    try:
        if not dist.is_initialized():
            dist.init_process_group("gloo")
            atexit.register(dist.destroy_process_group)
        # Before that, as it runs last: threads of a group that is left would abort the process.
        atexit.register(_disconnect)
        link = _Link()
    except (RuntimeError, ValueError) as error:
        raise InputError(
            f"WORLD_SIZE is {n_processes()}, but the other processes were not reached ({error}). "
            "Start all of them with torchrun, or unset WORLD_SIZE to use one process."
        ) from error
    os.environ[JOINED] = str(os.getpid())
    return link


def _lead(link: _Link, work: Callable[[], Result]) -> Result:
    try:
        result = work()
        link.send(_End(result))
        return result
    except BaseException as error:
        if not link.is_broken:
            told = LongtailError(f"the main process failed: {type(error).__name__}: {error}")
            with suppress(LostProcessError):
                link.send(_End(error=error if isinstance(error, LongtailError) else told))
        raise


def _help(link: _Link) -> Any:
    """Run what the main process calls, until it ends; return its result."""
    with _ignoring_signals():
        link.is_broken = True  # if anything fails here
        end = _answer(link)
        link.is_broken = False
    if end.error is not None:
        raise end.error
    return end.result


def _answer(link: _Link) -> _End:
    helper: Helper | None = None
    while True:
        message = link.receive()
        if isinstance(message, (_Call, _End)) and helper is not None:
            helper.close()
        if isinstance(message, _End):
            return message
        if isinstance(message, _Call):
            helper = message.function(*message.arguments)
            next(helper)
        else:
            assert helper is not None
            helper.send(message)


def _disconnect() -> None:
    global _link
    if _link is not None:
        _link.close()
        _link = None


@contextmanager
def _ignoring_signals() -> Iterator[None]:
    """Leave signals, which torchrun sends to all processes, to the main one: it ends the others."""
    before: dict[int, Any] = {}

    def ignore(number: int, frame: FrameType | None) -> None: ...

    if threading.current_thread() is threading.main_thread():
        signals = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, ignore) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is ignore:
                signal.signal(number, handler)


def outlive_torchrun() -> None:
    """Let this process end in its own time; torchrun sends SIGTERM once another one has failed."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


def check_device(device: torch.device) -> None:
    """Raise unless each process on this machine can have a device of this type to itself."""
    if device.type != "cuda" or n_processes() == 1:
        return
    n_local, n_gpus = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count()
    if device.index is not None or n_local > n_gpus:
        raise InputError(
            f"{n_local} processes were started on this machine with {n_gpus} GPUs, and each needs "
            f"one of its own. Start at most {n_gpus}, with --device cuda, or use --device cpu."
        )


class Processes:
    """The processes of one training on a device; usually one."""

    def __init__(self, device: torch.device) -> None:
        self._link = _link if _link is not None and _link.is_used else None
        self.count, self.rank, self.device = 1, 0, device
        self.is_awaited = True
        """Whether the gradients of this step were not added up yet, so that it may be repeated."""
        if self._link is not None:
            check_device(device)
            self.count, self.rank = self._link.count, self._link.rank
            if device.type == "cuda":
                self.device = torch.device("cuda", _local_rank())

    @property
    def leads(self) -> bool:
        """Whether this is the main process of several."""
        return self._link is not None and self.rank == 0

    def call(self, function: Callable[..., Helper], *arguments: Any) -> None:
        """Start a generator in the other processes, in place of the one before."""
        self.send(_Call(function, arguments))

    def send(self, message: Any) -> None:
        """Send something to the generators in the other processes."""
        if self._link is not None:
            self._link.send(message)

    @contextmanager
    def step(self) -> Iterator[None]:
        """A step, for whose gradients the others wait: they cannot go on with one that fails."""
        self.is_awaited = True
        try:
            yield
        except BaseException:
            if self._link is not None:
                self._link.is_broken = True
            raise

    def add_up(self, weights: list[Tensor], loss: Tensor) -> Tensor:
        """Sum the gradients of weights over all processes, in place; return the sum of losses."""
        if self._link is None:
            return loss
        # Of all weights, so that all processes have the same number.
        grads = [torch.zeros_like(w) if w.grad is None else w.grad for w in weights]
        values = torch.cat([loss.reshape(1), *(grad.reshape(-1).float() for grad in grads)])
        self._link.add_up(values)
        self.is_awaited = False
        sums = torch.split(values[1:], [weight.numel() for weight in weights])
        for weight, total in zip(weights, sums, strict=True):
            if weight.grad is not None:
                weight.grad.copy_(total.view_as(weight))
        return values[0]
