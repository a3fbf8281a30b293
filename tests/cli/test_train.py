"""`longtail train`: flags and recipes, existing output, interruptions, folds."""

from __future__ import annotations

import inspect
import json
import re
import shlex
import signal
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.main import get_command

from longtail import Bag, Encoder, LongTailClassifier
from longtail.cli import app
from longtail.models import MODELS, ModelSettings
from longtail.settings import field_names
from longtail.training import Training

from .conftest import QUICK, Command, child, wait_for

HIDDEN = ("--model", "bag", "--hidden", 8, "--epochs", 3, "--folds", 1, "--device", "cpu")


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
    assert "longtail evaluate" in longtail.ok("train", folder, "--out", tmp_path / "run").out
    assert not list((tmp_path / "run").glob(".*"))
    saved = json.loads((tmp_path / "run" / "longtail.json").read_text())
    assert (
        sum(saved["sizes"]) in (1, 2)
        and saved["plans"][0]["folds"] == 5
        and saved["thresholds"]["objective"] == "mean"
    )
    done = longtail.ok("evaluate", tmp_path / "run", folder, "--split", "test", "--json")
    result = json.loads(done.out)
    assert result["overall"]["micro_f1"] > 0.5 and {"head", "medium", "tail"} <= set(result)


def test_flags_reach_the_training(longtail: Command, folder: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("model: bag\nloss: fl\nhidden: 4\nngrams: 2\nfolds: 1\n")
    flags = ("--hidden", 6, "--epochs", 2, "--loss-set", "gamma=1", "--thresholds", "global")
    flags = (*flags, "--min-labels", 1, "--max-labels", 3)
    longtail.ok("train", folder, "--recipe", recipe, "--out", tmp_path / "run", *flags)
    got = LongTailClassifier.from_pretrained(tmp_path / "run").get_params()
    assert got["loss"] == "fl" and got["training__epochs"] == 2 and got["folds"] == 1
    assert got["model"] == Bag(hidden=6, ngrams=2)
    assert got["loss_settings"] == {"gamma": 1}
    assert got["thresholds"] == "global" and (got["min_labels"], got["max_labels"]) == (1, 3)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--encoder x", "encoder is a setting of the model encoder, got the model auto"),
        ("--model encoder --class-weight balanced", "class_weight is a setting of the model svm"),
        ("--model svm --loss db", "loss has no effect on the model svm"),
        ("--model bagg", "Did you mean 'bag'"),
        ("--thresholds grit", "Did you mean 'grid'"),
        ("--objective micr", "Did you mean 'micro'"),
        ("--epochs 3", "--epochs"),
        ("--model svm --learning-rate 0.1", "--learning-rate"),
        ("--model bag --folds 5 --hidden 4 --early-stopping-patience 2", "validation part"),
        ("--loss-set gamma", "expected KEY=VALUE"),
        ("--resume --overwrite", "not both"),
        ("--folds 1 --fold 0", "--fold needs --folds 2 or more"),
        ("--model bag --min-df 0", "min_df must be"),
        ("--folds 1000", "cannot make 1000 folds of"),
        ("--folds 2 --fold 7", "expected a fold from 0 to 1, got 7"),
        ("--folds 2 --fold -1", "expected a fold from 0 to 1, got -1"),
        ("--model bag --hidden 4 --early-stopping-metric macro_f1", "early_stopping_patience"),
        ("--split-method time", "is divided into parts already"),
        ("--split-seed 3", "is divided into parts already"),
        ("--label-texts nothing-there.json", "(--label-texts): expected names, or a JSON file"),
        ("--label-texts .", "(--label-texts): expected names, or a JSON file"),
        ("--label-texts /dev/zero", "larger than 64 MB"),
        ("--recipe bst", "no file has this name): 'bst'. Did you mean 'best'"),
        ("--recipe best --min-df 2", "Set min_df in the model that it is meant for"),
        ("--recipe fast --encoder x", "encoder is a setting of the model encoder"),
    ],
)
def test_contradictions_name_the_flags(
    longtail: Command, folder: Path, tmp_path: Path, flags: str, message: str
) -> None:
    longtail.fails(message, "train", folder, "--out", tmp_path / "run", *flags.split())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--model encoder --encoder ./nothing", "the encoder './nothing' was not found"),
        ("--model encoder --encoder .", "is not an encoder: it lacks"),
        ("--recipe paper --early-stopping-metric f2", "unknown early stopping metric 'f2'"),
        ("--loss db --loss-set gama=1", "Did you mean 'gamma'"),
        ("--device cuda:99", "cuda:99"),
        ("--recipe paper --folds 2", "early_stopping_patience needs a validation part"),
    ],
)
def test_mistakes_are_reported_before_data_is_read(
    longtail: Command, tmp_path: Path, flags: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.jsonl").write_text("this cannot be read")
    longtail.fails(message, "train", "data.jsonl", "--out", "run", *flags.split())


def test_the_final_messages(longtail: Command, folder: Path, tmp_path: Path) -> None:
    out = longtail.ok("train", folder, "--out", tmp_path / "run", "--recipe", "fast").out
    facts = LongTailClassifier.from_pretrained(tmp_path / "run").facts_
    assert len(out.splitlines()) <= 15 and facts.cross_validated is not None
    for name, scores in facts.cross_validated.items():
        assert f"{name} ({scores.n_labels})" in out
        assert f"{100 * scores.micro_f1:.2f} / {100 * scores.macro_f1:.2f}" in out
    assert f"Chosen of {len(facts.trials)} settings" in out
    assert f"{tmp_path / 'run' / 'README.md'}" in out.replace("\n", "")
    for sentence in facts.sentences():
        assert sentence in out


def test_the_best_recipe_with_another_encoder(
    longtail: Command, folder: Path, tmp_path: Path, tiny_bert: Path
) -> None:
    flags = ("--recipe", "best", "--encoder", tiny_bert, "--epochs", 1, "--folds", 2)
    done = longtail.ok("train", folder, "--out", tmp_path / "run", *flags, "--device", "cpu")
    assert "without a GPU may take hours" in done.err and "micro-F1 / macro-F1" in done.out
    loaded = LongTailClassifier.from_pretrained(tmp_path / "run")
    kinds = [plan.kind for plan in loaded.plans_]
    assert kinds == ["encoder", "bag"] and loaded.facts_.trials and loaded.facts_.half is None
    assert loaded.plans_[0].training.epochs == 1 and loaded.plans_[0].label_texts == "names"


def test_the_best_recipe_is_suggested_if_gpu_and_encoder_are_available(
    longtail: Command, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, name = tmp_path / "cache", Encoder().encoder
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    train = ("train", folder, *QUICK, "--overwrite", "--out", tmp_path / "run")
    assert "--recipe best" not in longtail.ok(*train).out
    repository = cache / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc")
    (repository / "snapshots" / "abc").mkdir(parents=True)
    (repository / "snapshots" / "abc" / "model.safetensors").write_text("")
    line = longtail.ok(*train).out.splitlines()[-1]
    assert name in line and "--recipe best would train 5 encoders for 30 epochs" in line
    assert "--recipe best" not in longtail.ok(*train, "--recipe", "fast").out


def test_help_shows_the_common_flags_and_help_all_every_flag(longtail: Command) -> None:
    def flags(*arguments: object) -> set[str]:
        return set(re.findall(r"^│[ *]*(--[\w-]+)", longtail.ok(*arguments).out, re.MULTILINE))

    short, whole = flags("train", "--help"), flags("train", "--help-all")
    assert len(short) <= 30 and short < whole and len(whole) > 50
    assert {"--recipe", "--model", "--encoder", "--label-separator", "--device"} <= short
    assert {"--warmup-ratio", "--fold", "--max-record-mb"} <= whole - short
    for verb in ("evaluate", "stats"):
        assert "--max-record-mb" in flags(verb, "--help-all") - flags(verb, "--help")


def test_defaults_in_the_help_are_those_of_the_code(longtail: Command) -> None:
    text = " ".join(longtail.ok("train", "--help-all").out.replace("│", " ").split())
    defaults = inspect.signature(LongTailClassifier).parameters
    for name in ("thresholds", "objective", "random_state", "model"):
        shown = text.split(f"--{name.replace('_', '-')} ")[1]
        assert f"Default: {defaults[name].default}." in shown[:400], name
    assert f"encoder {Encoder.training_defaults['learning_rate']}" in text
    assert "Default: bag 2, svm 1." in text and "Default: 200000." in text


def test_a_training_that_diverged_is_an_error(
    longtail: Command, folder: Path, tmp_path: Path
) -> None:
    train = ("train", folder, "--out", tmp_path / "run", *HIDDEN)
    longtail.fails("Lower the learning rate", *train, "--learning-rate", "1e30")
    longtail.ok(*train, "--overwrite")


def test_a_trained_model_is_replaced_only_on_request(
    longtail: Command, folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train = ("train", folder, "--out", run)
    longtail.ok(*train, "--folds", 1)
    before = weights(run)
    longtail.fails("--overwrite", *train, "--loss", "bce", "--folds", 1)
    assert list(before) == list(weights(run))
    assert "finished already" in longtail.ok(*train, "--resume").out
    longtail.fails("loss was None, now 'bce'", *train, "--resume", "--loss", "bce")
    longtail.ok(*train, "--model", "svm", "--folds", 2, "--overwrite")
    assert (run / "fold-1").is_dir() and not (run / "model.safetensors").exists()


def test_a_killed_training_resumes_to_the_same_weights(
    longtail: Command, folder: Path, tmp_path: Path
) -> None:
    flags = (*HIDDEN[:4], "--epochs", 40, "--folds", 1, "--device", "cpu")
    longtail.ok("train", folder, "--out", tmp_path / "whole", *flags)
    train = ("train", folder, "--out", tmp_path / "run")
    process = child(*train, *flags, "--checkpoint-minutes", 0)
    wait_for(tmp_path / "run" / ".longtail-work" / "fold-0" / "state.safetensors", process)
    process.kill()
    process.communicate()
    assert not (tmp_path / "run" / "longtail.json").exists()
    longtail.fails("--resume", *train)
    longtail.fails("epochs was 40, now 41", *train, "--resume", "--epochs", 41)
    longtail.ok(*train, "--resume")
    assert same(tmp_path / "whole", tmp_path / "run")


def test_sigterm_saves_and_shows_how_to_resume(folder: Path, tmp_path: Path) -> None:
    flags = (*HIDDEN[:4], "--epochs", 400, "--folds", 1, "--device", "cpu")
    run = tmp_path / "my run"
    process = child("train", folder, "--out", run, *flags, "--checkpoint-minutes", 0)
    wait_for(run / ".longtail-work" / "fold-0" / "state.safetensors", process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143 and "Traceback" not in err
    words = shlex.split(err.split("The command: ")[1].splitlines()[0])
    assert words == ["longtail", "train", str(folder), "--out", str(run), "--resume"]


def test_folds_of_several_processes_are_combined(
    longtail: Command, folder: Path, tmp_path: Path
) -> None:
    longtail.ok("train", folder, "--out", tmp_path / "one", "--folds", 2)
    train = ("train", folder, "--out", tmp_path / "run")
    for fold in (1, 0):
        assert "--resume" in longtail.ok(*train, "--folds", 2, "--fold", fold).out
    longtail.ok(*train, "--resume")
    assert same(tmp_path / "one", tmp_path / "run")


def test_label_descriptions_by_flag(longtail: Command, folder: Path, tmp_path: Path) -> None:
    train = ("train", folder, *QUICK, "--label-texts")
    longtail.ok(*train, "names", "--out", tmp_path / "run")
    saved = json.loads((tmp_path / "run" / "longtail.json").read_text())
    assert saved["plans"][0]["label_texts"] == "names"
    place = tmp_path / "descriptions.json"
    place.write_text(json.dumps({name: f"all about {name}" for name in saved["label_names"]}))
    longtail.ok(*train, place, "--out", tmp_path / "other")
    saved = json.loads((tmp_path / "other" / "longtail.json").read_text())
    assert set(saved["plans"][0]["label_texts"]) == set(saved["label_names"])


def test_a_blend_by_recipe(longtail: Command, folder: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "blend.yaml"
    recipe.write_text(
        "folds: 2\ndevice: cpu\nlabel_texts: names\nthresholds: global\n"
        "model:\n  - kind: svm\n  - kind: bag\n    min_df: 1\n"
    )
    train = ("train", folder, "--recipe", recipe, "--out")
    longtail.ok(*train, tmp_path / "run")
    assert (tmp_path / "run" / "member-0" / "fold-1").is_dir()
    done = longtail("evaluate", tmp_path / "run", folder, "--json")
    assert 0 < json.loads(done.out)["overall"]["micro_f1"] <= 1
    message = "Set min_df in the model that it is meant for"
    longtail.fails(message, *train, tmp_path / "wrong", "--min-df", 3)


def test_rare_labels_left_out_by_flag(longtail: Command, folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = longtail.ok("train", folder, "--min-count", 8, *QUICK, "--out", run)
    assert "labels with fewer than 8 training documents (" in done.out + done.err
    assert min(json.loads((run / "longtail.json").read_text())["label_counts"]) >= 8
    done = longtail.ok("evaluate", run, folder, "--json")
    assert json.loads(done.out)["unknown_labels"]
    message = "newswire does not take --min-count"
    longtail.fails(message, "train", "newswire", "--min-count", 8, "--out", tmp_path / "no")
    message, out = "--min-count counts training documents", tmp_path / "out.jsonl"
    convert = ("corpus", "convert", folder / "test.jsonl", "--out", out)
    longtail.fails(message, *convert, "--min-count", 3)


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
def test_malformed_recipes(longtail: Command, folder: Path, tmp_path: Path, recipe: str) -> None:
    (tmp_path / "recipe.yaml").write_text(recipe)
    flags = ("--recipe", tmp_path / "recipe.yaml", "--out", tmp_path / "run")
    err = longtail.fails("cannot be read as a recipe", "train", folder, *flags)
    assert len(err) < 5000 and not Path("RAN").exists()
