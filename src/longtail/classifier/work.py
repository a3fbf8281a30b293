"""The folder of a fit in progress: finished folds and checkpoints survive a kill at any time.

FOLDER/plan.json       the plans and the documents' fingerprint
FOLDER/fold-0/...      checkpoints of a fold in progress
FOLDER/fold-0/model    the model of a finished fold
FOLDER/member-1/...    the same for each model of a blend
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from longtail.errors import DataError, InputError
from longtail.models.base import TextModel
from longtail.runs.files import Lock, staging, sync_tree
from longtail.runs.workspace import Workspace, differences
from longtail.training.checkpoints import Checkpoints
from longtail.training.devices import n_processes
from longtail.training.interrupt import NEVER, Stop

PLAN_FILE = "plan.json"
OURS = re.compile(rf"{re.escape(PLAN_FILE)}|(member-\d+/)?fold-\d+/.*")
"""Names of files that a fit writes."""
# Seconds between two attempts to claim a fold of another process.
POLL_SECONDS = 0.5


@contextmanager
def open_work(
    folder: Path | None,
    fingerprint: dict[str, Any],
    resume: bool,
    note: Callable[[str], None] = lambda text: None,
) -> Iterator[Work]:
    """Make the folder, or check that it belongs to the same fit, and hold it.

    Several processes, one for each fold, may begin at once with `resume`. Without it, an earlier
    fit in the folder is removed; a folder with anything else in it is refused.
    """
    if folder is None:
        yield Work()
        return
    if n_processes() > 1:
        raise InputError(
            "a training with a folder is one process: several would overwrite each other's "
            "files. On several GPUs train one fold in each process (--fold 0 --device cuda:0, "
            "--fold 1 --device cuda:1, ...)."
        )
    if Workspace.is_one(folder) and not resume:
        _remove_earlier(folder)
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


class Work:
    """Checkpoints and finished folds of a fit; without a folder nothing is kept."""

    def __init__(
        self, space: Workspace | None = None, note: Callable[[str], None] = lambda text: None
    ) -> None:
        self._space, self._note = space, note

    def member(self, number: int) -> Work:
        """The part of one model of a blend."""
        return Work(self._space and self._space.within(f"member-{number}"), self._note)

    @property
    def kept(self) -> str:
        """What remains if the fit stops between two folds."""
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
        """Load the model of a finished fold, or fit it and keep it.

        One process trains a fold; others wait until it is finished. `minutes`: between checkpoints.
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
            if (space.path / "model").is_dir():
                _load(load, space, fold)
            else:
                fit(Checkpoints(space, minutes))
                _save(model, space, fold)
            # Or those of a process that was killed right after it saved the model.
            Checkpoints(space).clear()


def _load(load: Callable[[Path], None], space: Workspace, fold: int) -> None:
    try:
        load(space.path / "model")
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise DataError(
            f"the model of fold {fold} in {space.path} cannot be read ({error}). Remove that "
            "folder to train it again."
        ) from error


def _save(model: TextModel, space: Workspace, fold: int) -> None:
    try:
        with staging(space.path) as private:
            model.save(private)
            sync_tree(private)
            space.adopt(private, "model")
    except Exception as error:
        # Tokenizers report a full disk as a bare Exception.
        raise DataError(
            f"could not save the model of fold {fold} to {space.path / 'model'}: {error}. Its "
            "last checkpoint is still there. Free some space, then resume with --resume."
        ) from error


def _remove_earlier(folder: Path) -> None:
    earlier = Workspace.open(folder)
    earlier.lock()
    # Longtail's, but something else: a cell of `reproduce`, for example.
    others = [name for name in earlier.names() if not OURS.fullmatch(name)] + earlier.others()
    if others:
        raise DataError(
            f"{folder} holds something other than a training ({others[0]}). Move it, or choose "
            "another folder."
        )
    earlier.remove()


def _check_same(before: dict[str, Any] | None, now: dict[str, Any], folder: Path) -> None:
    if before is None or not {"plans", "documents"} <= before.keys():
        raise DataError(
            f"{folder / PLAN_FILE} is damaged, so the training cannot be resumed. Start over with "
            "--overwrite."
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
            "same, or start over with --overwrite."
        )
