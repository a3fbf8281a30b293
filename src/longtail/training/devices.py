"""Where a network computes: devices by name, what they can do, and Accelerate's view of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from longtail.errors import InputError

# Below this many weights a step on the CPU is too short to share: on a busy two-core machine one
# thread took 2 ms where two took 140 ms, waiting for each other.
SMALL_NETWORK = 10_000_000


def device_of(name: str) -> torch.device:
    """The device of a setting: `auto` takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(
            f"device must be auto, cpu, cuda or a GPU such as cuda:1, got {name!r}."
        ) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(
            f"device {name!r} was asked for, but no CUDA GPU can be used here. Use device 'cpu'."
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"device {name!r} was asked for, but there are {torch.cuda.device_count()} GPUs here, "
            "counted from cuda:0. Use one of them."
        )
    return device


def has_bf16(device: torch.device, precision: str) -> bool:
    """On a CPU bf16 is slower than float32 nearly everywhere, so there it must be asked for."""
    if device.type == "cuda":
        return precision != "fp32" and bool(torch.cuda.is_bf16_supported())
    return precision == "bf16"


def n_processes() -> int:
    """Processes that `accelerate launch` or torchrun started for one training."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def own_accelerate() -> Iterator[None]:
    """Accelerate keeps one device and one precision for a process, and refuses others: here ours,
    afterwards again those of the caller, or none."""
    from accelerate.state import AcceleratorState, GradientState, PartialState

    if n_processes() > 1:
        yield
        return
    kept = [kind._shared_state for kind in (PartialState, AcceleratorState, GradientState)]
    before = [dict(state) for state in kept]
    for state in kept:
        state.clear()
    try:
        yield
    finally:
        for state, old in zip(kept, before, strict=True):
            state.clear()
            state.update(old)


def make_accelerator(device: torch.device, half: bool) -> Any:
    """Hugging Face's Accelerator for this device; `half`: it rounds to bf16 on the way."""
    from accelerate import Accelerator

    return Accelerator(cpu=device.type == "cpu", mixed_precision="bf16" if half else "no")


@contextmanager
def repeatable(device: torch.device, wanted: bool) -> Iterator[None]:
    """On a GPU, only kernels that give the same result every time; the setting before it after."""
    if device.type != "cuda" or not wanted:
        yield
        return
    # Without it the matrix products may use their workspace in another order each time.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    # Filling new memory guards against reading it too early, and costs as much as all the rest.
    memory.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_only)
        memory.fill_uninitialized_memory = filled


@contextmanager
def fitting_threads(network: nn.Module) -> Iterator[None]:
    """As many threads as pay for a network of this size."""
    threads = torch.get_num_threads()
    weights = sum(parameter.numel() for parameter in network.parameters())
    on_cpu = all(parameter.device.type == "cpu" for parameter in network.parameters())
    try:
        if on_cpu and weights < SMALL_NETWORK:
            torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(threads)
