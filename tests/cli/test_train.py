"""`longtail train`: flags and recipes, what is in the way, interruptions, folds."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.main import get_command

from longtail import Bag, LongTailClassifier
from longtail.cli import app
from longtail.models import MODELS, ModelSettings
from longtail.settings import field_names
from longtail.training import Training

Command = Callable[..., object]
HIDDEN = ("--hidden", 8, "--epochs", 3, "--folds", 1, "--device", "cpu")


def weights(run: Path) -> dict[str, np.ndarray]:
    files = sorted(run.rglob("*.safetensors"))
    return {
        f"{path.relative_to(run)} {name}": value
        for path in files
        for name, value in load_file(path).items()
    }


def same(first: Path, second: Path) -> bool:
    one, other = weights(first), weights(second)
    assert one and list(one) == list(other)
    return all(np.array_equal(one[name], other[name]) for name in one)


def test_every_setting_is_a_flag() -> None:
    train = get_command(app).commands["train"]  # type: ignore[attr-defined]
    flags = {name for parameter in train.params for name in parameter.opts}
    for kind in (Training, *(row.settings for row in MODELS.values())):
        for name in field_names(kind) - field_names(ModelSettings):
            assert f"--{name.replace('_', '-')}" in flags, name


def test_it_is_cross_fitted_by_default(longtail: Command, folder: Path, tmp_path: Path) -> None:
    done = longtail("train", folder, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert "longtail evaluate" in done.out
    assert not list((tmp_path / "run").glob(".*"))
    saved = json.loads((tmp_path / "run" / "longtail.json").read_text())
    assert saved["n_models"] == 5 and saved["thresholds"]["objective"] == "mean"
    done = longtail("evaluate", tmp_path / "run", folder, "--split", "test", "--json")
    found = json.loads(done.out)
    assert found["overall"]["micro_f1"] > 0.5 and {"head", "medium", "tail"} <= set(found)


def test_flags_reach_the_training(longtail: Command, folder: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("model: bag\nloss: fl\nhidden: 4\nngrams: 2\nfolds: 1\n")
    done = longtail(
        "train", folder, "--config", recipe, "--out", tmp_path / "run", "--hidden", 6,
        "--epochs", 2, "--loss-set", "gamma=1", "--thresholds", "global", "--max-labels", 3,
        "--at-least-one",
    )  # fmt: skip
    assert done.code == 0, done.err
    got = LongTailClassifier.from_pretrained(tmp_path / "run").get_params()
    assert got["loss"] == "fl" and got["training__epochs"] == 2 and got["folds"] == 1
    assert got["model"] == Bag(hidden=6, ngrams=2)
    assert got["loss_settings"] == {"gamma": 1}
    assert got["thresholds"] == "global" and got["max_labels"] == 3 and got["at_least_one"] is True


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--encoder", "x"], "encoder is a setting of the model encoder, got the model bag"),
        (
            ["--model", "encoder", "--class-weight", "balanced"],
            "class_weight is a setting of the model svm",
        ),
        (["--model", "svm", "--loss", "db"], "loss has no effect on the model svm"),
        (["--model", "bagg"], "Did you mean 'bag'"),
        (["--thresholds", "grit"], "Did you mean 'grid'"),
        (["--epochs", "3"], "--epochs"),
        (["--model", "svm", "--learning-rate", "0.1"], "--learning-rate"),
        (["--folds", "5", "--hidden", "4", "--early-stopping-patience", "2"], "validation part"),
        (["--loss-set", "gamma"], "expected KEY=VALUE"),
        (["--resume", "--overwrite"], "not both"),
        (["--folds", "1", "--fold", "0"], "--fold needs --folds 2 or more"),
        (["--min-df", "0"], "min_df must be"),
        (["--folds", "1000"], "cannot make 1000 folds of"),
        (["--folds", "2", "--fold", "7"], "expected a fold from 0 to 1, got 7"),
        (["--hidden", "4", "--early-stopping-metric", "macro_f1"], "early_stopping_patience"),
        (["--split-method", "time"], "has its own parts"),
    ],
)
def test_contradictions_name_the_flags(
    longtail: Command, folder: Path, tmp_path: Path, flags: list[str], message: str
) -> None:
    done = longtail("train", folder, "--out", tmp_path / "run", *flags)
    assert done.code == 1 and message in done.err, done.err
    assert done.err.splitlines()[-1].startswith("error: ") and "Traceback" not in done.err
    assert not (tmp_path / "run").exists()


def test_a_training_that_diverged_is_said_to(
    longtail: Command, folder: Path, tmp_path: Path
) -> None:
    done = longtail("train", folder, "--out", tmp_path / "run", *HIDDEN, "--learning-rate", "1e30")
    assert done.code == 1 and "Lower the learning rate" in done.err and "Traceback" not in done.err
    done = longtail("train", folder, "--out", tmp_path / "run", *HIDDEN, "--overwrite")
    assert done.code == 0, done.err


def test_a_trained_model_is_replaced_only_if_asked(
    longtail: Command, folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert longtail("train", folder, "--out", run, "--folds", 1).code == 0
    before = weights(run)
    done = longtail("train", folder, "--out", run, "--loss", "bce", "--folds", 1)
    assert done.code == 1 and "--overwrite" in done.err
    assert list(before) == list(weights(run))
    done = longtail("train", folder, "--out", run, "--resume")
    assert done.code == 0 and "finished already" in done.out
    done = longtail("train", folder, "--out", run, "--resume", "--loss", "bce")
    assert done.code == 1 and "loss was 'db', now 'bce'" in done.err
    assert longtail("train", folder, "--out", run, "--folds", 2, "--overwrite").code == 0
    assert (run / "fold-1").is_dir() and not (run / "model.safetensors").exists()


def child(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "longtail", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 60
    while not list(path.parent.glob(path.name)):
        assert process.poll() is None and time.monotonic() < end, process.communicate()
        time.sleep(0.005)


def test_killed_and_resumed_it_ends_with_the_same_weights(
    longtail: Command, folder: Path, tmp_path: Path
) -> None:
    flags = (*HIDDEN[:2], "--epochs", 40, "--folds", 1, "--device", "cpu")
    assert longtail("train", folder, "--out", tmp_path / "whole", *flags).code == 0
    process = child(
        "train", folder, "--out", tmp_path / "run", *flags, "--checkpoint-minutes", 0
    )  # fmt: skip
    wait_for(tmp_path / "run" / ".longtail-work" / "fold-0" / "state.safetensors", process)
    process.kill()
    process.communicate()
    assert not (tmp_path / "run" / "longtail.json").exists()
    done = longtail("train", folder, "--out", tmp_path / "run")
    assert done.code == 1 and "--resume" in done.err
    done = longtail("train", folder, "--out", tmp_path / "run", "--resume", "--epochs", 41)
    assert done.code == 1 and "epochs was 40, now 41" in done.err
    done = longtail("train", folder, "--out", tmp_path / "run", "--resume")
    assert done.code == 0, done.err
    assert same(tmp_path / "whole", tmp_path / "run")


def test_sigterm_saves_and_says_how_to_go_on(
    longtail: Command, folder: Path, tmp_path: Path
) -> None:
    flags = (*HIDDEN[:2], "--epochs", 400, "--folds", 1, "--device", "cpu")
    run = tmp_path / "my run"
    process = child("train", folder, "--out", run, *flags, "--checkpoint-minutes", 0)
    wait_for(run / ".longtail-work" / "fold-0" / "state.safetensors", process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143 and "Traceback" not in err
    words = shlex.split(err.split("The command: ")[1].splitlines()[0])
    assert words == ["longtail", "train", str(folder), "--out", str(run), "--resume"]


def test_folds_of_several_processes_are_gathered(
    longtail: Command, folder: Path, tmp_path: Path
) -> None:
    assert longtail("train", folder, "--out", tmp_path / "one", "--folds", 2).code == 0
    for fold in (1, 0):
        done = longtail("train", folder, "--out", tmp_path / "run", "--folds", 2, "--fold", fold)
        assert done.code == 0 and "--resume" in done.out, done.err
    done = longtail("train", folder, "--out", tmp_path / "run", "--resume")
    assert done.code == 0, done.err
    assert same(tmp_path / "one", tmp_path / "run")


def test_texts_of_labels_by_flag(longtail: Command, folder: Path, tmp_path: Path) -> None:
    quick = ("--folds", 1, "--device", "cpu", "--thresholds", "global")
    done = longtail("train", folder, "--label-texts", "names", *quick, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    saved = json.loads((tmp_path / "run" / "longtail.json").read_text())
    assert saved["plans"][0]["label_texts"] == "names"
    place = tmp_path / "descriptions.json"
    place.write_text(json.dumps({name: f"all about {name}" for name in saved["label_names"]}))
    done = longtail("train", folder, "--label-texts", place, *quick, "--out", tmp_path / "other")
    assert done.code == 0, done.err
    saved = json.loads((tmp_path / "other" / "longtail.json").read_text())
    assert set(saved["plans"][0]["label_texts"]) == set(saved["label_names"])
    for wrong in ("nothing-there.json", folder):
        done = longtail("train", folder, "--label-texts", wrong, "--out", tmp_path / "bad")
        assert done.code == 1 and "(--label-texts): expected names, or a JSON file" in done.err
        assert not (tmp_path / "bad").exists()


def test_a_blend_by_recipe(longtail: Command, folder: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "blend.yaml"
    recipe.write_text(
        "folds: 2\ndevice: cpu\nlabel_texts: names\nthresholds: global\n"
        "model:\n  - kind: svm\n  - kind: bag\n    min_df: 1\n"
    )
    done = longtail("train", folder, "--config", recipe, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert (tmp_path / "run" / "member-1" / "fold-1").is_dir()
    done = longtail("evaluate", tmp_path / "run", folder, "--json")
    assert 0 < json.loads(done.out)["overall"]["micro_f1"] <= 1
    wrong = longtail(
        "train", folder, "--config", recipe, "--min-df", 3, "--out", tmp_path / "wrong"
    )
    assert wrong.code != 0 and "Set min_df in the model that it is meant for" in wrong.err


def test_rare_labels_left_out_by_flag(longtail: Command, folder: Path, tmp_path: Path) -> None:
    quick = ("--folds", 1, "--device", "cpu", "--thresholds", "global")
    done = longtail("train", folder, "--min-count", 8, *quick, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert "labels with fewer than 8 training documents were left out" in done.out + done.err
    assert "--min-count 8" in done.out
    saved = json.loads((tmp_path / "run" / "longtail.json").read_text())
    assert min(saved["label_counts"]) >= 8
    judged = longtail("evaluate", tmp_path / "run", folder, "--min-count", 8, "--json")
    assert judged.code == 0 and json.loads(judged.out)["overall"]["n_labels"] > 0
    done = longtail("train", "newswire", "--min-count", 8, "--out", tmp_path / "no")
    assert done.code != 0 and "newswire has no use for --min-count" in done.err
    single = next(path for path in folder.iterdir() if "test" in path.name)
    done = longtail("evaluate", tmp_path / "run", single, "--min-count", 3)
    assert done.code != 0 and "--min-count counts training documents" in done.err


@pytest.mark.parametrize(
    "recipe",
    [
        "a: &a [x, x]\nb: &b [*a, *a]\n",
        "[" * 100_000,
        "model: !!python/object/apply:os.system [touch RAN]\n",
        "\x00",
    ],
    ids=["aliases", "deep", "python", "NUL"],
)
def test_a_recipe_that_is_none(
    longtail: Command, folder: Path, tmp_path: Path, recipe: str
) -> None:
    (tmp_path / "recipe.yaml").write_text(recipe)
    done = longtail(
        "train", folder, "--config", tmp_path / "recipe.yaml", "--out", tmp_path / "run"
    )
    assert done.code == 1 and "cannot be read as a recipe" in done.err, done.err
    assert len(done.err) < 5000 and not Path("RAN").exists()


def test_files_without_end_are_refused(longtail: Command, folder: Path, tmp_path: Path) -> None:
    flags = ("--label-texts", "/dev/zero", "--out", tmp_path / "run")
    done = longtail("train", folder, *flags)
    assert done.code == 1 and "larger than 64 MB" in done.err
