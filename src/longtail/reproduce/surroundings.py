"""What a figure was made with: hardware, versions of libraries, and the commit of this one."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

from longtail import __version__
from longtail.classifier.plan import Plan
from longtail.models import MODELS

LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch", "transformers")


def versions() -> dict[str, str]:
    """Of Python, of this library, and of those that decide what a training gives."""
    found = {"python": platform.python_version(), "longtail": __version__}
    return found | {name: metadata.version(name) for name in LIBRARIES}


@cache
def commit() -> str:
    """$LONGTAIL_COMMIT, else of the source checkout that is running, else the version."""
    said = os.environ.get("LONGTAIL_COMMIT")
    if said:
        return said
    root = Path(__file__).parents[3]
    # Another project's repository around an installed package is not ours.
    if (root / ".git").exists() and (root / "src" / "longtail").is_dir():
        try:
            found = _git(root, "rev-parse", "--short", "HEAD")
            changed = _git(root, "status", "--porcelain", "--", "src", "recipes")
            return f"{found} with uncommitted changes" if changed else found
        except (OSError, subprocess.CalledProcessError):
            pass
    return f"version {__version__}"


def _git(root: Path, *words: str) -> str:
    asked = ["git", "-C", str(root), *words]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


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
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return f"{model}, {n_cores} {'core' if n_cores == 1 else 'cores'}"
