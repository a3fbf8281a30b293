"""What a figure was made with: hardware, versions of libraries, and the commit of this one."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path

from longtail import __version__
from longtail.classifier.plan import Plan
from longtail.models import MODELS

LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch", "transformers")


def versions() -> dict[str, str]:
    """Of Python, of this library, and of those that decide what a training gives."""
    libraries = {name: metadata.version(name) for name in LIBRARIES}
    return {"python": platform.python_version(), "longtail": __version__, **libraries}


@cache
def commit() -> str:
    """$LONGTAIL_COMMIT, else of the source checkout that is running, else the version."""
    if os.environ.get("LONGTAIL_COMMIT"):
        return os.environ["LONGTAIL_COMMIT"]
    root = Path(__file__).parents[3]

    def git(*words: str) -> str:
        command = ["git", "-C", str(root), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    # Another project's repository around an installed package is not ours.
    if (root / ".git").exists() and (root / "src" / "longtail").is_dir():
        with suppress(OSError, subprocess.CalledProcessError):
            changed = git("status", "--porcelain", "--", "src", "recipes")
            suffix = " with uncommitted changes" if changed else ""
            return git("rev-parse", "--short", "HEAD") + suffix
    return f"version {__version__}"


def hardware(plans: Sequence[Plan]) -> str:
    """The GPU that the plans are computed on, or the processor."""
    import torch

    from longtail.training.devices import device_of

    for plan in plans:
        device = device_of(plan.training.device)
        if device.type == "cuda" and MODELS[plan.kind].uses_gpu:
            return str(torch.cuda.get_device_name(device))
    return processor()


@cache
def processor() -> str:
    """Its model and the number of cores that this process may use."""
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    model = platform.processor() or platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        model = names[0] if names else model
    return f"{model}, {n_cores} {'core' if n_cores == 1 else 'cores'}"
