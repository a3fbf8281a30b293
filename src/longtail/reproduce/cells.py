"""One cell of a reproduction: a row trained with one seed, in its run folder.

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
from dataclasses import dataclass, field
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
from longtail.runs import differences
from longtail.runs.workspace import Workspace
from longtail.training.interrupt import NEVER, Stop
from longtail.training.settings import RUNTIME

FINISHED, DECISIONS, BEGUN = "finished.json", "decisions.npz", "begun.json"
FAILED, LOG = "failed.json", "log.txt"
RESULT = (FINISHED, DECISIONS, LOG)
"""What stays of a finished cell."""
Fingerprint = dict[str, Any]
"""The recipe, and the documents of each part."""
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
    documents: Mapping[str, str] = field(default_factory=dict)
    """The fingerprint of each part."""

    def __str__(self) -> str:
        return f"{self.row} (seed {self.seed})"

    def fingerprint(self) -> Fingerprint:
        """What must be equal for a result to be reused."""
        recipe = {key: value for key, value in self.recipe.items() if key not in RUNTIME}
        # As JSON returns it: tuples are lists, keys are strings.
        text = json.dumps({"recipe": recipe, "documents": dict(self.documents)})
        return dict(json.loads(text))

    def changes(self, before: Fingerprint) -> list[str]:
        """What differs from the fingerprint of an earlier training, in words."""
        now = self.fingerprint()
        old, new = before.get("documents", {}), now["documents"]
        parts = [part for part in sorted({*old, *new}) if old.get(part) != new.get(part)]
        changed = differences(before.get("recipe", {}), now["recipe"])
        return [*changed, f"the {', '.join(parts)} documents changed"] if parts else changed

    def open(self) -> Workspace:
        """The run folder, made if needed; a folder that longtail did not make is refused."""
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
    def known_spans(self) -> list[tuple[float, float]]:
        return [(begin, end) for begin, end in self.spans if end is not None]

    @property
    def seconds(self) -> float | None:
        """The training time of all sessions; None if one was killed."""
        is_known = len(self.known_spans) == len(self.spans)
        return sum(end - begin for begin, end in self.known_spans) if is_known else None


def train_cell(
    cell: Cell,
    parts: Mapping[str, TextData],
    *,
    stop: Stop = NEVER,
    progress: OnProgress = ignore,
    note: Callable[[str], None] = lambda text: None,
) -> None:
    """Train a cell, or resume it, evaluate it on the test part, and keep the result."""
    space = cell.open()
    spans = _earlier_spans(cell, space, note)
    classifier = LongTailClassifier.from_settings(cell.recipe)
    began, clock = time.time(), time.perf_counter()
    spans.append((began, None))
    begun = {"fingerprint": cell.fingerprint(), "spans": spans}
    space.write_record(BEGUN, begun)
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
        spans[-1] = (began, began + time.perf_counter() - clock)
        with contextlib.suppress(DataError):  # an error of the fit is more important
            space.write_record(BEGUN, begun)
    evaluation = classifier.evaluate(parts["test"])
    packed = io.BytesIO()
    decided = evaluation.decisions()[1]
    np.savez_compressed(
        packed, indices=decided.indices, indptr=decided.indptr, shape=np.array(decided.shape)
    )
    space.write(DECISIONS, packed.getvalue())
    result = {
        "row": cell.row,
        "seed": cell.seed,
        "recipe": dict(cell.recipe),
        **begun,
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


def _earlier_spans(cell: Cell, space: Workspace, note: Callable[[str], None]) -> Spans:
    """The earlier sessions of this training; one that cannot be resumed is removed."""
    if not (cell.folder / BEGUN).exists():
        return []
    begun = read_begun(cell) or {}
    with contextlib.suppress(KeyError, TypeError, ValueError):
        if begun["fingerprint"] == cell.fingerprint():
            return [(begin, end) for begin, end in begun["spans"]]
    note(f"{cell}: the earlier training cannot be resumed; starting over.")
    space.clear(but=(LOG,))
    return []
