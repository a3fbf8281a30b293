"""One cell of a reproduction: a row trained with one seed, kept in a folder once it is finished.

FOLDER/finished.json   recipe, fingerprint, spans, hardware, versions, commit, evaluation
FOLDER/decisions.npz   the decisions on the test part
FOLDER/begun.json      fingerprint and spans while it trains, gone when it is finished
FOLDER/fold-0 ...      states while it trains, gone when it is finished
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
from longtail.reproduce.recipes import plans_of
from longtail.reproduce.surroundings import commit, hardware, versions
from longtail.runs import Workspace, whole_file
from longtail.training.interrupt import NEVER, Stop
from longtail.training.loop import Moment

FINISHED, DECISIONS, BEGUN = "finished.json", "decisions.npz", "begun.json"
FAILED, LOG = "failed.json", "log.txt"
# What stays of a finished cell.
RESULT = (FINISHED, DECISIONS, LOG)
# Where and how often a state is saved does not change what is learned.
FREE = ("device", "checkpoint_minutes")
# Of a difference between two recipes: entries that are told, and characters of each.
MOST_TOLD, LONGEST_TOLD = 3, 60
Print = dict[str, Any]
"""What must be equal for a result to be the one asked for: the recipe, and the documents."""
Spans = list[tuple[float, float | None]]
"""When it was trained on, in seconds since 1970, from and to; None: killed, nobody knows when."""


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

    def fingerprint(self, documents: Mapping[str, str]) -> Print:
        recipe = {key: value for key, value in self.recipe.items() if key not in FREE}
        # As JSON gives it back: tuples are lists, keys are strings.
        found: Print = json.loads(json.dumps({"recipe": recipe, "documents": dict(documents)}))
        return found


@dataclass(frozen=True, eq=False)
class Finished:
    """What a finished cell left behind."""

    row: str
    seed: int
    recipe: dict[str, Any]
    fingerprint: Print
    spans: Spans
    hardware: str
    versions: dict[str, str]
    commit: str
    thresholds: str
    evaluation: dict[str, Any]
    decisions: sp.csr_matrix

    @property
    def seconds(self) -> float | None:
        """Of the whole training, also in several goes; None if not all of them are known."""
        if any(end is None for _, end in self.spans):
            return None
        return sum(end - begin for begin, end in self.spans if end is not None)


def prints_of(parts: Mapping[str, TextData]) -> dict[str, str]:
    """A short fingerprint of the texts and labels of each part."""
    return {name: part.fingerprint()[:16] for name, part in parts.items()}


def train_cell(
    cell: Cell,
    parts: Mapping[str, TextData],
    documents: Mapping[str, str],
    *,
    stop: Stop = NEVER,
    progress: Callable[[Moment], None] | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> None:
    """Train a cell, or go on with it, judge it on the test part, and keep what came out."""
    asked = cell.fingerprint(documents)
    before = _begin(cell, asked, note)
    classifier = LongTailClassifier.from_settings(cell.recipe)
    began, clock = time.time(), time.perf_counter()
    _write_begun(cell, asked, [*before, (began, None)])
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
        with contextlib.suppress(DataError):  # what ends it, an error perhaps, matters more
            _write_begun(cell, asked, spans)
    evaluation = classifier.evaluate(parts["test"])
    packed = io.BytesIO()
    decided = evaluation.decisions()[1]
    shape = np.array(decided.shape, dtype=np.int64)
    np.savez_compressed(packed, indices=decided.indices, indptr=decided.indptr, shape=shape)
    space = open_cell(cell)
    _put(space, DECISIONS, packed.getvalue())
    told = {
        "row": cell.row,
        "seed": cell.seed,
        "recipe": dict(cell.recipe),
        "fingerprint": asked,
        "spans": spans,
        "hardware": hardware(plans_of(cell.row, cell.recipe)),
        "versions": versions(),
        "commit": commit(),
        "thresholds": str(evaluation.thresholds.get("method", cell.recipe.get("thresholds"))),
        "evaluation": evaluation.to_dict(per_label=False),
    }
    _put(space, FINISHED, json.dumps(told, indent=2).encode("utf-8"))
    space.clear(but=RESULT)


def read_finished(cell: Cell) -> Finished | None:
    """What a finished cell left behind; None if it is not finished."""
    place = cell.folder / FINISHED
    if not place.exists():
        return None
    try:
        told = json.loads(place.read_text("utf-8"))
        # By way of the bytes: numpy would leave a damaged file open.
        packed = io.BytesIO((cell.folder / DECISIONS).read_bytes())
        with np.load(packed, allow_pickle=False) as saved:
            indices, indptr, shape = (saved[name] for name in ("indices", "indptr", "shape"))
        ones = np.ones(len(indices), dtype=np.float32)
        decisions = sp.csr_matrix((ones, indices, indptr), tuple(shape))
        found = Finished(**told, decisions=decisions)
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise DataError(
            f"the result of {cell} in {cell.folder} cannot be read ({error}). Remove that folder "
            "to train it again."
        ) from error
    # Left there by a process that was killed right after it had finished.
    if Workspace.is_one(cell.folder):
        open_cell(cell).clear(but=RESULT)
    return found


def read_begun(cell: Cell) -> Print | None:
    """The fingerprint of what was begun and not finished; None if there is none to resume."""
    try:
        found = json.loads((cell.folder / BEGUN).read_text("utf-8"))["fingerprint"]
        return found if isinstance(found, dict) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def differences(before: Print, now: Print) -> list[str]:
    """What changed between two fingerprints, in words."""
    found = []
    old, new = before.get("recipe", {}), now["recipe"]
    for key in sorted({*old, *new}):
        one, other = old.get(key), new.get(key)
        if isinstance(one, dict) and isinstance(other, dict):
            inner = [k for k in sorted({*one, *other}) if one.get(k) != other.get(k)]
            told = [f"{k} was {_short(one.get(k))}, now {_short(other.get(k))}" for k in inner]
            found += told[:MOST_TOLD]
            if len(told) > MOST_TOLD:
                found.append(f"{len(told) - MOST_TOLD} more of {key}")
        elif one != other:
            found.append(f"{key} was {_short(one)}, now {_short(other)}")
    changed = [
        part
        for part in sorted({*before.get("documents", {}), *now["documents"]})
        if before.get("documents", {}).get(part) != now["documents"].get(part)
    ]
    if changed:
        found.append(f"the {', '.join(changed)} documents are others")
    return found


def _short(value: Any) -> str:
    said = repr(value)
    return said if len(said) <= LONGEST_TOLD else f"{said[:LONGEST_TOLD]}..."


def forget(cell: Cell) -> None:
    """Remove what a cell left behind, the mark that it is finished first."""
    space = open_cell(cell)
    space.discard(FINISHED)
    space.clear()


def open_cell(cell: Cell) -> Workspace:
    """The folder of a cell, made if need be; a folder that longtail did not make is refused."""
    if Workspace.is_one(cell.folder):
        return Workspace.open(cell.folder)
    return Workspace.begin(cell.folder, {}, join=True)


def _begin(cell: Cell, asked: Print, note: Callable[[str], None]) -> Spans:
    """When it was trained on before; what was begun otherwise is removed."""
    space = open_cell(cell)
    if not (cell.folder / BEGUN).exists():
        return []
    try:
        before = json.loads((cell.folder / BEGUN).read_text("utf-8"))
        if before["fingerprint"] == asked:
            return [(begin, end) for begin, end in before["spans"]]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    note(f"{cell}: what was begun cannot be resumed; starting over.")
    space.clear(but=(LOG,))
    return []


def _write_begun(cell: Cell, asked: Print, spans: Spans) -> None:
    told = {"fingerprint": asked, "spans": spans}
    _put(open_cell(cell), BEGUN, json.dumps(told, indent=2).encode("utf-8"))


def _put(space: Workspace, name: str, content: bytes) -> None:
    """Write a whole file or none."""
    place = space.path / name
    try:
        with whole_file(space.file(name)) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise DataError(
            f"could not write {place}: {error}. Free some space, or choose another "
            "folder, then go on with the same command."
        ) from error
