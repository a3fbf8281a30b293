"""The folder of a fit in progress: finished folds and checkpoints survive a kill at any time.

FOLDER/plan.json       the plans and a fingerprint of the documents
FOLDER/fold-0/...      checkpoints of a fold in progress
FOLDER/fold-0/model    the model of a finished fold
FOLDER/member-1/...    the same for each model of a blend
"""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError

from longtail.errors import DataError, InputError
from longtail.models.base import TextModel
from longtail.runs.files import Lock, staging, sync_tree
from longtail.runs.workspace import Workspace, differences
from longtail.training.checkpoints import Checkpoints
from longtail.training.interrupt import NEVER, Stop

PLAN_FILE = "plan.json"
SCALE_FILE = "scale"  # beside a model's own files: margins or logits, which its loss determined
OURS = rf"{re.escape(PLAN_FILE)}|(member-\d+/)?fold-\d+/.*"
"""Names of files that a fit writes."""
# Seconds between attempts to lock a fold that another process is training.
POLL_SECONDS = 0.5


@contextmanager
def open_work(
    folder: Path | None,
    fingerprint: dict[str, Any],
    resume: bool,
    note: Callable[[str], None] = lambda text: None,
) -> Iterator[Work]:
    """Create the folder, or check that it belongs to the same fit, and lock it.

    With `resume`, several processes may start at once, one for each fold. Without it, an earlier
    fit in the folder is removed; a folder with anything else in it raises.
    """
    if folder is None:
        yield Work()
        return
    if Workspace.is_one(folder) and not resume:
        # The workspace may hold something else, such as a cell of `reproduce`.
        Workspace.open(folder).remove_alone(OURS)
    if Workspace.is_one(folder):
        space = Workspace.open(folder)
        space.share()
    else:
        space = Workspace.begin(folder, {}, join=resume)
    try:
        if not (folder / PLAN_FILE).exists():
            space.write_record(PLAN_FILE, fingerprint)
        _check_same(space.read_record(PLAN_FILE), fingerprint, folder)
        yield Work(space, note)
    finally:
        space.close()


class Place(NamedTuple):
    """Where the files of a fit are, for processes of other machines too."""

    folder: Path
    within: str


@contextmanager
def rejoin_work(place: Place, note: Callable[[str], None]) -> Iterator[Work]:
    """The folder of a fit that another process has begun, and keeps locked until this one ends."""
    check_shared(place.folder)
    space = Workspace.open(place.folder)
    try:
        # Not granted to the worker of a search, which holds the lock alone.
        space.try_share()
        yield Work(space.within(place.within), note)
    finally:
        space.close()


def check_shared(folder: Path) -> None:
    """Raise, in a worker on another machine, if the folder of the work is not there."""
    if not Workspace.is_one(folder):
        raise DataError(
            f"{folder} is not on the machine {platform.node()}. --engine ray needs --out on a path "
            "that all machines of the cluster share, such as NFS."
        )


class Work:
    """Checkpoints and finished folds of a fit; without a folder nothing is saved."""

    def __init__(
        self, space: Workspace | None = None, note: Callable[[str], None] = lambda text: None
    ) -> None:
        self._space, self._note = space, note

    def member(self, number: int) -> Work:
        """The part of one member of a blend."""
        return Work(self._space and self._space.within(f"member-{number}"), self._note)

    @property
    def place(self) -> Place:
        """Where other processes may join this fit."""
        if self._space is None:
            raise InputError("--engine ray needs a folder that all machines share: give `folder`.")
        folder = self._space.folder.absolute()
        return Place(folder, self._space.path.relative_to(self._space.folder).as_posix())

    @property
    def kept(self) -> str:
        """A sentence on what is kept if the fit stops between two folds."""
        if self._space is None:
            return "Nothing was saved: the training has no folder."
        return "Finished folds are kept: resume with --resume."

    def fit_fold(
        self,
        fold: int,
        model: TextModel,
        fit: Callable[[Checkpoints | None], None],
        load: Callable[[Path], None],
        minutes: float = 0.0,
        stop: Stop = NEVER,
    ) -> None:
        """Load the model of a finished fold, or fit and save it.

        One process trains a fold; others wait for it. `minutes`: interval of checkpoints.
        """
        if self._space is None:
            fit(None)
            return
        space = self._space.within(f"fold-{fold}")
        path = space.file("lock")
        path.touch()
        with Lock(path) as lock:
            if not lock.acquire():
                self._note(f"fold {fold} is being trained by another process: waiting for it.")
                while not lock.acquire():
                    stop.check(self.kept)
                    time.sleep(POLL_SECONDS)
            checkpoints = Checkpoints(space, minutes)
            if (space.path / "model").is_dir():
                _load(load, model, space, fold)
            else:
                fit(checkpoints)
                _save(model, space, fold)
            # Also those of a process that was killed right after saving the model.
            checkpoints.clear()


def _load(load: Callable[[Path], None], model: TextModel, space: Workspace, fold: int) -> None:
    try:
        load(space.path / "model")
        scale = (space.path / "model" / SCALE_FILE).read_text("utf-8")
        model.scale = "margin" if scale == "margin" else "logit"
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise DataError(
            f"the model of fold {fold} in {space.path} cannot be read ({error}). Remove that "
            "folder to train the fold again."
        ) from error


def _save(model: TextModel, space: Workspace, fold: int) -> None:
    try:
        with staging(space.path) as private:
            model.save(private)
            (private / SCALE_FILE).write_text(model.scale, "utf-8")
            sync_tree(private)
            space.adopt(private, "model")
    except Exception as error:
        # Tokenizers raise a bare Exception on a full disk.
        raise DataError(
            f"could not save the model of fold {fold} to {space.path / 'model'}: {error}. Its "
            "last checkpoint is kept. Free some space, then resume with --resume."
        ) from error


def _check_same(before: dict[str, Any] | None, now: dict[str, Any], folder: Path) -> None:
    if before is None or not {"plans", "documents"} <= before.keys():
        raise DataError(
            f"{folder / PLAN_FILE} is damaged, so that the training cannot be resumed. Start over "
            "with --overwrite."
        )
    if before["documents"] != now["documents"]:
        raise InputError(
            f"{folder} was started with other documents or labels. Resume with the same DATA and "
            "reading options, or start over with --overwrite."
        )
    changed = differences(before, now)
    if changed:
        raise InputError(
            f"{folder} was started with other settings: {'; '.join(changed)}. Resume with the "
            "same settings, or start over with --overwrite."
        )
