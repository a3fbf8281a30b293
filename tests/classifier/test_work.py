"""The folder of a fit: interrupted folds resume, finished ones stay, other files are kept."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file

from longtail.classifier.crossfit import Run
from longtail.classifier.plan import Plan, fingerprint
from longtail.classifier.work import Work, open_work
from longtail.errors import DataError, InputError
from longtail.models import Encoder
from longtail.runs.workspace import Workspace
from longtail.training import Training
from longtail.training.interrupt import NEVER, Stop, StoppedError

from .cases import Remember, Remembering, fit_one, numbered, remembering

if TYPE_CHECKING:
    from conftest import Children

DATA = numbered([[1, 0], [0, 1], [1, 1], [1, 0], [0, 1], [1, 1]])
KILLED = -signal.SIGKILL
pytestmark = pytest.mark.usefixtures("remember")


def begin(
    folder: Path, plan: Plan, resume: bool = True, note: Callable[[str], None] = print
) -> AbstractContextManager[Work]:
    return open_work(folder, fingerprint([plan], DATA, None), resume, note)


def fit_in(folder: Path, plan: Plan) -> None:
    with begin(folder, plan) as work:
        fit_one(plan, DATA, run=Run(work))


def fit_nothing(
    work: Work, fit: Any = lambda checkpoints: None, model: Any = None, stop: Stop = NEVER
) -> None:
    work.fit_fold(0, model or Remembering(Remember()), fit, lambda folder: None, stop=stop)


@pytest.fixture(scope="module")
def undisturbed(children: Children, tmp_path_factory: pytest.TempPathFactory) -> Any:
    out: Path = tmp_path_factory.mktemp("undisturbed")
    assert children.run("fit", out=str(out), folder=str(out / "folds")) == 0
    return load_file(out / "weights.safetensors")


def assert_same(undisturbed: Any, out: Path) -> None:
    result = load_file(out / "weights.safetensors")
    assert result.keys() == undisturbed.keys()
    for name, tensor in result.items():
        torch.testing.assert_close(tensor, undisturbed[name], rtol=0, atol=0, equal_nan=True)


def moments(out: Path) -> list[tuple[int, int]]:
    lines = (out / "moments").read_text().splitlines()
    return [(int(line.split()[0]), int(line.split()[1])) for line in lines]


# A fold has 8 steps, each followed by a state (os.replace); then its model is adopted, and its
# state is removed.
MOMENTS: dict[str, dict[str, int]] = {
    "in the second fold": {"step": 11},
    "writing a state": {"writing": 12},
    "before the last state exists": {"replacing": 8},
    "writing the model": {"saving": 1},
    "before the model exists": {"adopting": 1},
    "before the state is removed": {"adopted": 1},
}


@pytest.mark.parametrize("when", MOMENTS.values(), ids=MOMENTS.keys())
def test_killed_in_a_fold(
    children: Children, undisturbed: Any, tmp_path: Path, when: dict[str, int]
) -> None:
    job: dict[str, Any] = {"out": str(tmp_path / "out"), "folder": str(tmp_path / "folds")}
    assert children.run("fit", when=when, **job) == KILLED
    before = moments(tmp_path / "out")
    model = tmp_path / "folds" / "fold-0" / "model"
    written = {path: path.stat().st_mtime_ns for path in model.rglob("*")}
    assert children.run("fit", **job) == 0
    assert_same(undisturbed, tmp_path / "out")
    after = moments(tmp_path / "out")[len(before) :]
    if written:
        # The finished fold is neither trained nor saved again.
        assert {fold for fold, _ in after} == {2, 3}
        assert all(path.stat().st_mtime_ns == time for path, time in written.items())
    # Of the other one, only the step that was not saved is repeated.
    assert len(set(before + after)) == 24 and len(before + after) <= 25
    files = sorted(path.name for path in (tmp_path / "folds" / "fold-0").iterdir())
    assert files == ["lock", "model"]


def test_stopped_between_folds(children: Children, undisturbed: Any, tmp_path: Path) -> None:
    """A signal when the first fold's model is moved into place."""
    job: dict[str, Any] = {"out": str(tmp_path / "out"), "folder": str(tmp_path / "folds")}
    assert children.run("fit", when={"adopted": 1}, signal="SIGTERM", **job) == 143
    error = (tmp_path / "out" / "error").read_text()
    assert error == "stopped by SIGTERM. Finished folds are kept: resume with --resume."
    assert moments(tmp_path / "out")[-1] == (1, 8)
    assert children.run("fit", **job) == 0
    assert_same(undisturbed, tmp_path / "out")


def test_parallel_processes(children: Children, undisturbed: Any, tmp_path: Path) -> None:
    """One process per fold, in one folder at once; a fourth waits and collects the folds."""
    folder = str(tmp_path / "folds")
    each = [
        children.start("fit", out=str(tmp_path / str(fold)), folder=folder, only=fold, slowly=0.02)
        for fold in range(3)
    ]
    while not (tmp_path / "folds" / "fold-0" / "state.safetensors").exists():
        time.sleep(0.01)
    collecting = children.start("fit", out=str(tmp_path / "all"), folder=folder)
    assert [children.wait(process) for process in (*each, collecting)] == [0, 0, 0, 0]
    assert_same(undisturbed, tmp_path / "all")
    for fold in range(3):
        assert {k for k, _ in moments(tmp_path / str(fold))} == {fold + 1}
    assert not (tmp_path / "all" / "moments").exists()
    note = (tmp_path / "all" / "note").read_text()
    assert "is being trained by another process: waiting for it" in note


def test_waiting_can_be_stopped(tmp_path: Path) -> None:
    plan, stop = remembering(2), Stop()

    def note(text: str) -> None:
        stop.signal = signal.SIGINT

    with (
        begin(tmp_path, plan) as first,
        begin(tmp_path, plan, note=note) as second,
        pytest.raises(StoppedError, match="Finished folds are kept"),
    ):
        fit_nothing(first, lambda checkpoints: fit_nothing(second, stop=stop))


def refuse(
    folder: Path, message: str, plan: Plan | None = None, data: Any = DATA, resume: bool = True
) -> None:
    prints = fingerprint([plan or remembering(2)], data, None)
    with pytest.raises((InputError, DataError), match=message), open_work(folder, prints, resume):
        pass


def test_a_stop_without_a_folder() -> None:
    stop = Stop()
    stop.signal = signal.SIGTERM
    with pytest.raises(StoppedError, match="Nothing was saved: the training has no folder"):
        fit_one(remembering(2), DATA, run=Run(stop=stop))


def test_other_documents_are_refused(tmp_path: Path) -> None:
    for _ in range(2):
        with begin(tmp_path, remembering(2)):
            pass
    message = r"started with other documents or labels.*--overwrite"
    for other in (
        numbered([[1, 0], [0, 1], [1, 1], [1, 0], [0, 1], [0, 1]]),
        DATA.select([1, 0, 2, 3, 4, 5]),
        DATA.select([0, 1, 2]),
        DATA.onto(["label-1", "label-0"])[0],
    ):
        refuse(tmp_path, message, data=other)
    parts = fingerprint([remembering(2)], DATA[:4], DATA[4:])
    with pytest.raises(InputError, match=message), open_work(tmp_path, parts, True):
        pass


def test_other_settings_are_named(tiny_bert: Path, tmp_path: Path) -> None:
    def plan(max_length: int = 512, training: Any = None, **changes: Any) -> Plan:
        used = Training(**{"learning_rate": 1e-4, **(training or {})})
        return Plan(Encoder(str(tiny_bert), max_length=max_length), training=used, **changes)

    with begin(tmp_path, plan()):
        pass
    for other, changes in (
        (plan(training={"learning_rate": 2e-4}), "learning_rate was 0.0001, now 0.0002"),
        (plan(loss="bce", folds=2), "folds was 1, now 2; .*loss was None, now 'bce'"),
        (plan(max_length=9), "max_length was 512, now 9"),
        (plan(loss_settings={"gamma": 1.5}), "gamma was None, now 1.5"),
        (plan(random_state=4), "random_state was 0, now 4"),
    ):
        refuse(tmp_path, f"was started with other settings: .*{changes}.*--overwrite", other)
    # Where it is computed and how often it is saved may change.
    with begin(tmp_path, plan(training={"device": "cpu", "checkpoint_minutes": 1.0})):
        pass


def test_starting_over(tmp_path: Path) -> None:
    folder, plan = tmp_path / "folds", remembering(2)
    fit_in(folder, plan)
    assert (folder / "fold-1" / "model").is_dir()
    with begin(folder, plan):
        refuse(folder, "another process is at work", remembering(3), resume=False)
    with begin(folder, remembering(3), resume=False):
        assert sorted(path.name for path in folder.iterdir()) == [".longtail", "plan.json"]


@pytest.mark.parametrize("resume", [True, False])
def test_other_files_are_not_removed(resume: bool, tmp_path: Path) -> None:
    file = tmp_path / "fold-0" / "state.safetensors"
    file.parent.mkdir()
    for path in (file, tmp_path / "plan.json"):
        path.write_text("years of work")
    for folder in (tmp_path, tmp_path / "plan.json", tmp_path / "plan.json" / "below"):
        refuse(folder, "Choose an empty folder", resume=resume)
    assert file.read_text() == (tmp_path / "plan.json").read_text() == "years of work"


def test_a_folder_with_other_files_is_not_started_over(tmp_path: Path) -> None:
    """Notes in the folder of a training, or a finished cell of a reproduction."""
    training, cell = tmp_path / "training", tmp_path / "cell"
    fit_in(training, remembering(2))
    (training / "fold-0" / "notes.txt").write_text("years of work")
    Workspace.begin(cell, {"finished.json": "result"}).close()
    before = sorted(tmp_path.rglob("*"))
    for folder, name in ((training, r"fold-0/notes\.txt"), (cell, r"finished\.json")):
        message = rf"also holds other files, such as {name}\."
        refuse(folder, message, remembering(3), resume=False)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("content", ["", "{", "[]", '{"plan": "{}"}'])
def test_a_damaged_plan(content: str, tmp_path: Path) -> None:
    with begin(tmp_path, remembering(2)):
        pass
    (tmp_path / "plan.json").write_text(content)
    refuse(tmp_path, r"plan\.json is damaged.*--overwrite")


def test_a_damaged_model(tmp_path: Path) -> None:
    fit_in(tmp_path, remembering(2))
    (tmp_path / "fold-1" / "model" / "model.json").write_text("{")
    with pytest.raises(DataError, match=r"the model of fold 1 in .*Remove that folder to train"):
        fit_in(tmp_path, remembering(2))


def test_a_model_that_cannot_be_saved(tmp_path: Path) -> None:
    class Unsaved(Remembering):
        def save(self, folder: Path) -> None:
            (folder / "half").write_text("half")
            raise OSError(28, "No space left on device")

    with begin(tmp_path, remembering()) as work:
        with pytest.raises(DataError, match=r"the model of fold 0 .*No space left.*--resume"):
            fit_nothing(work, model=Unsaved(Remember()))
        # No half of a model.
        assert [path.name for path in (tmp_path / "fold-0").iterdir()] == ["lock"]
