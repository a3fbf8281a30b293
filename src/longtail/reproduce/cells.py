"""One cell of a reproduction: a row trained with one seed, in its run folder.

FOLDER/finished.json   recipe, fingerprint, spans, hardware, versions, commit, evaluation
FOLDER/decisions.npz   decisions on the test part
FOLDER/begun.json      fingerprint and spans of an unfinished training
FOLDER/fold-0 ...      its checkpoints
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import subprocess
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail import __version__
from longtail.classifier import LongTailClassifier
from longtail.classifier.plan import Plan
from longtail.data import TextData
from longtail.errors import DataError
from longtail.models import MODELS
from longtail.runs.workspace import Workspace, differences
from longtail.training.devices import device_of
from longtail.training.interrupt import NEVER, Stop
from longtail.training.settings import RUNTIME

FINISHED, DECISIONS, BEGUN = "finished.json", "decisions.npz", "begun.json"
FAILED, LOG = "failed.json", "log.txt"
LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch", "transformers")
Finished = dict[str, Any]
"""The content of `finished.json`, and the `decisions`, a CSR matrix."""


@dataclass(frozen=True)
class Cell:
    """A row and a seed: what to train, and in which folder."""

    row: str
    seed: int
    recipe: Mapping[str, Any]
    """Flat settings of the classifier, with the seed as `random_state`."""
    folder: Path
    documents: Mapping[str, str] = field(default_factory=dict)
    """Part -> fingerprint of its documents."""

    def __str__(self) -> str:
        return f"{self.row} (seed {self.seed})"

    @property
    def is_finished(self) -> bool:
        return (self.folder / FINISHED).exists()

    def fingerprint(self) -> dict[str, Any]:
        """The recipe and documents that a result must match to be reused."""
        recipe = {key: value for key, value in self.recipe.items() if key not in RUNTIME}
        # Through JSON, so that it compares equal when read back: tuples are lists.
        return dict(json.loads(json.dumps({"recipe": recipe, "documents": dict(self.documents)})))

    def changes(self, before: Mapping[str, Any]) -> list[str]:
        """The changes since an earlier training with this fingerprint, as text."""
        now = self.fingerprint()
        old, new = before["documents"], now["documents"]
        parts = [part for part in sorted({*old, *new}) if old.get(part) != new.get(part)]
        changed = differences(before["recipe"], now["recipe"])
        return [*changed, f"the {', '.join(parts)} documents changed"] if parts else changed

    def open(self) -> Workspace:
        """Open the run folder, creating it if needed; folders not made by longtail are refused."""
        return Workspace.begin(self.folder, {}, join=True)


def train_cell(
    cell: Cell,
    parts: Mapping[str, TextData],
    report: Callable[..., None] = lambda *event: None,
    stop: Stop = NEVER,
) -> None:
    """Train or resume a cell, evaluate it on the test part, and save the result.

    `report` is called with the kind, message and share of each event, see `run.Event`.
    """
    space, classifier = cell.open(), LongTailClassifier.from_settings(cell.recipe)
    begun = space.read_record(BEGUN) or {"fingerprint": cell.fingerprint(), "spans": []}
    # Start and end of each session in seconds since 1970; the end is None if it was killed.
    span: list[float | None] = [time.time(), None]
    begun["spans"].append(span)
    space.write_record(BEGUN, begun)
    try:
        classifier.fit(
            parts["train"],
            validation=parts["validation"],
            folder=cell.folder,
            resume=True,
            progress=lambda progress: report("progress", str(progress), progress.share),
            note=lambda text: report("note", text),
            stop=stop,
        )
    finally:
        span[1] = time.time()
        with contextlib.suppress(DataError):  # do not hide an error of the fit
            space.write_record(BEGUN, begun)
    evaluation, _ = classifier.evaluate_scores(parts["test"])
    packed, decided = io.BytesIO(), evaluation.y_pred
    np.savez_compressed(
        packed, indices=decided.indices, indptr=decided.indptr, shape=np.array(decided.shape)
    )
    space.write(DECISIONS, packed.getvalue())
    result = {
        "row": cell.row,
        "seed": cell.seed,
        "recipe": dict(cell.recipe),
        **begun,
        "hardware": hardware(classifier.plans()),
        "versions": {
            "python": platform.python_version(),
            "longtail": __version__,
            **{name: metadata.version(name) for name in LIBRARIES},
        },
        "commit": commit(),
        "thresholds": evaluation.thresholds.method,
        "evaluation": evaluation.to_dict(per_label=False),
    }
    space.write_record(FINISHED, result)
    tidy(cell)


def tidy(cell: Cell) -> None:
    """Remove the checkpoints and output of a finished cell, unless already done."""
    if (cell.folder / BEGUN).exists():
        space = cell.open()
        space.clear(but=(FINISHED, DECISIONS, BEGUN))
        # Last, so that a cell killed in between is tidied the next time.
        space.discard(BEGUN)


def read_finished(cell: Cell) -> Finished:
    """Read the result of a cell."""
    try:
        result: Finished = json.loads((cell.folder / FINISHED).read_text("utf-8"))
        # From memory: numpy leaves damaged files open.
        with np.load(io.BytesIO((cell.folder / DECISIONS).read_bytes())) as saved:
            indices, indptr, shape = (saved[name] for name in ("indices", "indptr", "shape"))
        ones = np.ones(len(indices), dtype=np.float32)
        return {**result, "decisions": sp.csr_matrix((ones, indices, indptr), tuple(shape))}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(
            f"the result of {cell} in {cell.folder} cannot be read ({error}). Remove that folder "
            "to train it again."
        ) from error


def begun_with(cell: Cell) -> dict[str, Any] | None:
    """The fingerprint of an unfinished training, or None if there is none to resume."""
    begun = (Workspace.is_one(cell.folder) and cell.open().read_record(BEGUN)) or {}
    return begun.get("fingerprint")


def seconds(result: Finished) -> float | None:
    """The training time over all sessions; None if one was killed."""
    if any(end is None for _, end in result["spans"]):
        return None
    return float(sum(end - begin for begin, end in result["spans"]))


@cache
def commit() -> str:
    """$LONGTAIL_COMMIT, else the commit of the running source checkout, else the version."""
    if os.environ.get("LONGTAIL_COMMIT"):
        return os.environ["LONGTAIL_COMMIT"]
    root = Path(__file__).parents[3]

    def git(*words: str) -> str:
        command = ["git", "-C", str(root), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    # An installed package may lie inside another project's repository.
    if (root / ".git").exists() and (root / "src" / "longtail").is_dir():
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            changed = git("status", "--porcelain", "--", "src", "recipes")
            suffix = " with uncommitted changes" if changed else ""
            return git("rev-parse", "--short", "HEAD") + suffix
    return f"version {__version__}"


def hardware(plans: Sequence[Plan]) -> str:
    """The GPU that the plans use, or the processor and its number of cores."""
    import torch

    for plan in plans:
        device = device_of(plan.training.device)
        if device.type == "cuda" and MODELS[plan.kind].uses_gpu:
            return str(torch.cuda.get_device_name(device))
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        model = names[0] if names else model
    return f"{model}, {n_cores} {'core' if n_cores == 1 else 'cores'}"
