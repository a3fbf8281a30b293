"""The folder of a fit under way: what is finished stays finished, whoever is killed when.

FOLDER/plan.json       what is being fitted, on which documents
FOLDER/fold-0/...      its states while it trains
FOLDER/fold-0/model    its model, once it is done
FOLDER/member-1/...    the same for each member, where several are blended
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from longtail.durable import make_folder, sync_folder, sync_tree, whole_file
from longtail.errors import DataError, InputError
from longtail.models import TextModel
from longtail.training.checkpoints import Checkpoints
from longtail.training.devices import n_processes
from longtail.training.interrupt import NEVER, Stop
from longtail.training.steps import Note

PLAN_FILE = "plan.json"
# Seconds between two looks at a fold that another process has, and at whether to stop.
LOOK_AGAIN = 0.5


class Work:
    """Where a fit keeps its states and finished folds; without a folder it keeps nothing."""

    def __init__(self, folder: Path | None, note: Note = lambda text: None) -> None:
        self.folder, self._note = folder, note

    def member(self, number: int) -> Work:
        """The part of one of several members."""
        place = None if self.folder is None else self.folder / f"member-{number}"
        return Work(place, self._note)

    @property
    def kept(self) -> str:
        """What is left when the fit stops between two folds."""
        if self.folder is None:
            return "Nothing was saved: the training has no folder."
        return "Finished folds are kept: go on with --resume."

    def begin(self, fingerprint: dict[str, str], resume: bool) -> None:
        """Make the folder, or check that it belongs to the same fit.

        Several processes, one for each fold, may begin at once with `resume`.
        """
        if self.folder is None:
            return
        if n_processes() > 1:
            raise InputError(
                "a training with a folder is one process: the processes of accelerate launch would "
                "write over each other. On several GPUs train folds side by side, one process for "
                "each fold (--fold 0 --device cuda:0, --fold 1 --device cuda:1, ...)."
            )
        if not resume:
            self._clear()
        make_folder(self.folder)
        place = self.folder / PLAN_FILE
        if not place.exists():
            _write_json(place, fingerprint)
        _check_same(_read_plan(place), fingerprint, self.folder)

    def checkpoints(self, fold: int, minutes: float) -> Checkpoints | None:
        """The saved states of a fold."""
        return None if self.folder is None else Checkpoints(self._fold(fold), minutes)

    @contextmanager
    def claimed(self, fold: int, stop: Stop = NEVER) -> Iterator[None]:
        """One process trains a fold; another that wants it waits until it is done."""
        if self.folder is None:
            yield
            return
        from filelock import FileLock, Timeout

        make_folder(self._fold(fold))
        lock = FileLock(self._fold(fold) / "lock")
        told = False
        while not lock.is_locked:
            try:
                lock.acquire(timeout=LOOK_AGAIN if told else 0)
            except Timeout:
                if not told:
                    self._note(f"fold {fold} is being trained by another process: waiting for it.")
                told = True
                stop.check(self.kept)
        try:
            yield
        finally:
            lock.release()

    def finish(self, fold: int, model: TextModel) -> None:
        """Keep the model of a fold; its states are no longer needed."""
        if self.folder is None:
            return
        place, staged = self._fold(fold) / "model", self._fold(fold) / "model.tmp"
        try:
            shutil.rmtree(staged, ignore_errors=True)
            staged.mkdir(parents=True)
            model.save(staged)
            sync_tree(staged)
            os.replace(staged, place)
            sync_folder(place.parent)
        except Exception as error:
            # Tokenizers tell of a full disk by an exception of no kind at all.
            shutil.rmtree(staged, ignore_errors=True)
            raise DataError(
                f"could not save the model of fold {fold} to {place}: {error}. Its last saved "
                "state is still there. Free some space, then go on with --resume."
            ) from error
        Checkpoints(self._fold(fold)).clear()

    def finished(self, fold: int, model: TextModel, n_labels: int) -> bool:
        """Whether a fold was finished before; then its model is loaded."""
        if self.folder is None or not (self._fold(fold) / "model").is_dir():
            return False
        try:
            model.load(self._fold(fold) / "model", n_labels)
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            raise DataError(
                f"the model of fold {fold} in {self._fold(fold)} cannot be read ({error}). Remove "
                "that folder to train it again."
            ) from error
        # Left there by a process that was killed right after it had saved the model.
        Checkpoints(self._fold(fold)).clear()
        return True

    def _fold(self, fold: int) -> Path:
        assert self.folder is not None
        return self.folder / f"fold-{fold}"

    def _clear(self) -> None:
        """Remove an earlier fit, and nothing that is not one."""
        assert self.folder is not None
        try:
            names = [path.name for path in self.folder.iterdir()] if self.folder.exists() else []
            others = [name for name in names if not name.startswith(("plan.", "fold-", "member-"))]
            if others:
                raise DataError(
                    f"{self.folder} holds something else than a training ({min(others)}). Choose "
                    "another folder."
                )
            if self.folder.exists():
                shutil.rmtree(self.folder)
        except OSError as error:
            raise DataError(
                f"cannot begin a training in {self.folder}: {error}. Choose another folder."
            ) from error


def _write_json(place: Path, content: dict[str, str]) -> None:
    try:
        with whole_file(place) as temporary:
            temporary.write_text(json.dumps(content, indent=2), "utf-8")
    except OSError as error:
        raise DataError(f"could not write {place}: {error}. Choose another folder.") from error


def _read_plan(place: Path) -> dict[str, str]:
    try:
        found = json.loads(place.read_text("utf-8"))
        return {"documents": found["documents"], "plan": found["plan"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{place} cannot be read ({error}), so that nobody knows what was begun there. Start "
            "anew with --overwrite."
        ) from error


def _check_same(before: dict[str, str], now: dict[str, str], folder: Path) -> None:
    if before["documents"] != now["documents"]:
        raise InputError(
            f"{folder} was begun with other documents or labels. Resume with the same DATA and the "
            "same reading options, or start anew with --overwrite."
        )
    if before["plan"] != now["plan"]:
        changed = _differences(json.loads(before["plan"]), json.loads(now["plan"]))
        raise InputError(
            f"{folder} was begun with other settings: {'; '.join(changed)}. Resume with the same, "
            "or start anew with --overwrite."
        )


def _differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    found = []
    for key in sorted({*before, *now}):
        old, new = before.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += _differences(old, new)
        elif old != new:
            found.append(f"--{key.replace('_', '-')} was {old!r} and is now {new!r}")
    return found
