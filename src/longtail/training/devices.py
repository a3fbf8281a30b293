"""Devices, precision and threads that a network computes with."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import joblib
import torch
from torch import nn

from longtail.errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")
# With fewer weights a step on the CPU is too short for several threads: on a busy two-core machine
# one thread took 2 ms where two took 140 ms, waiting for each other.
SMALL_NETWORK = 10_000_000
JOINED = "LONGTAIL_JOINED"
"""The environment variable with the id of a process that works together with others."""
SHARED = threading.RLock()
"""Held by a thread that uses what all threads share: torch's random numbers and switches, the
compiler, and the recording of CUDA graphs."""


def device_of(name: str) -> torch.device:
    """The torch device of a name; `auto` is a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device, n_gpus = torch.device(name), torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= n_gpus:
        if not n_gpus:
            raise InputError(f"device {name!r} needs a CUDA GPU, and there is none. Use 'cpu'.")
        raise InputError(f"device {name!r} does not exist: expected cuda:0 to cuda:{n_gpus - 1}.")
    return device


def has_bf16(device: torch.device, precision: str) -> bool:
    """Whether to compute in bf16; on a CPU, where it is slower, only if requested."""
    if device.type == "cuda":
        return precision != "fp32" and bool(torch.cuda.is_bf16_supported())
    return precision == "bf16"


def n_processes() -> int:
    """The number of processes that torchrun started for this program; 1 in what these start."""
    own = str(os.getpid())
    return int(os.environ.get("WORLD_SIZE") or 1) if os.environ.get(JOINED, own) == own else 1


@contextmanager
def gpu_stream(device: torch.device, deterministic: bool) -> Iterator[None]:
    """On a GPU, compute in a separate stream, as recording CUDA graphs requires."""
    if device.type != "cuda":
        yield
        return
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    kernels = _deterministic_kernels() if deterministic else nullcontext()
    with torch.cuda.device(device), torch.cuda.stream(stream), kernels:
        yield
    torch.cuda.current_stream(device).wait_stream(stream)


class _Deterministic:
    """Deterministic kernels while any thread wants them: torch has one switch for all."""

    def __init__(self) -> None:
        self._wanted = 0
        self._before: tuple[Any, ...] = ()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        memory: Any = torch.utils.deterministic
        with SHARED:
            self._wanted += 1
            if self._wanted == 1:
                # Without it cuBLAS may use its workspaces in another order each time.
                os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
                self._before = (
                    torch.are_deterministic_algorithms_enabled(),
                    torch.is_deterministic_algorithms_warn_only_enabled(),
                    memory.fill_uninitialized_memory,
                )
                torch.use_deterministic_algorithms(True)
                # Filling uninitialised memory costs as much as all the rest of deterministic mode.
                memory.fill_uninitialized_memory = False
        try:
            yield
        finally:
            with SHARED:
                self._wanted -= 1
                if self._wanted == 0:
                    was_on, warn_only, fills_memory = self._before
                    torch.use_deterministic_algorithms(was_on, warn_only=warn_only)
                    memory.fill_uninitialized_memory = fills_memory


_deterministic_kernels = _Deterministic()


@contextmanager
def limited_threads(network: nn.Module) -> Iterator[None]:
    """Train a small network on the CPU with one thread."""
    threads, parameters = torch.get_num_threads(), list(network.parameters())
    on_cpu = all(parameter.device.type == "cpu" for parameter in parameters)
    try:
        if on_cpu and sum(parameter.numel() for parameter in parameters) < SMALL_NETWORK:
            torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(threads)


def in_threads(
    function: Callable[[Item], Result], items: Sequence[Item], **settings: Any
) -> Iterator[Result]:
    """Map a function that releases the GIL over the items, on all cores; results keep their order.

    `settings`: arguments of the ThreadPoolExecutor.
    """
    executor = ThreadPoolExecutor(max(1, min(len(items), joblib.cpu_count())), **settings)
    try:
        yield from executor.map(function, items)
    finally:
        executor.shutdown(cancel_futures=True)
