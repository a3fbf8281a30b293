"""A new kind of model, one file (centroid.py) and one row of MODELS, works everywhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from longtail import Bag, LongTailClassifier
from longtail.data import TextData, write_data
from longtail.errors import InputError
from longtail.models import MODELS
from longtail.progress import Progress
from longtail.reproduce import read_recipe
from longtail.training.interrupt import Stop, StoppedError

from ..classifier.cases import LABELS, TEXTS, reload
from .centroid import ROW, Centroid


@pytest.fixture(autouse=True)
def _row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "centroid", ROW)


def test_it_is_cross_fitted_saved_loaded_and_served(tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="needs the extra serve")
    from fastapi.testclient import TestClient

    from longtail.serve.app import create_app
    from longtail.serve.settings import Service

    classifier = LongTailClassifier("centroid").fit(TEXTS, LABELS)
    assert len(classifier.ensemble_.models) == ROW.folds and classifier.plans_[0].kind == "centroid"
    assert classifier.predict_labels(TEXTS[:4]) == LABELS[:4]
    reload(classifier, tmp_path / "run")
    card = (tmp_path / "run" / "README.md").read_text()
    assert "`centroid`: the nearest label centroid" in card and "sharpness" in card
    assert "| Loss |" not in card
    with TestClient(create_app(Service({"run": tmp_path / "run"}))) as client:
        asked = {"documents": [{"text": text} for text in TEXTS[:4]]}
        answers = client.post("/models/run/predict", json=asked).json()["documents"]
    predicted = [sorted(each["label"] for each in one["labels"]) for one in answers]
    assert predicted == [sorted(labels) for labels in LABELS[:4]]


def test_it_is_blended(tmp_path: Path) -> None:
    blend = LongTailClassifier([Centroid(sharpness=4.0), Bag(C=100.0, min_df=1)], folds=2).fit(
        TEXTS, LABELS
    )
    assert len(blend.ensemble_.weights) == 2 and blend.ensemble_.sizes == (2, 1)
    assert reload(blend, tmp_path / "run").predict_labels(TEXTS[:4]) == LABELS[:4]


def test_it_is_resumed(tmp_path: Path) -> None:
    stop, folds = Stop(), []

    def progress(moment: Progress) -> None:
        folds.append((moment.fold, moment.folds))
        if folds == [(1, 3), (2, 3)]:
            stop.signal = signal.SIGTERM

    whole = LongTailClassifier("centroid").fit(TEXTS, LABELS)
    resumed = LongTailClassifier("centroid")
    with pytest.raises(StoppedError, match="Finished folds are kept: resume with --resume"):
        resumed.fit(TEXTS, LABELS, folder=tmp_path / "work", progress=progress, stop=stop)
    resumed.fit(TEXTS, LABELS, folder=tmp_path / "work", resume=True, progress=progress)
    # The finished fold is not trained again.
    assert folds == [(1, 3), (2, 3), (2, 3), (3, 3)]
    expected = whole.decision_function(TEXTS)
    np.testing.assert_array_equal(resumed.decision_function(TEXTS), expected)


def test_its_settings_are_parameters_and_are_checked(tmp_path: Path) -> None:
    Y = np.array([["copper" in names, "wheat" in names] for names in LABELS], dtype=int)
    grid = {"model__sharpness": [1.0, 2.0]}
    search = GridSearchCV(LongTailClassifier("centroid", folds=1), grid, cv=2, error_score="raise")
    assert search.fit(TEXTS, Y).best_estimator_.plans_[0].model.sharpness in (1.0, 2.0)
    for settings, message in (
        ({"model": "centroid", "sharpness": 0}, "sharpness must be a number above 0"),
        ({"sharpness": 2}, "sharpness is a setting of the model centroid"),
        ({"model": "centroid", "loss": "bce"}, "loss has no effect on the model centroid"),
        ({"model": "centroid", "epochs": 2}, r"epochs .*no effect, as label centroids is not"),
    ):
        with pytest.raises(InputError, match=message):
            LongTailClassifier.from_settings(settings).plans()
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("model:\n- kind: centroid\n  sharpness: 2\n- kind: bag\n")
    plans = LongTailClassifier.from_settings(read_recipe(recipe)).plans()
    assert [plan.model for plan in plans] == [Centroid(sharpness=2), Bag()]


# Flags are made when longtail.cli is imported: a process in which the row is there before.
COMMANDS = """
import json, sys
sys.path.insert(0, sys.argv[1])
import centroid
from longtail.models import MODELS
MODELS["centroid"] = centroid.ROW
from longtail.cli import main
for sys.argv in json.loads(sys.argv[2]):
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
"""


def test_it_is_trained_and_used_by_the_command(tmp_path: Path) -> None:
    write_data(TextData.from_lists(TEXTS, LABELS), tmp_path / "data.jsonl")
    (tmp_path / "recipe.yaml").write_text("model: centroid\nfolds: 2\nsharpness: 2\n")
    (tmp_path / "texts.txt").write_text("copper rose\nwheat fell\n")
    run = str(tmp_path / "run")
    flags = ["--recipe", str(tmp_path / "recipe.yaml"), "--sharpness", "5"]
    flags += ["--split-method", "random"]
    commands = [
        ["longtail", "train", "--help-all"],
        ["longtail", "train", str(tmp_path / "data.jsonl"), "--out", run, *flags],
        ["longtail", "predict", run, str(tmp_path / "texts.txt")],
    ]
    program = [sys.executable, "-c", COMMANDS, str(Path(__file__).parent), json.dumps(commands)]
    environment = {**os.environ, "COLUMNS": "160"}
    done = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for words in ("Settings of centroid", "--sharpness", "auto, bag, encoder, svm, centroid"):
        assert words in done.stdout, words
    answers = [json.loads(line)["labels"] for line in done.stdout.splitlines()[-2:]]
    assert answers == [["copper"], ["wheat"]]
    saved = json.loads((tmp_path / "run" / "longtail.json").read_text())
    assert saved["plans"][0]["model"]["sharpness"] == 5 and saved["sizes"] == [2]
