"""The model card: what a reader needs to know, unbiased figures, and no markup from data.

The held-out documents that choose the thresholds and give these figures.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import scipy.sparse as sp
import yaml
from hypothesis import given
from hypothesis import strategies as st

from longtail import Encoder, LongTailClassifier, __version__
from longtail.classifier import estimator, held_out
from longtail.classifier.crossfit import Fitted
from longtail.classifier.saving import model_card
from longtail.data import TextData
from longtail.data.splits import assign_stratified
from longtail.evaluation import Scores, evaluate
from longtail.labels import LabelStats, label_groups
from longtail.metrics import count
from longtail.thresholds import fit_thresholds

from .cases import DATA, LABELS, NAMES, TEXTS, numbered, reload
from .conftest import Classifier, Make, Patch


def front_matter(card: str) -> Any:
    return yaml.safe_load(card.split("---\n")[1])


def test_the_text(encoder: Classifier, cross_fitted: Classifier) -> None:
    card = model_card(encoder)
    for words in (
        "distribution-balanced loss",
        "one model, and a validation part",
        "| Documents | 22 |",
        "| Labels | 3 |",
        "on average, at most 2 |",
        "Of 3 labels, 1 had fewer than 10 training documents",
        f"longtail {__version__}",
    ):
        assert words in card
    assert re.search(r"how many they have: nickel \(\d\); ", card)
    assert "2 models, each trained without a fold" in model_card(cross_fitted)


def test_the_figures_are_cross_validated(make: Make) -> None:
    """They are lower than those of thresholds evaluated where they were chosen."""
    rng = np.random.RandomState(0)
    lists = [[name for name in NAMES if rng.rand() < 0.4] for _ in TEXTS]
    data = TextData.from_lists(TEXTS, lists, NAMES)
    settings = {"thresholds": "per-label", "objective": "macro", "random_state": 3}
    classifier = make(epochs=1, folds=3, **settings).fit(data[6:], validation=data[:6])
    figures, optimistic = classifier.facts_.cross_validated, classifier.held_out_
    assert figures is not None and optimistic is not None
    assert classifier._tuning_ is not None
    Y, scores = classifier._tuning_
    folds = assign_stratified(Y, [1 / 3] * 3, 3, first_is_train=False)
    decisions = np.zeros(Y.shape)
    for fold in range(3):
        rest, part = folds != fold, folds == fold
        counts = np.asarray(Y.sum(axis=0)).ravel()
        fitted = fit_thresholds(scores[rest], Y[rest], counts, "per-label", objective="macro")
        decisions[part] = fitted.apply(scores[part]).toarray()
    groups = label_groups(data[6:].stats().label_counts)
    groups = {"all": np.ones(3, dtype=bool), **groups}
    for name, labels in groups.items():
        expected = Scores.of(count(Y[:, labels], decisions[:, labels]), 24)
        assert figures[name] == expected, name
    assert figures["all"].macro_f1 < optimistic.overall.macro_f1
    card = model_card(classifier)
    for name, each in figures.items():
        shown = [f"{100 * f:.1f} %" for f in (each.micro_f1, each.macro_f1)]
        shown = ["\N{EN DASH}"] * 2 if each.is_empty else shown
        assert f"| {name} | {each.n_labels} | {shown[0]} | {shown[1]} |" in card
    assert "thresholds that were chosen on the others" in card


@pytest.mark.parametrize("method", ["auto", "global"])
def test_too_few_documents(method: str, make: Make) -> None:
    classifier = make(epochs=1, thresholds=method).fit(TEXTS[:4], LABELS[:4])
    assert classifier.facts_.cross_validated is None
    card = model_card(classifier)
    assert "too few documents to estimate" in card and "On 1 held-out document," in card


def test_settings_are_explained() -> None:
    card = model_card(LongTailClassifier("svm", folds=2).fit(TEXTS, LABELS))
    assert "| max_features: Maximum vocabulary size | 200000 |" in card


def test_limits_and_labels_without_documents(make: Make) -> None:
    data = TextData.from_lists(TEXTS, LABELS, [*NAMES, "tin"])
    card = model_card(make(epochs=1, min_labels=1, max_labels=2).fit(data))
    assert "at least 1: those nearest to their thresholds" in card and "at most 2: those" in card
    assert "without the limits" not in card
    assert "| without a document | 1 |" in card and "tin (" not in card
    assert "1 label (tin) was never predicted for lack of training documents." in card


@pytest.mark.parametrize("folds", [1, 2])
def test_a_validation_part(folds: int, make: Make) -> None:
    classifier = make(epochs=1, folds=folds).fit(DATA, validation=DATA[:5])
    card, is_trained_on = model_card(classifier), folds == 2
    assert "| Documents | 24 |" in card
    assert ("| and of the validation part | 5, not counted below |" in card) is is_trained_on
    assert ("On the 29 training documents" in card) is is_trained_on
    assert ("On 5 held-out documents" in card) is not is_trained_on
    # Groups are by the frequency in the training part.
    assert classifier.held_out_ is not None and classifier.facts_.cross_validated is not None
    for name, scores in classifier.held_out_.groups().items():
        assert classifier.facts_.cross_validated[name].n_labels == scores.n_labels


def run_snippet(card: str, which: int) -> dict[str, Any]:
    """Execute a Python block of the card."""
    code = re.findall(r"```python\n(.*?)```", card, re.DOTALL)[which]
    variables: dict[str, Any] = {}
    exec(code, variables)
    return variables


def test_the_snippet_runs(encoder: Classifier, make: Make, tmp_path: Path) -> None:
    encoder.save_pretrained(tmp_path / "it's")
    card = model_card(encoder, str(tmp_path / "it's"))
    # Mean pooling and several models do not load with transformers alone.
    several = make(pooling="cls", epochs=1, folds=2).fit(TEXTS, LABELS)
    assert "transformers" not in card + model_card(several)
    loaded = run_snippet(card, 0)["classifier"]
    assert loaded.predict_labels(TEXTS) == encoder.predict_labels(TEXTS)


def test_transformers_alone_gives_the_same_probabilities(make: Make, tmp_path: Path) -> None:
    classifier = make(pooling="cls", epochs=40, thresholds="global").fit(TEXTS, LABELS)
    classifier.save_pretrained(tmp_path / "run")
    card = model_card(classifier, str(tmp_path / "run"))
    assert "by transformers alone" in card
    classify = run_snippet(card, 1)["classify"]
    limit = float(re.findall(r"probability is at least ([\d.]+)\.", card)[0])
    expected = classifier.predict_proba(TEXTS[:4])
    for row, labels in enumerate(classify(TEXTS[:4])):
        by_name = {label["label"]: label["score"] for label in labels}
        assert [by_name[name] for name in NAMES] == pytest.approx(expected[row].tolist(), abs=1e-5)
        predicted = sorted(name for name, value in by_name.items() if value >= limit)
        assert predicted == classifier.predict_labels(TEXTS[row : row + 1])[0]


MARKUP = st.text(
    alphabet=st.sampled_from(list("ab|`*_[](){}<>!#&~$\\:-+'\"@ \t\n\r\x00\x1b\u2028\u202e")),
    min_size=1,
    max_size=12,
)


@given(names=st.lists(MARKUP, min_size=3, max_size=3, unique=True), path=MARKUP)
def test_label_names_are_never_markup(encoder: Classifier, names: list[str], path: str) -> None:
    odd = copy.copy(encoder)
    odd.classes_ = np.asarray(names, dtype=object)
    stats = encoder.label_stats_
    odd.label_stats_ = LabelStats.from_counts(stats.label_counts, stats.n_samples, names)
    card = model_card(odd, path)
    assert card.count("```") == model_card(encoder).count("```")
    assert set(front_matter(card)) == {"library_name", "pipeline_tag", "tags"}
    rarest = [line for line in card.splitlines() if line.startswith("The rarest")]
    assert len(rarest) == 1 and len(card.splitlines()) == len(model_card(encoder).splitlines())
    # No unescaped character that opens a link, code, a tag, or emphasis.
    assert not set("`*[]<>|") & set(re.sub(r"\\.", "", rarest[0]))


def with_encoder(classifier: Classifier, name: str) -> LongTailClassifier:
    other, model = copy.copy(classifier), Encoder(name)
    other.plans_ = (dataclasses.replace(classifier.plans_[0], model=model),)
    other.facts_ = dataclasses.replace(classifier.facts_, base_model=model.base_model)
    return other


def test_settings_are_never_markup(encoder: Classifier) -> None:
    odd = with_encoder(encoder, "a|b\n# <script>*z*")
    odd.thresholds_ = dataclasses.replace(encoder.thresholds_, method="`|<b>", objective="\n#")
    card = model_card(odd)
    assert "<script>" not in card and "<b>" not in card and "*z*" not in card
    assert len(re.findall("^#", card, re.MULTILINE)) == 6
    section = card.split("## What it is")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    assert rows and all(len(re.split(r"(?<!\\)\|", row.strip("|"))) == 2 for row in rows)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("microsoft/deberta-v3-base", "microsoft/deberta-v3-base"),
        ("/home/me/bert", None),
        ("models/mine", None),
    ],
)
def test_the_base_model(
    source: str,
    expected: str | None,
    encoder: Classifier,
    tmp_path: Path,
    monkeypatch: Patch,
) -> None:
    (tmp_path / "models" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    card = model_card(with_encoder(encoder, source))
    metadata = front_matter(card)
    assert metadata.pop("base_model", None) == expected
    # Language and data are not known.
    assert set(metadata) == {"library_name", "pipeline_tag", "tags"}
    assert metadata["library_name"] == "longtail" and "multi-label" in metadata["tags"]
    # The path of a folder is private.
    assert "/home/me" not in card


@pytest.fixture
def fitted() -> Fitted:
    rng = np.random.default_rng(3)
    Y = (rng.random((50, 12)) < 0.2).astype(np.float32)
    scores = (rng.normal(size=Y.shape) + 3 * Y).astype(np.float32)
    mask = rng.random(Y.shape) < 0.1
    unused: Any = None
    return Fitted(unused, np.ma.array(scores, mask=mask), numbered(Y), None, ())


@pytest.mark.parametrize("rows", [7, 100])
def test_the_highest_scores_are_kept(fitted: Fitted, monkeypatch: Patch, rows: int) -> None:
    assert held_out.likely_pairs(fitted) is fitted, "few pairs are all kept"
    monkeypatch.setattr(held_out, "TUNING_PAIRS", 10)
    monkeypatch.setattr(held_out, "ROWS", rows)
    monkeypatch.setattr(held_out, "KEPT_LABELS", 5)
    reduced = held_out.likely_pairs(fitted)
    known = ~np.ma.getmaskarray(fitted.scores)
    np.testing.assert_array_equal(reduced.held_out.Y.toarray(), fitted.held_out.Y.toarray() * known)
    for row in range(50):
        kept = reduced.scores[row]
        values = np.where(known[row], fitted.scores.data[row], -np.inf)
        best = np.argsort(-values)[:5]
        assert set(kept.indices) == set(best[np.isfinite(values[best])])
        np.testing.assert_array_equal(kept.toarray().ravel()[kept.indices], values[kept.indices])


def test_the_same_thresholds_of_all_pairs(fitted: Fitted, monkeypatch: Patch) -> None:
    monkeypatch.setattr(held_out, "TUNING_PAIRS", 10)
    reduced = held_out.likely_pairs(fitted)
    assert sp.issparse(reduced.scores)
    for method in ("global", "per-label", "micromacro", "frequency"):
        counts = np.arange(1, 13)
        sparse, dense = (
            fit_thresholds(each.scores, each.held_out.Y, counts, method)
            for each in (reduced, fitted)
        )
        np.testing.assert_array_equal(sparse.values, dense.values, method)


def test_held_out_is_computed_on_demand(make: Make, tmp_path: Path, monkeypatch: Patch) -> None:
    counting = Mock(wraps=evaluate)
    monkeypatch.setattr(estimator, "evaluate", counting)
    classifier = make(epochs=1, folds=2).fit(TEXTS, LABELS)
    assert not counting.called
    evaluation = classifier.held_out_
    assert evaluation is not None and classifier.held_out_ is evaluation
    assert counting.call_count == 1 and evaluation.overall.n_documents == 24
    assert reload(classifier, tmp_path / "run").held_out_ is None
    # Very many pairs are not evaluated in full; the card is the same.
    monkeypatch.setattr(estimator, "EVALUATED_PAIRS", 24 * 3 - 1)
    large = make(epochs=1, folds=2).fit(TEXTS, LABELS)
    assert large.held_out_ is None and large.facts_ == classifier.facts_
    assert model_card(large) == model_card(classifier)
