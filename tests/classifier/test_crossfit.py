"""Cross-fitting: no document is scored by a model trained on it, no label by one that lacks it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from longtail.classifier import crossfit
from longtail.classifier import ensemble as ensemble_module
from longtail.classifier import folds as folds_module
from longtail.classifier.crossfit import Fitted, Run, score_by_name
from longtail.classifier.ensemble import Ensemble
from longtail.classifier.plan import Plan
from longtail.data import TextData
from longtail.errors import InputError, LongtailError
from longtail.labels import LabelStats
from longtail.models import Encoder
from longtail.models.encoder import EncoderModel
from longtail.training import Training

from .cases import LEAK, Remember, Remembering, documents, fit_one, numbered, remembering
from .conftest import Patch

pytestmark = pytest.mark.usefixtures("remember")


def fit(plan: Plan, data: TextData, validation: TextData | None = None, **run: Any) -> Fitted:
    return fit_one(plan, data, validation, Run(**run))


label_matrices = st.tuples(st.integers(4, 30), st.integers(1, 8)).flatmap(
    lambda shape: arrays(np.int8, shape, elements=st.sampled_from([0, 0, 0, 1]))
)


@settings(max_examples=50)
@given(label_matrices, st.integers(2, 4), st.integers(0, 3))
def test_no_document_is_scored_by_a_model_that_knows_it(
    Y: np.ndarray, folds: int, seed: int
) -> None:
    data = numbered(Y)
    fitted = fit(remembering(folds, random_state=seed), data)
    fold_of = fitted.fold_of
    assert fold_of is not None and len(fitted.held_out) == len(data)
    sizes = np.bincount(fold_of, minlength=folds)
    assert len(sizes) == folds and sizes.max() - sizes.min() <= 1
    for row in range(len(data)):
        counts = Y[fold_of != fold_of[row]].sum(axis=0)
        # Masked exactly where no training document has the label; in the order of the documents.
        assert (np.ma.getmaskarray(fitted.scores)[row] == (counts == 0)).all()
        expected = counts + 0.25 * (row % 3)
        np.testing.assert_array_equal(fitted.scores.data[row], expected.astype(np.float32))
        assert (expected < LEAK).all()
    known = fitted.ensemble.known
    assert known[:, Y.sum(axis=0) >= 2].any(axis=0).all()
    for fold, row in enumerate(known):
        assert (row == Y[fold_of != fold].any(axis=0)).all()


def test_two_documents_of_a_label_go_to_two_folds() -> None:
    """Each is then scored by a model that has learned the label from the other."""
    Y = np.zeros((40, 20), dtype=np.int8)
    for label in range(20):
        Y[[label, 39 - label], label] = 1
    scores = fit(remembering(5), numbered(Y)).scores
    assert not np.ma.getmaskarray(scores)[Y.astype(bool)].any()


def test_the_mean_leaves_out_models_without_the_label() -> None:
    models = [Remembering(Remember()) for _ in range(3)]
    for model, counts in zip(models, ([4, 0, 0], [2, 6, 0], [0, 8, 0]), strict=True):
        model.counts = np.array(counts, dtype=np.float32)
    known = np.array([model.counts > 0 for model in models])
    ensemble = Ensemble([*models], known, (3,))
    np.testing.assert_allclose(ensemble.scores(["0", "1"]), [[3, 7, 0], [3.25, 7.25, 0.25]])
    assert ensemble.scores([]).shape == (0, 3)
    blocks = list(ensemble.blocks(["0", "1", "3"], size=2))
    assert [(rows.start, rows.stop) for rows, _ in blocks] == [(0, 2), (2, 3)]
    joined = np.concatenate([block for _, block in blocks])
    np.testing.assert_array_equal(joined, ensemble.scores(["0", "1", "3"]))


@settings(max_examples=50)
@given(label_matrices, st.integers(1, 9))
def test_sparse_scores_are_the_highest_of_the_dense_ones(Y: np.ndarray, kept: int) -> None:
    data = numbered(Y)
    dense = fit(remembering(3), data).scores
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ensemble_module, "DENSE_PAIRS", 1)
        patch.setattr(ensemble_module, "KEPT_LABELS", kept)
        sparse = fit(remembering(3), data).scores
    assert sp.issparse(sparse) and sparse.shape == dense.shape
    known = ~np.ma.getmaskarray(dense)
    for row in range(len(data)):
        start, stop = sparse.indptr[row : row + 2]
        labels, values = sparse.indices[start:stop], sparse.data[start:stop]
        # An unknown label does not count towards the limit.
        assert len(labels) == min(kept, known[row].sum())
        assert known[row, labels].all()
        np.testing.assert_array_equal(values, dense.data[row, labels])
        best = np.sort(dense.data[row, known[row]])[::-1][: len(labels)]
        np.testing.assert_array_equal(np.sort(values)[::-1], best)


def test_one_fold_scores_the_validation_part() -> None:
    data = numbered([[1, 0, 0], [1, 1, 0], [0, 0, 0]])
    Y = sp.csr_matrix(np.eye(2, dtype=np.float32))
    fitted = fit(remembering(), data, TextData(["7", "8"], Y, ("new", "label-1")))
    assert fitted.fold_of is None and fitted.held_out.texts == ["7", "8"]
    # On the labels of the training documents, one of which has none.
    assert fitted.held_out.Y.toarray().tolist() == [[0, 0, 0], [0, 1, 0]]
    assert fitted.scores.tolist() == [[2.25, 1.25, None], [2.5, 1.5, None]]
    assert fitted.ensemble.known.tolist() == [[True, True, False]]


def test_several_folds_also_train_on_the_validation_part() -> None:
    fitted = fit(remembering(2), numbered([[1], [1]]), numbered([[1], [1]]))
    assert fitted.held_out.texts == ["0", "1", "0", "1"] and len(fitted.scores) == 4


def test_invalid_folds_and_parts() -> None:
    data = numbered([[1], [0], [1]])
    for folds, validation, only_fold, message in (
        (1, None, None, r"a validation part .* got 3 and 0 documents"),
        (1, data.select([]), None, r"a validation part .* got 3 and 0 documents"),
        (1, data, 0, "folds=1 has no folds to fit separately"),
        (4, None, None, "cannot make 4 folds of 3 documents"),
        (2, None, -1, "expected a fold from 0 to 1, got -1"),
        (2, None, 2, "expected a fold from 0 to 1, got 2"),
    ):
        with pytest.raises(InputError, match=message):
            fit(remembering(folds), data, validation, only_fold=only_fold)


def encoder_plan(tiny_bert: Path, folds: int = 3, random_state: int = 0, **training: Any) -> Plan:
    used = Training(**{"epochs": 2, "batch_size": 8, "device": "cpu", **training})
    return Plan(Encoder(str(tiny_bert)), training=used, folds=folds, random_state=random_state)


def equal(one: Fitted, other: Fitted) -> bool:
    if not (np.ma.allequal(one.scores, other.scores) and one.scores.shape == other.scores.shape):
        return False
    states = [
        [model.network.state_dict() for model in fitted.ensemble.models]  # type: ignore[attr-defined]
        for fitted in (one, other)
    ]
    return all(torch.equal(a[k], b[k]) for a, b in zip(*states, strict=True) for k in a)


def test_encoders(tiny_bert: Path) -> None:
    """Seeds determine models; progress is in order; each held-out score is of the right model."""
    data, moments = documents(), []
    first = fit(encoder_plan(tiny_bert), data, progress=moments.append)
    assert equal(first, fit(encoder_plan(tiny_bert), data))
    assert not equal(first, fit(encoder_plan(tiny_bert, random_state=1), data))
    steps = [(moment.fold, moment.done) for moment in moments]
    assert steps == [(fold, step) for fold in (1, 2, 3) for step in range(1, 7)]
    assert {(moment.folds, moment.total) for moment in moments} == {(3, 6)}
    # The models of the folds differ, and predictions are the mean of their logits.
    each = [model.scores(data.texts) for model in first.ensemble.models]
    assert not np.allclose(each[0], each[1])
    np.testing.assert_allclose(first.ensemble.scores(data.texts), np.mean(each, 0), atol=1e-6)
    # Held-out scores are of the model that was trained without the document.
    assert first.fold_of is not None
    held_out = np.stack(each)[first.fold_of, np.arange(len(data))]
    np.testing.assert_allclose(first.scores, held_out, atol=1e-6)


def test_texts_are_encoded_once(tiny_bert: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    """A fit encodes once for all folds and their scores, a prediction once for all models."""
    encode, calls = EncoderModel.encode, []

    def counting(self: EncoderModel, texts: Any, cache: Path | None = None) -> Any:
        calls.append((len(texts), cache))
        return encode(self, texts, cache)

    monkeypatch.setattr(EncoderModel, "encode", counting)
    monkeypatch.setenv("LONGTAIL_CACHE", str(tmp_path))
    first = fit(encoder_plan(tiny_bert, epochs=1), documents())
    first.ensemble.scores(documents().texts[:7])
    assert calls == [(30, None), (7, None)]
    # Tokens of many texts are cached, those of a prediction never.
    monkeypatch.setattr(folds_module, "CACHED_CHARACTERS", 100)
    assert not list(tmp_path.iterdir())
    calls.clear()
    again = [fit(encoder_plan(tiny_bert, epochs=1), documents()) for _ in range(2)]
    again[1].ensemble.scores(documents().texts)
    assert calls == [(30, tmp_path / "tokens"), (30, tmp_path / "tokens"), (30, None)]
    assert len(list((tmp_path / "tokens").iterdir())) == 1
    assert equal(first, again[0]) and equal(first, again[1])


def test_early_stopping_keeps_the_best(tiny_bert: Path, monkeypatch: Patch) -> None:
    """By the logits of the validation part, and the statistics of the training part."""
    data, values = documents(), iter([0.1, 0.7, 0.2, 0.3])
    logits: list[np.ndarray] = []

    def score_by_name(name: str, Y: sp.csr_matrix, stats: Any) -> Any:
        assert name == "macro_f1" and np.array_equal(Y.toarray(), data.Y[20:].toarray())
        assert stats.n_samples == 20
        return lambda scores: logits.append(scores) or next(values)

    monkeypatch.setattr(crossfit, "score_by_name", score_by_name)
    stopping = {"early_stopping_patience": 2, "early_stopping_metric": "macro_f1"}
    plan = encoder_plan(tiny_bert, folds=1, epochs=9, **stopping)
    fitted = fit(plan, data[:20], data[20:])
    assert len(logits) == 4
    np.testing.assert_array_equal(fitted.scores, logits[1])


def test_a_loss_of_nan_names_the_documents(tiny_bert: Path) -> None:
    ids = list("abcdefghij")
    data = TextData.from_lists(["copper rose", "wheat"] * 5, [["a"], ["b"]] * 5, ids=ids)
    plan = encoder_plan(tiny_bert, folds=2, learning_rate=1e30, batch_size=1)
    message = r"at documents [a-j] \('(copper rose|wheat)'\)\. Lower"
    with pytest.raises(LongtailError, match=message):
        fit(plan, data)


@pytest.mark.parametrize("score", [1e9, -2e9, np.nan, np.inf])
def test_a_diverged_training_is_refused(score: float, monkeypatch: Patch) -> None:
    scores = Remembering.scores
    monkeypatch.setattr(Remembering, "scores", lambda *args: scores(*args) * 0 + score)
    with pytest.raises(LongtailError, match=r"the training diverged. Lower the learning rate"):
        fit(remembering(2), numbered(np.eye(4)))


TRUTH = sp.csr_matrix(np.array([[1, 0, 0], [0, 1, 0], [1, 0, 1], [0, 1, 0]], dtype=np.float32))
STATS = LabelStats.from_counts([50, 20, 2], 60)
PERFECT = np.where(TRUTH.toarray() > 0, 3.0, -3.0).astype(np.float32)
POOR = np.array([[3, 1, 2], [2, 1, 3], [-2, 2, -3], [3, 2, 1]], dtype=np.float32)
METRICS = ["micro_f1", "macro_f1", "mean_f1", "tail_macro_f1", "hamming_loss", "precision@1"]


@pytest.mark.parametrize("name", METRICS)
def test_better_predictions_have_a_higher_score(name: str) -> None:
    score = score_by_name(name, TRUTH, STATS)
    assert score(PERFECT) > score(POOR)
    # A threshold is fitted each time.
    assert score(PERFECT) == score(PERFECT + 40) == (0 if name == "hamming_loss" else 1)
    nothing = sp.csr_matrix(TRUTH.shape, dtype=np.float32)
    assert math.isfinite(score_by_name(name, nothing, STATS)(PERFECT))


def test_the_mean_is_of_micro_and_macro() -> None:
    # Nothing right: the threshold that any objective chooses is the same.
    logits = np.where(TRUTH.toarray() > 0, -1.0, 1.0).astype(np.float32)
    micro, macro, mean = (score_by_name(m, TRUTH, STATS)(logits) for m in METRICS[:3])
    assert micro != macro and mean == (micro + macro) / 2
