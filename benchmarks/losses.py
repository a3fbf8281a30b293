"""Time and memory of one forward + backward pass of every loss, beside torch's own BCE.

    python benchmarks/losses.py [--device cuda] [--losses db,bce] [--quick | --ends]

Prints one table: milliseconds (median), their ratio to
torch.nn.functional.binary_cross_entropy_with_logits measured just before and after, MiB needed
beyond logits and targets (the gradient included), and the same in units of the logits. On a GPU
passes are queued as in a training loop, so the larger of the times of Python and of the GPU counts;
two more columns replay the pass as a CUDA graph, which takes no time in Python.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table

from longtail import LOSSES, LabelStats, build_loss

SIZES = {
    "cuda": [(32, 90), (32, 18_211), (256, 18_211), (128, 670_091)],
    "cpu": [(32, 90), (32, 18_211), (256, 18_211), (32, 670_091)],
}
LABELS_PER_DOCUMENT = 12
QUEUED = 10
"""Passes in one measurement on a GPU."""
N_SAMPLES = 225_000
Pass = Callable[[], None]


def milliseconds(step: Pass, baseline: Pass, device: str, seconds: float) -> tuple[float, float]:
    """Medians of the step and of the baseline, which is measured before and after it.

    The faster of the two counts: what a baseline loses to another program, or to memory that has
    to be asked for again, must not flatter the step.
    """
    before = _block(baseline, device, seconds / 2)
    taken = _block(step, device, seconds)
    after = _block(baseline, device, seconds / 2)
    return statistics.median(taken), min(statistics.median(before), statistics.median(after))


def _block(step: Pass, device: str, seconds: float) -> list[float]:
    """The times of one function run again and again; one of several seconds is run twice."""
    first = _milliseconds_once(step, device)
    _milliseconds_once(step, device)
    least = 3 if first < 2000 else 1
    times: list[float] = []
    deadline = time.perf_counter() + seconds
    while len(times) < least or (time.perf_counter() < deadline and len(times) < 200):
        times.append(_milliseconds_once(step, device))
    return times


def _milliseconds_once(step: Pass, device: str) -> float:
    if device == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        for _ in range(QUEUED):
            step()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / QUEUED
    begin = time.perf_counter()
    step()
    return (time.perf_counter() - begin) * 1e3


def recorded(step: Pass) -> Pass:
    """The pass as a CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def peak_mebibytes(step: Pass, device: str) -> float:
    """Peak memory of one pass above what was held before it."""
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    if not os.access("/proc/self/clear_refs", os.W_OK):
        return float("nan")
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # what is kept for reuse would hide what is needed
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    before = _status("VmRSS")
    step()
    return (_status("VmHWM") - before) / 2**10


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise RuntimeError(f"no {field} in /proc/self/status")


def make_batch(size: tuple[int, int], device: str) -> tuple[torch.Tensor, torch.Tensor, LabelStats]:
    documents, labels = size
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(documents, labels, generator=generator).to(device).requires_grad_()
    target = torch.zeros(documents, labels)
    chosen = torch.randint(labels, (documents, LABELS_PER_DOCUMENT), generator=generator)
    target.scatter_(1, chosen, 1.0)
    counts = (N_SAMPLES / torch.arange(2, labels + 2)).int().numpy()
    return logits, target.to(device), LabelStats.from_counts(counts, N_SAMPLES)


def passes(
    names: list[str], logits: torch.Tensor, target: torch.Tensor, stats: LabelStats, device: str
) -> dict[str, Pass]:
    """One forward + backward pass per row of the table."""

    def step(loss: Callable[..., torch.Tensor], wanted: object) -> Pass:
        def run() -> None:
            logits.grad = None
            loss(logits, wanted).backward()

        return run

    rows: dict[str, Pass] = {
        "torch BCE": step(F.binary_cross_entropy_with_logits, target),
    }
    options: dict[str, Any] = {"check_targets": False}  # torch's BCE does not check them either
    modules = {name: build_loss(name, stats, **options).to(device) for name in names}
    for name, module in modules.items():
        rows[name] = step(module, target)
    if "db" in modules:
        rows["db, sparse targets"] = step(modules["db"], sparse(target))
        whole = build_loss("db", stats, reduction="none", **options).to(device)
        rows["db, plain autograd"] = step(lambda z, y: whole(z, y).mean(), target)
        if device == "cuda":
            rows["db, torch.compile"] = step(torch.compile(modules["db"], fullgraph=True), target)
    return rows


def sparse(target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rows, labels = target.nonzero(as_tuple=True)
    edges = torch.arange(target.shape[0] + 1, device=target.device)
    return labels, torch.searchsorted(rows, edges)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--losses", default=",".join(LOSSES), help="comma-separated names")
    parser.add_argument("--quick", action="store_true", help="skip the largest size")
    parser.add_argument("--ends", action="store_true", help="only the smallest and largest size")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each row")
    arguments = parser.parse_args()
    device, names = arguments.device, arguments.losses.split(",")
    hardware = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or "CPU"
    title = f"forward + backward, float32, {hardware}, torch {torch.__version__}"
    if device == "cpu":
        title += f", {torch.get_num_threads()} threads"
    table = Table(title=title)
    columns = ["documents x labels", "loss", "ms", "ratio to BCE", "MiB", "x logits"]
    if device == "cuda":
        columns += ["graph, ms", "ratio to BCE"]
    for column in columns:
        table.add_column(column, justify="left" if column == "loss" else "right")
    sizes = SIZES[device]
    if arguments.ends:
        sizes = [sizes[0], sizes[-1]]
    for size in sizes[:-1] if arguments.quick else sizes:
        logits, target, stats = make_batch(size, device)
        logits_mebibytes = logits.numel() * logits.element_size() / 2**20
        rows = passes(names, logits, target, stats, device)
        baseline = rows["torch BCE"]
        for name, step in rows.items():
            print(f"{size[0]} x {size[1]}: {name}", file=sys.stderr)
            taken, beside = milliseconds(step, baseline, device, arguments.seconds)
            logits.grad = None
            memory = peak_mebibytes(step, device)
            cells = []
            if device == "cuda":
                times = milliseconds(recorded(step), recorded(baseline), device, arguments.seconds)
                cells = [f"{times[0]:.3f}", f"{times[0] / times[1]:.2f}"]
            print(f"    {taken:.3f} ms, {' '.join(cells)}", file=sys.stderr)
            table.add_row(
                f"{size[0]} x {size[1]:,}",
                name,
                f"{taken:.3f}",
                f"{taken / beside:.2f}",
                f"{memory:,.1f}",
                f"{memory / logits_mebibytes:.2f}",
                *cells,
            )
        table.add_section()
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
