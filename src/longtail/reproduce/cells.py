"""One cell of a reproduction: a row trained with one seed, in a run folder of its own.

FOLDER/finished.json   recipe, fingerprint, spans, hardware, versions, commit, evaluation
FOLDER/decisions.npz   the decisions on the test part
FOLDER/begun.json      fingerprint and spans of a training in progress
FOLDER/fold-0 ...      its checkpoints
"""

from __future__ import annotations

import contextlib
import io
import json
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.classifier import LongTailClassifier
from longtail.data import TextData
from longtail.errors import DataError
from longtail.progress import OnProgress, ignore
from longtail.reproduce.recipes import plans_of
from longtail.reproduce.surroundings import commit, hardware, versions
from longtail.runs import Workspace, differences
from longtail.training.interrupt import NEVER, Stop
from longtail.training.settings import RUNTIME

FINISHED, DECISIONS, BEGUN = "finished.json", "decisions.npz", "begun.json"
FAILED, LOG = "failed.json", "log.txt"
RESULT = (FINISHED, DECISIONS, LOG)
"""What stays of a finished cell."""
Fingerprint = dict[str, Any]
"""What must be equal for a result to be reused: the recipe, and the documents of each part."""
Spans = list[tuple[float, float | None]]
"""Start and end of each training session, in seconds since 1970; None: killed."""


@dataclass(frozen=True)
class Cell:
    """A row and a seed: what to train, and where it is kept."""

    row: str
    seed: int
    recipe: Mapping[str, Any]
    """Flat settings of the classifier, with the seed as `random_state`."""
    folder: Path

    def __str__(self) -> str:
        return f"{self.row} (seed {self.seed})"

    def fingerprint(self, documents: Mapping[str, str]) -> Fingerprint:
        recipe = {key: value for key, value in self.recipe.items() if key not in RUNTIME}
        # As JSON returns it: tuples are lists, keys are strings.
        plain: Fingerprint = json.loads(
            json.dumps({"recipe": recipe, "documents": dict(documents)})
        )
        return plain

    def open(self) -> Workspace:
        """The run folder, made if needed; a folder that longtail did not make is refused."""
        if Workspace.is_one(self.folder):
            return Workspace.open(self.folder)
        return Workspace.begin(self.folder, {}, join=True)

    def remove_results(self) -> None:
        """Remove everything, the mark that it is finished first."""
        space = self.open()
        space.discard(FINISHED)
        space.clear()


@dataclass(frozen=True, eq=False)
class Finished:
    """The result of a finished cell."""

    row: str
    seed: int
    recipe: dict[str, Any]
    fingerprint: Fingerprint
    spans: Spans
    hardware: str
    versions: dict[str, str]
    commit: str
    thresholds: str
    evaluation: dict[str, Any]
    decisions: sp.csr_matrix

    @property
    def seconds(self) -> float | None:
        """The training time of all sessions; None if one was killed."""
        if any(end is None for _, end in self.spans):
            return None
        return sum(end - begin for begin, end in self.spans if end is not None)


def part_fingerprints(parts: Mapping[str, TextData]) -> dict[str, str]:
    """A short fingerprint of the texts and labels of each part."""
    return {name: part.fingerprint()[:16] for name, part in parts.items()}


def train_cell(
    cell: Cell,
    parts: Mapping[str, TextData],
    documents: Mapping[str, str],
    *,
    stop: Stop = NEVER,
    progress: OnProgress = ignore,
    note: Callable[[str], None] = lambda text: None,
) -> None:
    """Train a cell, or resume it, evaluate it on the test part, and keep the result."""
    fingerprint = cell.fingerprint(documents)
    before = _earlier_spans(cell, fingerprint, note)
    classifier = LongTailClassifier.from_settings(cell.recipe)
    began, clock = time.time(), time.perf_counter()
    space = cell.open()
    space.write_record(BEGUN, {"fingerprint": fingerprint, "spans": [*before, (began, None)]})
    try:
        classifier.fit(
            parts["train"],
            validation=parts["validation"],
            folder=cell.folder,
            resume=True,
            progress=progress,
            note=note,
            stop=stop,
        )
    finally:
        spans: Spans = [*before, (began, began + time.perf_counter() - clock)]
        with contextlib.suppress(DataError):  # an error of the fit is more important
            space.write_record(BEGUN, {"fingerprint": fingerprint, "spans": spans})
    evaluation = classifier.evaluate(parts["test"])
    packed = io.BytesIO()
    decisions = evaluation.decisions()[1]
    shape = np.array(decisions.shape, dtype=np.int64)
    np.savez_compressed(packed, indices=decisions.indices, indptr=decisions.indptr, shape=shape)
    space.write(DECISIONS, packed.getvalue())
    result = {
        "row": cell.row,
        "seed": cell.seed,
        "recipe": dict(cell.recipe),
        "fingerprint": fingerprint,
        "spans": spans,
        "hardware": hardware(plans_of(cell.row, cell.recipe)),
        "versions": versions(),
        "commit": commit(),
        "thresholds": str(evaluation.thresholds.get("method", cell.recipe.get("thresholds"))),
        "evaluation": evaluation.to_dict(per_label=False),
    }
    space.write_record(FINISHED, result)
    space.clear(but=RESULT)


def read_finished(cell: Cell) -> Finished | None:
    """The result of a cell; None if it is not finished."""
    path = cell.folder / FINISHED
    if not path.exists():
        return None
    try:
        result = json.loads(path.read_text("utf-8"))
        # From memory: numpy would leave a damaged file open.
        packed = io.BytesIO((cell.folder / DECISIONS).read_bytes())
        with np.load(packed, allow_pickle=False) as saved:
            indices, indptr, shape = (saved[name] for name in ("indices", "indptr", "shape"))
        ones = np.ones(len(indices), dtype=np.float32)
        decisions = sp.csr_matrix((ones, indices, indptr), tuple(shape))
        finished = Finished(**result, decisions=decisions)
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise DataError(
            f"the result of {cell} in {cell.folder} cannot be read ({error}). Remove that folder "
            "to train it again."
        ) from error
    # Left by a process that was killed right after it finished.
    if Workspace.is_one(cell.folder):
        cell.open().clear(but=RESULT)
    return finished


def read_begun(cell: Cell) -> dict[str, Any] | None:
    """Fingerprint and spans of an unfinished training; None if there is none to resume."""
    if not Workspace.is_one(cell.folder):
        return None
    begun = cell.open().read_record(BEGUN) or {}
    return begun if isinstance(begun.get("fingerprint"), dict) else None


def changes(before: Fingerprint, now: Fingerprint) -> list[str]:
    """What differs between two fingerprints, in words."""
    old, new = before.get("documents", {}), now["documents"]
    parts = [part for part in sorted({*old, *new}) if old.get(part) != new.get(part)]
    changed = differences(before.get("recipe", {}), now["recipe"])
    return [*changed, f"the {', '.join(parts)} documents changed"] if parts else changed


def _earlier_spans(cell: Cell, fingerprint: Fingerprint, note: Callable[[str], None]) -> Spans:
    """The earlier sessions of this training; another training is removed."""
    space = cell.open()
    if not (cell.folder / BEGUN).exists():
        return []
    begun = read_begun(cell)
    with contextlib.suppress(KeyError, TypeError, ValueError):
        if begun is not None and begun["fingerprint"] == fingerprint:
            return [(begin, end) for begin, end in begun["spans"]]
    note(f"{cell}: the earlier training cannot be resumed; starting over.")
    space.clear(but=(LOG,))
    return []
