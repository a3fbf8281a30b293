"""The losses inside DistributedDataParallel: half batches in two gloo processes on the CPU.

As a program, which its processes can find again by its path, `python test_distributed.py FOLDER`
leaves gradients-0.pt, gradients-1.pt and gradients-whole.pt there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from longtail import LabelStats, build_loss, list_losses

WORLD_SIZE = 2
STATS = LabelStats.from_counts([7, 0, 40, 1, 20], n_samples=40)
# Two-way compares documents with each other, so half a batch is another loss.
SEPARABLE = [name for name in list_losses() if name != "two-way"]


class WithLoss(nn.Module):
    """A layer with its loss inside: the loss's buffers are the wrapper's to send around."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.layer = nn.Linear(4, STATS.n_labels)
        nn.init.constant_(self.layer.weight, 0.3)
        nn.init.zeros_(self.layer.bias)
        self.loss = build_loss(name, STATS, reduction="batchmean")

    def forward(self, features: Tensor, target: Tensor) -> Tensor:
        value: Tensor = self.loss(self.layer(features), target)
        return value


def gradients(wrap: type[nn.Module] | None, documents: slice) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(2)
    features = torch.randn(6, 4, generator=generator)[documents]
    target = (torch.rand(6, STATS.n_labels, generator=generator) < 0.4)[documents]
    by_name = {}
    for name in SEPARABLE:
        inner = WithLoss(name)
        model = inner if wrap is None else wrap(inner)
        model(features, target).backward()
        by_name[name] = inner.layer.weight.grad
    return by_name


def process(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=WORLD_SIZE)
    half = slice(3 * rank, 3 * rank + 3)
    halves = gradients(nn.parallel.DistributedDataParallel, half)
    torch.save(halves, f"{folder}/gradients-{rank}.pt")
    while not Path(folder, f"gradients-{1 - rank}.pt").exists():
        time.sleep(0.02)
    # Leave without taking the interpreter down: a gloo thread that asks for it in its last moments
    # now and then aborts the process, long after the gradients are written.
    sys.stderr.flush()
    os._exit(0)


def test_half_batches_average_to_the_whole_gradient(tmp_path: Path) -> None:
    command = [sys.executable, __file__, str(tmp_path)]
    child = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert child.returncode == 0, child.stderr
    whole = torch.load(tmp_path / "gradients-whole.pt")
    assert len(whole) > 10
    for rank in range(2):
        half = torch.load(tmp_path / f"gradients-{rank}.pt")
        for name, gradient in whole.items():
            assert gradient.any()
            torch.testing.assert_close(half[name], gradient)


if __name__ == "__main__":
    torch.multiprocessing.spawn(process, args=(sys.argv[1],), nprocs=WORLD_SIZE)
    torch.save(gradients(None, slice(None)), f"{sys.argv[1]}/gradients-whole.pt")
