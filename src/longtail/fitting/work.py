"""The folder of a fit under way: what is finished stays finished, whoever is killed when.

FOLDER/plan.json       what is being fitted, on which documents
FOLDER/fold-0/...      its states while it trains
FOLDER/fold-0/model    its model, once it is done
FOLDER/member-1/...    the same for each member, where several are blended
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from longtail.errors import DataError, InputError
from longtail.models import TextModel
from longtail.runs import Lock, Workspace, staging, sync_tree, write_text
from longtail.training.checkpoints import Checkpoints
from longtail.training.devices import n_processes
from longtail.training.interrupt import NEVER, Stop
from longtail.training.steps import Note

PLAN_FILE = "plan.json"
# What a fit writes into its folder.
OURS = re.compile(rf"{re.escape(PLAN_FILE)}|(member-\d+/)?fold-\d+/.*")
# Seconds between two looks at a fold that another process has, and at whether to stop.
LOOK_AGAIN = 0.5


class Work:
    """Where a fit keeps its states and finished folds; without a folder it keeps nothing."""

    def __init__(self, folder: Path | None, note: Note = lambda text: None) -> None:
        self.folder, self._note = folder, note
        self._space: Workspace | None = None

    def member(self, number: int) -> Work:
        """The part of one of several members."""
        name = f"member-{number}"
        part = Work(None if self.folder is None else self.folder / name, self._note)
        part._space = None if self._space is None else self._space.within(name)
        return part

    @property
    def kept(self) -> str:
        """What is left when the fit stops between two folds."""
        if self.folder is None:
            return "Nothing was saved: the training has no folder."
        return "Finished folds are kept: go on with --resume."

    @contextmanager
    def begun(self, fingerprint: dict[str, str], resume: bool) -> Iterator[None]:
        """Hold the folder while a fit is under way; see `begin`."""
        self.begin(fingerprint, resume)
        try:
            yield
        finally:
            self.end()

    def begin(self, fingerprint: dict[str, str], resume: bool) -> None:
        """Make the folder, or check that it belongs to the same fit.

        Several processes, one for each fold, may begin at once with `resume`. Without it, an
        earlier fit in the folder is removed; a folder with anything else in it is refused.
        """
        if self.folder is None:
            return
        if n_processes() > 1:
            raise InputError(
                "a training with a folder is one process: the processes of accelerate launch would "
                "write over each other. On several GPUs train folds side by side, one process for "
                "each fold (--fold 0 --device cuda:0, --fold 1 --device cuda:1, ...)."
            )
        self.end()
        if not resume and Workspace.is_one(self.folder):
            self._remove_earlier(self.folder)
        text = json.dumps(fingerprint, indent=2)
        if Workspace.is_one(self.folder):
            self._space = Workspace.open(self.folder)
            self._space.share()
        else:
            self._space = Workspace.begin(self.folder, {PLAN_FILE: text}, join=resume)
        place = self.folder / PLAN_FILE
        if not place.exists():
            _write(self._space.file(PLAN_FILE), text)
        _check_same(_read_plan(place), fingerprint, self.folder)

    def end(self) -> None:
        """Let go of the folder."""
        if self._space is not None:
            self._space.close()

    def _remove_earlier(self, folder: Path) -> None:
        earlier = Workspace.open(folder)
        earlier.own()
        # A list of longtail's, but of something else: a cell of `reproduce`, say.
        others = [name for name in earlier.names() if not OURS.fullmatch(name)]
        others += earlier.others()
        if others:
            raise DataError(
                f"{folder} holds something else than a training ({others[0]}). Move it, or choose "
                "another folder."
            )
        earlier.remove()

    def checkpoints(self, fold: int, minutes: float) -> Checkpoints | None:
        """The saved states of a fold."""
        return None if self._space is None else Checkpoints(self._fold(fold), minutes)

    @contextmanager
    def claimed(self, fold: int, stop: Stop = NEVER) -> Iterator[None]:
        """One process trains a fold; another that wants it waits until it is done."""
        assert self.folder is None or self._space is not None, "begin comes first"
        if self._space is None:
            yield
            return
        place = self._fold(fold).file("lock")
        place.touch()
        with Lock(place) as lock:
            if not lock.acquire():
                self._note(f"fold {fold} is being trained by another process: waiting for it.")
                while not lock.acquire():
                    stop.check(self.kept)
                    time.sleep(LOOK_AGAIN)
            yield

    def finish(self, fold: int, model: TextModel) -> None:
        """Keep the model of a fold; its states are no longer needed."""
        if self._space is None:
            return
        space = self._fold(fold)
        try:
            space.path.mkdir(parents=True, exist_ok=True)
            with staging(space.path) as private:
                model.save(private)
                sync_tree(private)
                space.adopt(private, "model")
        except Exception as error:
            # Tokenizers report a full disk as a bare Exception.
            raise DataError(
                f"could not save the model of fold {fold} to {space.path / 'model'}: {error}. Its "
                "last saved state is still there. Free some space, then go on with --resume."
            ) from error
        Checkpoints(space).clear()

    def finished(self, fold: int, model: TextModel, n_labels: int) -> bool:
        """Whether a fold was finished before; then its model is loaded."""
        if self._space is None or not (self._fold(fold).path / "model").is_dir():
            return False
        space = self._fold(fold)
        try:
            model.load(space.path / "model", n_labels)
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            raise DataError(
                f"the model of fold {fold} in {space.path} cannot be read ({error}). Remove that "
                "folder to train it again."
            ) from error
        # Left there by a process that was killed right after it had saved the model.
        Checkpoints(space).clear()
        return True

    def _fold(self, fold: int) -> Workspace:
        assert self._space is not None
        return self._space.within(f"fold-{fold}")


def _write(place: Path, text: str) -> None:
    try:
        write_text(place, text)
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
