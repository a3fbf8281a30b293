"""What methods earn on unseen documents, the choice among them, and that no test data is seen."""

from __future__ import annotations

import gzip
import inspect
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.svm import LinearSVC

from longtail.data.splits import assign_stratified
from longtail.errors import InputError, UnknownNameError
from longtail.evaluation import evaluate
from longtail.labels import LabelStats, encode_labels
from longtail.thresholds import (
    METHODS,
    OBJECTIVES,
    Thresholds,
    cross_validated_score,
    fit_thresholds,
    list_methods,
    methods,
    selection,
)
from longtail.thresholds.tuning import make_tuning

from .cases import Case, earned, long_tail

SHARED = Path(os.environ.get("LONGTAIL_SHARED", Path(__file__).parents[3] / "shared"))
REUTERS = SHARED / "corpora" / "reuters"


def parameters(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters)


def test_no_function_that_tunes_can_see_test_data() -> None:
    tuned_on = {"scores", "y_true", "label_counts"}
    how = {"method", "objective", "scale", "folds", "seed"}
    assert parameters(fit_thresholds) == tuned_on | how | {"top_k", "at_least_one"}
    assert parameters(cross_validated_score) == tuned_on | how
    for method in METHODS.values():
        assert parameters(method.fit) - {"shrinkage"} == {"tuning", "objective", "folds"}


def test_what_judges_cannot_tune() -> None:
    judging = inspect.signature(evaluate).parameters
    assert {"y_true", "scores", "thresholds"} <= set(judging)
    assert not {"method", "objective", "folds", "top_k", "at_least_one"} & set(judging)
    assert judging["thresholds"].default is inspect.Parameter.empty
    assert judging["thresholds"].annotation == "Thresholds"
    assert not hasattr(Thresholds, "fit")
    assert parameters(Thresholds.apply) == {"self", "scores", "scale"}


# Cross-validation


@pytest.mark.parametrize("kind", ["dense", "masked", "csr"])
@pytest.mark.parametrize("method", METHODS)
def test_cross_validation_by_hand(method: str, kind: str) -> None:
    scores, labels, counts = long_tail(90, 6, 1)
    case = Case(labels, scores, np.random.default_rng(1).random(scores.shape) < 0.8, kind)
    folds = np.repeat([7, 3, 5], 30)  # any names
    given = case.given()
    decided = np.zeros(labels.shape)
    for fold in (3, 5, 7):
        rest, own = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        found = fit_thresholds(given[rest], labels[rest], counts, method, folds=folds[rest])
        decided[own] = found.apply(given[own]).toarray()
    result = cross_validated_score(given, labels, counts, method, folds=folds)
    assert result.micro_f1 == pytest.approx(earned(case.judged(), decided, "micro"))
    assert result.macro_f1 == pytest.approx(earned(case.judged(), decided, "macro"))
    assert result.of("mean") == pytest.approx(earned(case.judged(), decided, "mean"))


def test_auto_is_nested_in_cross_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, labels, counts = long_tail(100, 6, 1)
    folds = np.arange(100) % 4
    seen = []
    choose = selection._choose

    def watched(tuning: Any, objective: Any, groups: Any) -> Any:
        seen.append((tuning.n_documents, sorted(set(groups))))
        return choose(tuning, objective, groups)

    monkeypatch.setattr(selection, "_choose", watched)
    cross_validated_score(scores, labels, counts, "auto", folds=folds)
    assert seen == [(75, [1, 2, 3]), (75, [0, 2, 3]), (75, [0, 1, 3]), (75, [0, 1, 2])]
    seen.clear()
    two = cross_validated_score(scores, labels, counts, "auto", folds=folds % 2)
    # Of two folds one is left to choose with: no choice can be judged.
    assert seen == []
    assert two == cross_validated_score(scores, labels, counts, "global", folds=folds % 2)


def test_cross_validation_sees_the_overfitting() -> None:
    rng = np.random.default_rng(0)
    labels = (rng.random((60, 40)) < 0.05).astype(int)
    scores = rng.normal(size=labels.shape) + labels
    unseen = cross_validated_score(scores, labels, np.ones(40), "micromacro", objective="macro")
    found = fit_thresholds(scores, labels, np.ones(40), "micromacro", objective="macro")
    assert unseen.macro_f1 < earned(labels, found.apply(scores).toarray(), "macro") - 0.03


@pytest.mark.parametrize(
    ("folds", "message"),
    [([0] * 10, "at least two documents in two folds"), ([0, 1], r"each of 10 documents.*\(2,\)")],
)
def test_folds_are_checked(folds: list[int], message: str) -> None:
    scores, labels, counts = long_tail(10, 3, 0)
    with pytest.raises(InputError, match=message):
        cross_validated_score(scores, labels, counts, "global", folds=folds)
    if len(folds) == 2:
        with pytest.raises(InputError, match=message):
            fit_thresholds(scores, labels, counts, "global", folds=folds)
    else:
        assert fit_thresholds(scores, labels, counts, "auto", folds=folds).method == "global"


def test_folds_by_seed() -> None:
    first, again, other = (selection._folds(None, 103, seed) for seed in (0, 0, 1))
    assert (first == again).all() and (first != other).any()
    assert sorted(np.bincount(first)) == [20, 20, 21, 21, 21]
    names = np.array(["b", "a", "b"])
    assert selection._folds(names, 3, 0).tolist() == [1, 0, 1]


def test_one_document_cannot_be_cross_validated() -> None:
    with pytest.raises(InputError, match="two documents"):
        cross_validated_score([[1.0]], [[1]], [1], "global")


@pytest.mark.parametrize("function", [fit_thresholds, cross_validated_score])
def test_unusable_input_is_refused(function: Any) -> None:
    scores, labels, counts = long_tail(10, 3, 0)
    with pytest.raises(UnknownNameError, match=r"threshold method 'globl'.*'global'"):
        function(scores, labels, counts, "globl")
    with pytest.raises(UnknownNameError, match=r"objective 'makro'.*'macro'"):
        function(scores, labels, counts, "global", objective="makro")
    with pytest.raises(InputError, match=r"\(10, 3\).*\(9, 3\)"):
        function(scores[:9], labels, counts, "global")
    with pytest.raises(InputError, match=r"one training count per label, 3 of them, got.*\(2,\)"):
        function(scores, labels, counts[:2], "global")
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(InputError, match="counts must be finite and not negative"):
            function(scores, labels, [1.0, 1.0, bad], "global")
    with pytest.raises(InputError, match="labels must be 0 or 1"):
        function(scores, scores, counts, "global")
    with pytest.raises(InputError, match="at least one document"):
        function(np.zeros((0, 3)), np.zeros((0, 3)), counts, "global")
    with pytest.raises(InputError, match="scale must be"):
        function(scores, labels, counts, "global", scale="auto")
    scores[3, 1] = np.nan
    with pytest.raises(InputError, match="NaN"):
        function(scores, labels, counts, "global")


# The choice


def test_auto_is_listed_last() -> None:
    assert list_methods() == [*METHODS, "auto"]
    assert set(selection.CANDIDATES) == set(METHODS) - {"grid"}


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_pure_noise_misleads_hardly(objective: Any) -> None:
    chosen, lost = [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        labels = (rng.random((200, 15)) < 0.1).astype(int)
        scores, unseen = rng.normal(size=(2, *labels.shape))
        counts = labels.sum(axis=0)
        found = fit_thresholds(scores, labels, counts, objective=objective)
        single = fit_thresholds(scores, labels, counts, "global", objective=objective)
        chosen.append(found.method)
        # Noise too: no threshold can earn more than another but by chance.
        reached = [
            earned(labels, one.apply(unseen).toarray(), objective) for one in (single, found)
        ]
        lost.append(reached[0] - reached[1])
    assert chosen.count("per-label") >= 9, chosen
    assert np.mean(lost) < 0.01, lost


def test_a_clear_gain_is_taken_and_reported() -> None:
    rng = np.random.default_rng(0)
    labels = (rng.random((600, 8)) < 0.3).astype(int)
    places = np.linspace(-6, 6, 8)  # every label has its own scale
    scores = rng.normal(size=labels.shape) + 3 * labels + places
    found = fit_thresholds(scores, labels, [100] * 8)
    assert found.method == "micromacro"
    assert set(found.details["earned"]) == set(selection.CANDIDATES)
    for method, both in found.details["earned"].items():
        expected = cross_validated_score(scores, labels, [100] * 8, method)
        assert both == [expected.micro_f1, expected.macro_f1]
    chosen = sum(found.details["earned"][found.method])
    assert chosen > sum(found.details["earned"]["global"]) + 0.2


def test_where_all_earn_the_same_it_is_the_usual_one() -> None:
    labels = (np.random.default_rng(0).random((100, 6)) < 0.4).astype(int)
    found = fit_thresholds(2.0 * labels - 1, labels, labels.sum(axis=0))
    assert found.method == selection.USUAL
    assert {tuple(both) for both in found.details["earned"].values()} == {(1.0, 1.0)}


@pytest.mark.parametrize(("gain", "taken"), [(0.02, False), (0.06, False), (0.07, True)])
def test_a_gain_of_three_standard_errors_is_none(
    gain: float, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, labels, counts = long_tail(200, 8, 0)
    scores += np.linspace(-6, 6, 8)
    monkeypatch.setattr(selection, "_gain", lambda *given: (gain, 0.02))
    assert (fit_thresholds(scores, labels, counts).method != "per-label") is taken


def test_the_noise_is_a_standard_error_over_documents() -> None:
    labels = np.ones((100, 1), dtype=int)
    right = sp.csr_matrix(np.repeat([[1.0], [0.0]], [50, 50], axis=0))
    none = sp.csr_matrix((100, 1))
    tuning = make_tuning(np.zeros((100, 1)), labels, [1])
    gain, noise = selection._gain(tuning, none, right, "micro")
    assert gain == pytest.approx(2 * 50 / 150)
    # F1 = 2h / (h + 100), h binomial(100, 1/2): derivative 200 / 150^2 times a deviation of 5.
    assert noise == pytest.approx(5 * 200 / 150**2, rel=0.2)
    assert selection._gain(tuning, right, right, "mean") == (0.0, 0.0)


def many_rare(n_documents: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Five frequent labels and 150 rare ones; the best threshold is the same for all of them."""
    rng = np.random.default_rng(seed)
    share = np.append(np.full(5, 0.2), np.full(150, 0.01))
    labels = (rng.random((n_documents, len(share))) < share).astype(int)
    return rng.normal(size=labels.shape) + 2.5 * labels, labels


def test_per_label_without_shrinkage_overfits_where_auto_does_not() -> None:
    scores, labels = many_rare(200, 0)
    unseen, unseen_labels = many_rare(2000, 1)
    counts = labels.sum(axis=0)
    tuning = make_tuning(scores, labels, counts)
    greedy, _ = methods.per_label(tuning, "mean", np.zeros(200, dtype=int), shrinkage=0.0)
    single = fit_thresholds(scores, labels, counts, "global")
    auto = fit_thresholds(scores, labels, counts)
    decide = {"greedy": Thresholds(greedy), "global": single, "auto": auto}
    seen = {name: found.apply(scores).toarray() for name, found in decide.items()}
    then = {name: found.apply(unseen).toarray() for name, found in decide.items()}
    before = {name: earned(labels, decided, "mean") for name, decided in seen.items()}
    after = {name: earned(unseen_labels, decided, "mean") for name, decided in then.items()}
    # On what it has seen it is the best by far; on what it has not, the worst.
    assert before["greedy"] > before["global"] + 0.03
    assert after["greedy"] < after["global"] - 0.05
    assert after["auto"] > after["global"] - 0.01


# Out-of-fold scores


def test_a_label_missing_from_a_fold_is_masked_not_constant() -> None:
    scores, labels, counts = long_tail(200, 6, 4)
    folds = np.arange(200) % 4
    # Label 5 has documents in fold 0 only: its model of fold 0 never saw one, and gives a constant.
    labels[:, 5] = 0
    labels[folds == 0, 5] = np.arange(50) < 8
    constant = scores.copy()
    constant[folds == 0, 5] = 9.0
    masked = np.ma.MaskedArray(constant, np.zeros(scores.shape, dtype=bool))
    masked[folds == 0, 5] = np.ma.masked
    rest = labels.copy()
    rest[:, 5] = 0
    for method in (*METHODS, "auto"):
        believed = fit_thresholds(constant, labels, counts, method, folds=folds)
        found = fit_thresholds(masked, labels, counts, method, folds=folds)
        assert found.apply(masked)[folds == 0][:, 5].nnz == 0
        # What stands under the mask, and the labels there, count for nothing.
        masked_otherwise = np.ma.MaskedArray(np.where(masked.mask, -1e9, constant), masked.mask)
        other = fit_thresholds(masked_otherwise, rest, counts, method, folds=folds)
        np.testing.assert_array_equal(other.values, found.values)
        if method == "per-label":
            curve = fit_thresholds(masked, labels, counts, "frequency", folds=folds)
            assert found.values[5] == curve.values[5] != believed.values[5]
    score = cross_validated_score(masked, labels, counts, "global", folds=folds)
    assert score == cross_validated_score(masked, rest, counts, "global", folds=folds)


# Reuters


def read_reuters() -> Any:
    def read(*parts: str) -> tuple[list[str], list[list[str]]]:
        records = []
        for part in parts:
            with gzip.open(REUTERS / f"{part}.jsonl.gz", "rt", encoding="utf-8") as file:
                records += [json.loads(line) for line in file]
        return [record["text"] for record in records], [record["labels"] for record in records]

    return read("train", "validation"), read("test")


def one_vs_rest(features: Any, labels: np.ndarray, others: Any) -> np.ndarray:
    """Scores of the other documents; masked for a label without a training document."""
    found = np.ma.masked_all((others.shape[0], labels.shape[1]))
    for label in np.flatnonzero(labels.any(axis=0)):
        found[:, label] = (
            LinearSVC(random_state=0).fit(features, labels[:, label]).decision_function(others)
        )
    return found


@pytest.mark.skipif(not REUTERS.is_dir(), reason=f"no Reuters in {SHARED}, see LONGTAIL_SHARED")
def test_auto_on_reuters() -> None:
    (texts, lists), (test_texts, test_lists) = read_reuters()
    names = sorted({name for labels in lists for name in labels})
    Y, _ = encode_labels(lists, names)
    test_Y, _ = encode_labels(test_lists, names)
    labels = Y.toarray().astype(int)
    vectorizer = TfidfVectorizer(sublinear_tf=True)
    features = vectorizer.fit_transform(texts)
    folds = assign_stratified(Y, (1 / 3, 1 / 3, 1 / 3), 0, first_is_train=False)
    scores = np.ma.masked_all(labels.shape)
    for fold in range(3):
        rest, own = folds != fold, folds == fold
        scores[own] = one_vs_rest(features[rest], labels[rest], features[own])
    counts = labels.sum(axis=0)
    thresholds = fit_thresholds(scores, Y, counts, "auto", objective="mean", folds=folds)
    test_scores = one_vs_rest(features, labels, vectorizer.transform(test_texts))
    stats = LabelStats.from_counts(counts, len(texts))
    overall = evaluate(test_Y, np.ma.getdata(test_scores), thresholds, stats).overall
    assert overall.micro_f1 > 0.88 and overall.macro_f1 > 0.61, overall
