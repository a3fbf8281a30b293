"""The folder of a fit: killed folds go on, finished ones stay, other fits and files are left be."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from longtail.fitting import Plan, Work, fingerprint, fit
from safetensors.torch import load_file

from longtail.errors import DataError, InputError
from longtail.runs import Workspace
from longtail.settings import TrainingConfig
from longtail.training import Stop, StoppedError

from .cases import Remembering, RememberingPlan, numbered

if TYPE_CHECKING:
    from conftest import Children

DATA = numbered([[1, 0], [0, 1], [1, 1], [1, 0], [0, 1], [1, 1]])
KILLED = -signal.SIGKILL


def begun(folder: Path, plan: Plan, data: Any = DATA, resume: bool = True) -> Work:
    work = Work(folder)
    work.begin(fingerprint([plan], data, None), resume)
    return work


@pytest.fixture(scope="module")
def undisturbed(children: Children, tmp_path_factory: pytest.TempPathFactory) -> Any:
    out: Path = tmp_path_factory.mktemp("undisturbed")
    assert children.run("fit", out=str(out), folder=str(out / "folds")) == 0
    return load_file(out / "weights.safetensors")


def assert_same(undisturbed: Any, out: Path) -> None:
    found = load_file(out / "weights.safetensors")
    assert found.keys() == undisturbed.keys()
    assert all(torch.equal(found[name], undisturbed[name]) for name in found if name != "scores")
    torch.testing.assert_close(
        found["scores"], undisturbed["scores"], rtol=0, atol=0, equal_nan=True
    )


def moments(out: Path) -> list[tuple[int, int]]:
    lines = (out / "moments").read_text().splitlines()
    return [(int(line.split()[0]), int(line.split()[1])) for line in lines]


# A fold has 8 steps, with a state saved after each by os.replace; then its model takes its place by
# os.rename, and its state is removed.
MOMENTS: dict[str, dict[str, int]] = {
    "in the second fold": {"step": 11},
    "writing a state": {"writing": 12},
    "before the last state is there": {"replacing": 8},
    "writing the model": {"saving": 1},
    "before the model is there": {"adopting": 1},
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
        # The finished fold is neither trained nor written again.
        assert {fold for fold, _ in after} == {2, 3}
        assert all(path.stat().st_mtime_ns == time for path, time in written.items())
    # And of the other, no more than the step that was not saved is done again.
    assert len(set(before + after)) == 24 and len(before + after) <= 25
    left = sorted(path.name for path in (tmp_path / "folds" / "fold-0").iterdir())
    assert left == ["lock", "model"]


def test_stopped_between_folds(children: Children, undisturbed: Any, tmp_path: Path) -> None:
    """A signal when the first fold's model is moved into place."""
    job: dict[str, Any] = {"out": str(tmp_path / "out"), "folder": str(tmp_path / "folds")}
    assert children.run("fit", when={"adopted": 1}, signal="SIGTERM", **job) == 143
    said = (tmp_path / "out" / "error").read_text()
    assert said == "stopped by SIGTERM. Finished folds are kept: go on with --resume."
    assert moments(tmp_path / "out")[-1] == (1, 8)
    assert children.run("fit", **job) == 0
    assert_same(undisturbed, tmp_path / "out")


def test_processes_side_by_side(children: Children, undisturbed: Any, tmp_path: Path) -> None:
    """One for each fold, begun at once in the same folder; a fourth waits for them and gathers."""
    folder = str(tmp_path / "folds")
    each = [
        children.start("fit", out=str(tmp_path / str(fold)), folder=folder, only=fold, slowly=0.02)
        for fold in range(3)
    ]
    while not (tmp_path / "folds" / "fold-0" / "state.safetensors").exists():
        time.sleep(0.01)
    gathering = children.start("fit", out=str(tmp_path / "all"), folder=folder)
    assert [children.wait(process) for process in (*each, gathering)] == [0, 0, 0, 0]
    assert_same(undisturbed, tmp_path / "all")
    for fold in range(3):
        assert {k for k, _ in moments(tmp_path / str(fold))} == {fold + 1}
    assert not (tmp_path / "all" / "moments").exists()
    said = (tmp_path / "all" / "note").read_text()
    assert "is being trained by another process: waiting for it" in said


def test_waiting_can_be_stopped(tmp_path: Path) -> None:
    plan = RememberingPlan(folds=2)
    first, second = begun(tmp_path, plan), begun(tmp_path, plan)
    stop = Stop()
    second._note = lambda text: setattr(stop, "signal", signal.SIGINT)
    with (
        first.claimed(0),
        pytest.raises(StoppedError, match="Finished folds are kept"),
        second.claimed(0, stop),
    ):
        pass


def test_a_stop_without_a_folder_does_not_promise_anything() -> None:
    stop = Stop()
    stop.signal = signal.SIGTERM
    with pytest.raises(StoppedError, match="Nothing was saved: the training has no folder"):
        fit(RememberingPlan(folds=2), DATA, stop=stop)


def test_other_documents_are_refused(tmp_path: Path) -> None:
    plan = RememberingPlan(folds=2)
    begun(tmp_path, plan)
    begun(tmp_path, plan)
    for other in (
        numbered([[1, 0], [0, 1], [1, 1], [1, 0], [0, 1], [0, 1]]),
        DATA.select([1, 0, 2, 3, 4, 5]),
        DATA.select([0, 1, 2]),
        DATA.onto(["label-1", "label-0"])[0],
    ):
        with pytest.raises(InputError, match=r"begun with other documents or labels.*--overwrite"):
            begun(tmp_path, plan, other)
    held = Work(tmp_path)
    with pytest.raises(InputError, match="other documents"):
        held.begin(fingerprint([plan], DATA.select([0, 1, 2, 3]), DATA.select([4, 5])), resume=True)


def test_other_settings_are_named_by_their_flags(tiny_bert: Path, tmp_path: Path) -> None:
    def plan(**changes: Any) -> Plan:
        training = {"learning_rate": 1e-4, **changes.pop("training", {})}
        encoder = {"encoder": str(tiny_bert), **changes.pop("model_settings", {})}
        return Plan("encoder", encoder, training=TrainingConfig(**training), **changes)

    begun(tmp_path, plan())
    for other, flags in (
        (plan(training={"learning_rate": 2e-4}), ["--learning-rate was 0.0001 and is now 0.0002"]),
        (plan(loss="bce", folds=2), ["--folds was 1 and is now 2", "--loss was 'db'"]),
        (plan(model_settings={"max_length": 9}), ["--max-length was 512 and is now 9"]),
        (plan(loss_settings={"gamma": 1.5}), ["--gamma was None and is now 1.5"]),
        (plan(training={"seed": 4}), ["--seed was 0 and is now 4"]),
    ):
        with pytest.raises(InputError, match="was begun with other settings") as caught:
            begun(tmp_path, other)
        assert all(flag in str(caught.value) for flag in flags), caught.value
        assert "Resume with the same, or start anew with --overwrite" in str(caught.value)
    # Where it is computed and how often it is saved may change.
    begun(tmp_path, plan(training={"device": "cpu", "checkpoint_minutes": 1.0}))


def test_begun_anew(tmp_path: Path) -> None:
    folder = tmp_path / "folds"
    plan = RememberingPlan(folds=2)
    work = begun(folder, plan)
    fit(plan, DATA, work=work)
    assert (folder / "fold-1" / "model").is_dir()
    with pytest.raises(DataError, match="another process is at work"):
        begun(folder, RememberingPlan(folds=3), resume=False)
    work.end()
    begun(folder, RememberingPlan(folds=3), resume=False)
    assert sorted(path.name for path in folder.iterdir()) == [".longtail", "plan.json"]


def test_files_of_others_are_not_removed(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("years of work")
    (tmp_path / "fold-0").mkdir()
    (tmp_path / "fold-0" / "state.safetensors").write_text("years of work")
    for resume in (True, False):
        with pytest.raises(DataError, match=r"not empty\. Choose an empty folder"):
            begun(tmp_path, RememberingPlan(), resume=resume)
    assert (tmp_path / "plan.json").read_text() == "years of work"
    assert (tmp_path / "fold-0" / "state.safetensors").read_text() == "years of work"
    with pytest.raises(DataError, match=r"Choose an empty folder"):
        begun(tmp_path / "plan.json", RememberingPlan(), resume=False)
    with pytest.raises(DataError, match=r"cannot begin in .*Choose an empty folder"):
        begun(tmp_path / "plan.json" / "below", RememberingPlan())


def test_a_training_with_notes_in_it_is_not_removed(tmp_path: Path) -> None:
    folder, plan = tmp_path / "folds", RememberingPlan(folds=2)
    work = begun(folder, plan)
    fit(plan, DATA, work=work)
    work.end()
    (folder / "fold-0" / "notes.txt").write_text("years of work")
    before = sorted(folder.rglob("*"))
    with pytest.raises(DataError, match=r"something else than a training \(fold-0/notes\.txt\)"):
        begun(folder, RememberingPlan(folds=3), resume=False)
    assert sorted(folder.rglob("*")) == before


def test_a_damaged_plan_is_named(tmp_path: Path) -> None:
    begun(tmp_path, RememberingPlan())
    for content in ("", "{", "[]", '{"plan": "{}"}'):
        (tmp_path / "plan.json").write_text(content)
        with pytest.raises(DataError, match=r"plan\.json cannot be read .*--overwrite"):
            begun(tmp_path, RememberingPlan())


def test_a_damaged_model_is_named(tmp_path: Path) -> None:
    plan = RememberingPlan(folds=2)
    work = begun(tmp_path, plan)
    fit(plan, DATA, work=work)
    (tmp_path / "fold-1" / "model" / "model.json").write_text("{")
    with pytest.raises(DataError, match=r"the model of fold 1 in .*Remove that folder to train it"):
        fit(plan, DATA, work=work)


def test_a_model_that_cannot_be_saved(tmp_path: Path) -> None:
    class Unsaved(Remembering):
        def save(self, folder: Path) -> None:
            (folder / "half").write_text("half")
            raise OSError(28, "No space left on device")

    work = begun(tmp_path, RememberingPlan())
    with pytest.raises(DataError, match=r"the model of fold 0 .*No space left.*--resume"):
        work.finish(0, Unsaved())
    assert not any((tmp_path / "fold-0").iterdir())  # no half of a model


def test_processes_of_accelerate_do_not_share_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would wait for each other's locks for ever."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match=r"one process for each fold \(--fold 0"):
        begun(tmp_path, RememberingPlan())


def test_without_a_folder_nothing_is_kept() -> None:
    work = Work(None)
    work.begin({}, resume=False)
    assert work.checkpoints(0, 1.0) is None
    with work.claimed(0):
        assert not work.finished(0, Remembering(), 2)
        work.finish(0, Remembering())


def test_the_folder_of_something_else_is_not_removed(tmp_path: Path) -> None:
    """Made by longtail, but not by a fit: a finished cell of a reproduction, say."""
    space = Workspace.begin(tmp_path / "cell", {"finished.json": "result"})
    space.close()
    with pytest.raises(DataError, match=r"something else than a training \(finished\.json\)"):
        begun(tmp_path / "cell", RememberingPlan(), resume=False)
    assert (tmp_path / "cell" / "finished.json").read_text() == "result"
