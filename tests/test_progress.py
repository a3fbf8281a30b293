"""Progress: its text, and how it is shown."""

from __future__ import annotations

from typing import Any

import joblib
import pytest

from longtail.errors import InputError
from longtail.progress import Progress, ignore, show_progress, watching


@pytest.mark.parametrize(
    ("progress", "share", "name"),
    [
        (Progress("reading a.csv", 25, 100, "bytes"), 0.25, "reading a.csv"),
        (Progress("drift"), 0.0, "drift"),
        (Progress("training", 5, 10, epoch=2, epochs=4), 0.5, "epoch 2/4"),
        (Progress("solving", 5, 10, fold=3, folds=4), 0.625, "fold 3/4 solving"),
        (Progress("training", 9, 8, epoch=1, epochs=1, fold=2, folds=2), 1.0, "fold 2/2 epoch 1/1"),
    ],
)
def test_where_it_stands(progress: Progress, share: float, name: str) -> None:
    assert progress.share == share and str(progress) == name


def test_a_log_has_the_first_and_last_line_of_a_training(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with show_progress() as show:
        show(Progress("reading a.csv", 1, 1, "bytes"))
        for step in (1, 2, 3):
            show(Progress("solving", step, 3, "labels", loss=0.5, best=0.25))
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"solving, {k} of 3 labels, loss 0.5, best 25.00" for k in (1, 3)]
    with show_progress(every_seconds=0) as show:
        show(Progress("reading a.csv", 2_500_000, 5_000_000, "bytes"))
        show(Progress("drift"))
        show(Progress("comparing bag", 1, unit="settings"))
        show(Progress("predicting -", 1500, documents_per_second=250.2))
        show(Progress("predicting a.csv", 10, 20, "bytes", documents_per_second=1250.2))
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "reading a.csv, 2.5 MB of 5.0 MB",
        "drift",
        "comparing bag, setting 1",
        "predicting -, 1,500 documents, 250 documents/s",
        "predicting a.csv, 10 bytes of 20 bytes, 1,250 documents/s",
    ]


def test_a_terminal_has_a_bar_that_names_the_stage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with show_progress() as show:
        show(Progress("reading a.csv", 1, 1, "bytes"))
        for loss in ("db", "bce", "db"):
            show(
                Progress(f"training with {loss}", 1, 4, "steps", epoch=1, epochs=2, fold=2, folds=2)
            )
    shown = capsys.readouterr().err
    assert "training with db, fold 2/2 epoch 1/2" in shown and "1 of 4 steps" in shown


@pytest.mark.parametrize("watch", [None, False, "auto", True])
def test_without_a_terminal_nothing_is_shown(
    watch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with watching(watch) as show:
        show(Progress("solving", 1, 1, "labels", loss=0.5))
    assert capsys.readouterr().err == ""


def test_who_watches(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    moments: list[Progress] = []
    with watching(moments.append) as show:
        show(Progress("solving"))
    assert moments == [Progress("solving")]
    with pytest.raises(InputError, match="must be a function, 'auto' or None, got 3"):
        watching(3).__enter__()  # type: ignore[arg-type]
    monkeypatch.setenv("FORCE_COLOR", "1")
    with watching("auto") as show:
        show(Progress("solving", 1, 4, "labels"))
    assert "1 of 4 labels" in capsys.readouterr().err


def test_workers_show_no_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    (shown,) = joblib.Parallel(n_jobs=2)(joblib.delayed(_is_watched)() for _ in range(1))
    assert not shown


def _is_watched() -> bool:
    with watching("auto") as show:
        return show is not ignore
