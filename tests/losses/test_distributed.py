"""The losses inside DistributedDataParallel: half batches in two processes, see ddp_run.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

PROGRAM = Path(__file__).with_name("ddp_run.py")


def test_half_batches_average_to_the_whole_gradient(tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAM), str(tmp_path)]
    child = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert child.returncode == 0, child.stderr
    whole = torch.load(tmp_path / "gradients-whole.pt")
    assert len(whole) > 10
    for rank in range(2):
        half = torch.load(tmp_path / f"gradients-{rank}.pt")
        for name, gradient in whole.items():
            assert gradient.any()
            torch.testing.assert_close(half[name], gradient)
