"""Triton kernels without a GPU: a test file runs again in a child process, in the interpreter."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

ON_GPU = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cuda" if ON_GPU else "cpu")

needs_kernels = pytest.mark.skipif(
    not (ON_GPU or INTERPRETED), reason="runs in the interpreted child process"
)
starts_interpreter = pytest.mark.skipif(
    ON_GPU or INTERPRETED, reason="the kernels run directly here"
)


def run_interpreted(file: str) -> None:
    """Run the tests of a file that need kernels, in Triton's interpreter."""
    pytest.importorskip("triton", reason="triton is not installed on this platform")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0", file]
    command += ["-k", "kernel"]
    child = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stdout + child.stderr
    assert "passed" in child.stdout
