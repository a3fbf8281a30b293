"""An exported classifier predicts, evaluates, saves and loads as the trained one does."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from longtail import Bag, LongTailClassifier
from longtail.classifier.export import compare, generated_documents, to_onnx, to_transformers
from longtail.data import TextData
from longtail.errors import DataError, InputError, LongtailError, MissingExtraError
from longtail.models.onnx import MODEL_FILE
from longtail.runs.model import manifest

from .cases import CPU, LABELS, TEXTS, change, documents
from .conftest import Classifier, Make, Patch

ODD = ["", "copper " * 3000, "qqq", "🙂"]


@pytest.fixture(scope="module")
def bag() -> Classifier:
    return LongTailClassifier(Bag(C=100.0), training=CPU).fit(TEXTS, LABELS)


@pytest.fixture(scope="module")
def blend(blended: Classifier) -> Classifier:
    """Two folds of an encoder, a linear bag and a support vector machine."""
    return to_onnx(blended)


@pytest.fixture(scope="module")
def exported(bag: Classifier) -> Classifier:
    return to_onnx(bag)


@pytest.fixture(scope="module")
def run(exported: Classifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("exported") / "run"
    exported.save_pretrained(path)
    return path


def test_folds_and_blends(blended: Classifier, blend: Classifier, tmp_path: Path) -> None:
    before = blended.decision_function(TEXTS + ODD)
    assert np.abs(blend.decision_function(TEXTS + ODD) - before).max() < 1e-4
    blend.save_pretrained(tmp_path / "run")
    files = {path.relative_to(tmp_path / "run").as_posix() for path in tmp_path.rglob("*.onnx")}
    sizes = blended.ensemble_.sizes
    assert len(files) == sum(sizes) > len(sizes) == 3
    assert f"member-0/fold-1/{MODEL_FILE}" in files
    assert {path.name for path in tmp_path.rglob("*.safetensors")} <= {
        "idf.safetensors",
        "documents.safetensors",
        "held_out.safetensors",
    }
    loaded = LongTailClassifier.from_pretrained(tmp_path / "run", engine="onnx")
    assert loaded.predict_labels(TEXTS + ODD) == blended.predict_labels(TEXTS + ODD)
    assert loaded.plans_ == blended.plans_ and loaded.facts_ == blended.facts_
    pair = [each.evaluate_scores(TEXTS, LABELS)[0] for each in (loaded, blended)]
    assert pair[0].overall == pair[1].overall
    assert loaded.trained_on(TEXTS).all()
    card = (tmp_path / "run" / "README.md").read_text("utf-8")
    assert "| Engine | onnxruntime |" in card
    with pytest.raises(InputError, match="is already exported"):
        to_onnx(loaded)


def test_a_loaded_export_can_be_changed_and_saved(run: Path, tmp_path: Path) -> None:
    loaded = LongTailClassifier.from_pretrained(run)
    before = loaded.decision_function(TEXTS)
    loaded.set_params(max_labels=1).save_pretrained(tmp_path / "again")
    again = LongTailClassifier.from_pretrained(tmp_path / "again")
    assert again.ensemble_.models[0].engine == "onnx" and again.thresholds_.max_labels == 1
    np.testing.assert_array_equal(again.decision_function(TEXTS), before)
    again.save_pretrained(tmp_path / "again")  # in its own place
    assert LongTailClassifier.from_pretrained(tmp_path / "again").predict(TEXTS).nnz


def test_comparisons(bag: Classifier, exported: Classifier, monkeypatch: Patch) -> None:
    generated = generated_documents(bag)
    assert len(generated) == len(set(generated.texts)) + generated.texts.count("") - 1 == 64
    compared = compare(bag, exported, generated)
    assert (compared.n_documents, compared.n_alike) == (64, 64)
    assert compared.difference < 1e-5 and compared.evaluations == ()
    same = compare(bag, exported, TextData.from_lists(TEXTS, LABELS))
    expected = bag.evaluate_scores(TEXTS, LABELS)[0].overall
    assert [each.overall for each in same.evaluations] == [expected] * 2
    # Another model, whose scores are others.
    monkeypatch.setattr(type(bag.ensemble_.models[0]), "scores", lambda *_: np.zeros((64, 3)))
    with pytest.raises(LongtailError, match=r"expected at most 0\.0001\. Nothing was written"):
        compare(bag, exported, generated)


def test_int8(encoder: Classifier, tmp_path: Path) -> None:
    data = documents()
    exported = to_onnx(encoder, int8=True)
    compared = compare(encoder, exported, generated_documents(encoder))
    assert compared.difference > 0 and compared.n_alike > 40
    exported.save_pretrained(tmp_path / "run")
    assert "quantised to int8; the results below" in (tmp_path / "run/README.md").read_text()
    # Its weights, and so its layers, are in no file of torch.
    config = json.loads((tmp_path / "run" / "config.json").read_text("utf-8"))
    config["num_hidden_layers"] = 12
    (tmp_path / "run" / "config.json").write_text(json.dumps(config), "utf-8")
    change(tmp_path / "run", lambda config: config.update(files=manifest(tmp_path / "run")))
    loaded = LongTailClassifier.from_pretrained(tmp_path / "run")
    np.testing.assert_array_equal(
        loaded.decision_function(data.texts), exported.decision_function(data.texts)
    )


def test_int8_has_no_effect_on_linear_models(bag: Classifier) -> None:
    with pytest.raises(InputError, match="int8 has no effect on linear models"):
        to_onnx(bag, int8=True)


def test_wrong_engines_and_devices(run: Path, saved: Path, tmp_path: Path) -> None:
    load = LongTailClassifier.from_pretrained
    with pytest.raises(InputError, match=f"longtail export {saved} --to onnx --out"):
        load(saved, engine="onnx")
    with pytest.raises(InputError, match="was exported to ONNX and has no weights for torch"):
        load(run, engine="torch")
    with pytest.raises(InputError, match="engine must be one of torch, onnx, got 'jax'"):
        load(run, engine="jax")
    with pytest.raises(InputError, match="the engine onnx computes on the CPU, got device='cuda'"):
        load(run, device="cuda")
    assert load(saved, engine="torch").predict(TEXTS).nnz


def test_damaged_and_foreign_files(run: Path, blend: Classifier, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    whole = (copy / MODEL_FILE).read_bytes()

    def fails(message: str) -> None:
        with pytest.raises(DataError, match=message):
            LongTailClassifier.from_pretrained(copy)

    # With matching checksums.
    for content in (b"", b"\x80\x04evil", whole[: len(whole) // 2]):
        (copy / MODEL_FILE).write_bytes(content)
        change(copy, lambda config: config.update(files=manifest(copy)))
        fails("the model in .* is damaged: .*Copy the model again")
    encoder = blend.ensemble_.models[0]
    (tmp_path / "encoder").mkdir()
    encoder.save(tmp_path / "encoder")
    shutil.copyfile(tmp_path / "encoder" / MODEL_FILE, copy / MODEL_FILE)
    change(copy, lambda config: config.update(files=manifest(copy)))
    fails("the model in .* is damaged")
    (copy / MODEL_FILE).write_bytes(whole)
    change(copy, lambda config: config.update(files=manifest(copy), engine="jax"))
    fails("the engine 'jax'")


def test_without_onnxruntime(run: Path, bag: Classifier, monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    for attempt in (lambda: LongTailClassifier.from_pretrained(run), lambda: to_onnx(bag)):
        with pytest.raises(MissingExtraError, match=r"pip install 'longtail\[onnx\]'"):
            attempt()


def test_for_transformers(make: Make, tmp_path: Path) -> None:
    from transformers import pipeline

    classifier = make(pooling="cls", epochs=2, max_length=6).fit(TEXTS, LABELS)
    values = classifier.thresholds_.values.copy()
    values[1] = np.inf
    classifier.thresholds_ = dataclasses.replace(classifier.thresholds_, values=values)
    to_transformers(classifier, tmp_path / "deep" / "hf")
    folder = tmp_path / "deep" / "hf"
    assert not list(tmp_path.rglob(".longtail*")) and not (folder / "longtail.json").exists()
    assert {path.suffix for path in folder.iterdir()} == {".json", ".safetensors", ".md"}
    config = json.loads((folder / "config.json").read_text("utf-8"))
    assert list(config["thresholds"]) == ["copper", "wheat"] and "auto_map" not in config
    assert config["problem_type"] == "multi_label_classification"

    classify = pipeline("text-classification", str(folder), top_k=None, device="cpu")
    texts = [*TEXTS[:4], "copper " * 3000]
    expected = classifier.predict_proba(texts)
    results = classify(texts, truncation=True)
    for row, result in zip(expected, results, strict=True):
        scores = {each["label"]: each["score"] for each in result}
        assert [scores[name] for name in classifier.classes_] == pytest.approx(row, abs=1e-5)
    limits = classify.model.config.thresholds
    labels = [
        sorted(e["label"] for e in r if e["score"] >= limits.get(e["label"], np.inf))
        for r in results
    ]
    assert labels == classifier.predict_labels(texts) and any(labels)
    card = (folder / "README.md").read_text("utf-8")
    assert "library_name: transformers" in card and "from longtail" not in card
    assert "classify.model.config.thresholds" in card

    before = sorted(folder.iterdir())
    with pytest.raises(InputError, match="exists already and is not an empty folder"):
        to_transformers(classifier, folder)
    assert sorted(folder.iterdir()) == before


def test_what_transformers_cannot_load(
    bag: Classifier, encoder: Classifier, cross_fitted: Classifier, tmp_path: Path
) -> None:
    for classifier, message in (
        (bag, "cannot load this model \\(TF-IDF with a linear head\\)"),
        (encoder, "mean pooling cannot be a transformers model.*Train with --pooling cls"),
        (cross_fitted, "this run has 2 models.*--folds 1"),
    ):
        with pytest.raises(InputError, match=message):
            to_transformers(classifier, tmp_path / "hf")
    assert not list(tmp_path.iterdir())
