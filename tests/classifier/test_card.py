"""The model card: what a stranger has to know, honest figures, and no markup from data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from longtail import LongTailClassifier, __version__
from longtail.classifier.card import model_card
from longtail.data import TextData
from longtail.labels import LabelStats
from longtail.thresholds import cross_validated_score

from .cases import LABELS, NAMES, TEXTS

FRONT = re.compile(r"---\n(.*?)\n---\n", re.DOTALL)


def front_matter(card: str) -> Any:
    found = FRONT.match(card)
    assert found is not None
    return yaml.safe_load(found.group(1))


def table_rows(card: str, heading: str) -> list[list[str]]:
    """The cells of the last table of a section."""
    section = card.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_what_the_hub_reads(encoder: LongTailClassifier) -> None:
    found = front_matter(model_card(encoder))
    assert found["library_name"] == "longtail"
    assert found["pipeline_tag"] == "text-classification"
    assert {"multi-label", "long-tail"} <= set(found["tags"])
    # Nothing that is not known.
    assert set(found) == {"library_name", "pipeline_tag", "tags"}


def test_what_it_says(encoder: LongTailClassifier, cross_fitted: LongTailClassifier) -> None:
    card = model_card(encoder)
    assert "distribution-balanced loss" in card
    assert "one model, and a validation part" in card
    assert "| Documents | 22 |" in card and "| Labels | 3 |" in card
    assert "on average, at most 2 |" in card
    assert "Of 3 labels, 1 had fewer than 10 training documents" in card
    assert re.search(r"how many they have: nickel \(\d\); ", card)
    assert f"longtail {__version__}" in card
    assert "no others" in card and "same language" in card
    assert "2 models, each trained without a fold" in model_card(cross_fitted)


def test_the_figures_are_those_of_the_held_out_documents(cross_fitted: LongTailClassifier) -> None:
    card = model_card(cross_fitted)
    rows = {row[0]: row[1:] for row in table_rows(card, "Results")}
    assert cross_fitted.held_out_ is not None
    for name, scores in cross_fitted.held_out_.groups().items():
        expected = [f"{100 * f:.1f} %" for f in (scores.micro_f1, scores.macro_f1)]
        shown = ["\N{EN DASH}"] * 2 if scores.is_empty else expected
        assert rows[name] == [str(scores.n_labels), *shown]
    assert "chosen on these same documents" in card
    assert "24 training documents, each scored by a model that was trained without it" in card


def test_the_honest_figure(encoder_arguments: dict[str, Any]) -> None:
    """Thresholds that see the documents they are judged on look better than they are."""
    rng = np.random.RandomState(0)
    labels = [[name for name in NAMES if rng.rand() < 0.4] for _ in TEXTS]
    classifier = LongTailClassifier(
        **encoder_arguments | {"epochs": 1}, folds=3, thresholds="per-label"
    ).fit(TEXTS, labels)
    facts, held_out = classifier.facts_, classifier.held_out_
    assert held_out is not None and facts.earned is not None
    assert facts.earned.macro_f1 < held_out.overall.macro_f1
    card = model_card(classifier)
    micro, macro = (f"{100 * value:.1f} %" for value in facts.earned)
    assert f"**micro-F1 {micro}, macro-F1 {macro}**" in card


def test_the_honest_figure_is_that_of_cross_validation(
    encoder_arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import longtail.classifier.facts as facts

    data, seen = TextData.from_lists(TEXTS, LABELS), []

    def kept(*arguments: Any, **settings: Any) -> Any:
        seen.append((arguments, settings))
        return cross_validated_score(*arguments, **settings)

    monkeypatch.setattr(facts, "cross_validated_score", kept)
    arguments = encoder_arguments | {"epochs": 1, "folds": 2, "objective": "macro", "seed": 3}
    classifier = LongTailClassifier(**arguments, thresholds="frequency")
    classifier.fit(data[6:], validation=data[:6])
    ((scores, truth, counts, method), settings), *more = seen
    assert not more
    assert scores.shape == truth.shape == (24, 3)
    assert counts.tolist() == [12, 6, 12]
    assert (method, settings["objective"], settings["seed"]) == ("frequency", "macro", 3)
    assert sorted(np.bincount(settings["folds"])) == [12, 12]
    assert classifier.facts_.earned == cross_validated_score(
        scores, truth, counts, method, **settings
    )


def test_too_few_to_say(encoder_arguments: dict[str, Any]) -> None:
    for method in ("auto", "global"):
        classifier = LongTailClassifier(**encoder_arguments | {"epochs": 1, "thresholds": method})
        classifier.fit(TEXTS[:4], LABELS[:4])
        assert classifier.facts_.earned is None
        assert "too few documents to estimate" in model_card(classifier)
        assert "On 1 held-out document," in model_card(classifier)


def test_the_limits_on_the_number_of_labels(encoder_arguments: dict[str, Any]) -> None:
    arguments = encoder_arguments | {"epochs": 1, "max_labels": 2, "at_least_one": True}
    card = model_card(LongTailClassifier(**arguments).fit(TEXTS, LABELS))
    assert "at most 2" in card and "nearest to its threshold" in card
    assert "Without the limits on the number of labels" in card


def test_a_validation_part_that_was_trained_on(encoder_arguments: dict[str, Any]) -> None:
    data = TextData.from_lists(TEXTS, LABELS)
    for folds, told in ((2, True), (1, False)):
        classifier = LongTailClassifier(**encoder_arguments | {"epochs": 1, "folds": folds})
        card = model_card(classifier.fit(data, validation=data[:5]))
        assert "| Documents | 24 |" in card
        assert ("| and of the validation part | 5, not counted below |" in card) is told
        assert ("On the 29 training documents" in card) is told
        assert ("On 5 held-out documents" in card) is not told
        # By the frequency in the training part, whatever that in the other is.
        assert classifier.held_out_ is not None
        assert classifier.facts_.held_out == classifier.held_out_.groups()


def test_very_many_pairs_are_not_evaluated_in_full(
    encoder_arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import longtail.classifier.deciding as deciding

    arguments = encoder_arguments | {"epochs": 1, "folds": 2}
    whole = LongTailClassifier(**arguments).fit(TEXTS, LABELS)
    monkeypatch.setattr(deciding, "EVALUATED_PAIRS", 24 * 3 - 1)
    classifier = LongTailClassifier(**arguments).fit(TEXTS, LABELS)
    assert whole.held_out_ is not None and classifier.held_out_ is None
    assert model_card(classifier) == model_card(whole)
    assert classifier.facts_.held_out == whole.held_out_.groups()


def test_labels_without_documents_are_counted(encoder_arguments: dict[str, Any]) -> None:
    data = TextData.from_lists(TEXTS, LABELS, [*NAMES, "tin"])
    card = model_card(LongTailClassifier(**encoder_arguments | {"epochs": 1}).fit(data))
    assert "| without a document | 1 |" in card
    assert "1 label had no training document: never predicted" in card
    assert "tin (" not in card


def run_snippet(card: str, which: int) -> dict[str, Any]:
    """Execute a Python block of the card."""
    code = re.findall(r"```python\n(.*?)```", card, re.DOTALL)[which]
    variables: dict[str, Any] = {}
    exec(code, variables)
    return variables


def test_the_snippet_runs(encoder: LongTailClassifier, tmp_path: Path) -> None:
    encoder.save_pretrained(tmp_path / "it's")
    card = model_card(encoder, str(tmp_path / "it's"))
    assert "transformers" not in card
    loaded = run_snippet(card, 0)["classifier"]
    assert loaded.predict_labels(TEXTS) == encoder.predict_labels(TEXTS)


def test_transformers_alone_gives_the_same_probabilities(
    encoder_arguments: dict[str, Any], tmp_path: Path
) -> None:
    settings = encoder_arguments["model_settings"] | {"pooling": "cls"}
    arguments = encoder_arguments | {"model_settings": settings, "thresholds": "global"}
    classifier = LongTailClassifier(**arguments).fit(TEXTS, LABELS)
    classifier.save_pretrained(tmp_path / "run")
    card = model_card(classifier, str(tmp_path / "run"))
    assert "by transformers alone" in card
    classify = run_snippet(card, 1)["classify"]
    limit = float(re.findall(r"probability is at least ([\d.]+)\.", card)[0])
    expected = classifier.predict_proba(TEXTS[:4])
    for row, found in enumerate(classify(TEXTS[:4])):
        by_name = {one["label"]: one["score"] for one in found}
        assert [by_name[name] for name in NAMES] == pytest.approx(expected[row].tolist(), abs=1e-5)
        decided = sorted(name for name, value in by_name.items() if value >= limit)
        assert decided == classifier.predict_labels(TEXTS[row : row + 1])[0]


def test_a_mean_or_several_encoders_do_not_claim_to_load_with_transformers(
    encoder: LongTailClassifier,
    cross_fitted: LongTailClassifier,
    encoder_arguments: dict[str, Any],
) -> None:
    settings = encoder_arguments["model_settings"] | {"pooling": "cls"}
    arguments = encoder_arguments | {"model_settings": settings, "epochs": 1, "folds": 2}
    several = LongTailClassifier(**arguments).fit(TEXTS, LABELS)
    for classifier in (encoder, cross_fitted, several):
        assert "pipeline(" not in model_card(classifier)


MARKUP = st.text(
    alphabet=st.sampled_from(list("ab|`*_[](){}<>!#&~$\\:-+'\"@ \t\n\r\x00\x1b\u2028\u202e")),
    min_size=1,
    max_size=12,
)


@given(names=st.lists(MARKUP, min_size=3, max_size=3, unique=True), path=MARKUP)
def test_names_of_labels_are_never_markup(
    encoder: LongTailClassifier, names: list[str], path: str
) -> None:
    import copy

    odd = copy.copy(encoder)
    odd.classes_ = np.asarray(names, dtype=object)
    stats = encoder.label_stats_
    odd.label_stats_ = LabelStats.from_counts(stats.label_counts, stats.n_samples, names)
    card = model_card(odd, path)
    assert card.count("```") == model_card(encoder).count("```")
    assert set(front_matter(card)) == {"library_name", "pipeline_tag", "tags"}
    plain = [line for line in model_card(encoder).splitlines() if not line.startswith("The rarest")]
    shown = [line for line in card.splitlines() if not line.startswith("The rarest")]
    assert len(shown) == len(plain)
    (rarest,) = [line for line in card.splitlines() if line.startswith("The rarest")]
    # An unescaped mark that opens a link, code, a tag, or emphasis.
    unescaped = re.sub(r"\\.", "", rarest)
    assert not set("`*[]<>|") & set(unescaped)


def test_settings_are_never_markup(encoder: LongTailClassifier) -> None:
    import copy
    import dataclasses

    odd = copy.copy(encoder)
    settings = {**encoder.plans_[0].model_settings, "encoder": "a|b\n# <script>", "x|y": "*z*"}
    odd.plans_ = (copy.copy(encoder.plans_[0]),)
    object.__setattr__(odd.plans_[0], "model_settings", settings)
    odd.thresholds_ = dataclasses.replace(encoder.thresholds_, method="`|<b>", objective="\n#")
    card = model_card(odd)
    assert "<script>" not in card and "<b>" not in card
    assert len(re.findall("^#", card, re.MULTILINE)) == 6
    assert all(len(row) == 2 for row in _split_rows(card))


def _split_rows(card: str) -> list[list[str]]:
    section = card.split("## What it is")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    return [re.split(r"(?<!\\)\|", row.strip("|")) for row in rows]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("microsoft/deberta-v3-base", "microsoft/deberta-v3-base"),
        ("/home/me/bert", None),
        ("models/mine", None),
    ],
)
def test_the_base_model_of_a_name(
    source: str,
    expected: str | None,
    encoder: LongTailClassifier,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import copy
    import dataclasses

    from longtail.classifier.facts import _base_model

    (tmp_path / "models" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    plan = copy.copy(encoder.plans_[0])
    object.__setattr__(plan, "model_settings", {**plan.model_settings, "encoder": source})
    odd = copy.copy(encoder)
    odd.plans_ = (plan,)
    odd.facts_ = dataclasses.replace(encoder.facts_, base_model=_base_model(plan))
    card = model_card(odd)
    assert front_matter(card).get("base_model") == expected
    # The way to somebody's folder is nobody's business.
    assert "/home/me" not in card
