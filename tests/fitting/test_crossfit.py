"""Cross-fitting: no document is scored by a model that saw it, no label by one that did not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from longtail.data import TextData
from longtail.errors import InputError, LongtailError
from longtail.fitting import Ensemble, Fitted, Plan, Work, fingerprint, fit
from longtail.fitting import ensemble as ensemble_room
from longtail.settings import TrainingConfig
from longtail.training import Moment, predict_logits

from .cases import LEAK, Remembering, RememberingPlan, numbered

WORDS = ("copper", "nickel", "tin", "wheat", "zinc")


def fitted(plan: Plan, data: TextData, *more: Any, **settings: Any) -> Fitted:
    found = fit(plan, data, *more, **settings)
    assert found is not None
    return found


label_matrices = st.tuples(st.integers(4, 30), st.integers(1, 8)).flatmap(
    lambda shape: arrays(np.int8, shape, elements=st.sampled_from([0, 0, 0, 1]))
)


@settings(max_examples=50)
@given(label_matrices, st.integers(2, 4), st.integers(0, 3))
def test_scores_of_every_document_by_a_model_that_has_not_seen_it(
    Y: np.ndarray, folds: int, seed: int
) -> None:
    data = numbered(Y)
    plan = RememberingPlan(folds=folds, training=TrainingConfig(seed=seed, device="cpu"))
    found = fitted(plan, data)
    fold_of = found.fold_of
    assert fold_of is not None and found.tuning is data
    sizes = np.bincount(fold_of, minlength=folds)
    assert len(sizes) == folds and sizes.max() - sizes.min() <= 1
    for row in range(len(data)):
        trained = Y[fold_of != fold_of[row]]
        counts = trained.sum(axis=0)
        # Masked exactly where no training document has the label; in the order of the documents.
        assert (np.ma.getmaskarray(found.scores)[row] == (counts == 0)).all()
        expected = counts + 0.25 * (row % 3)
        np.testing.assert_array_equal(found.scores.data[row], expected.astype(np.float32))
        assert (expected < LEAK).all()


@given(label_matrices, st.integers(2, 5))
def test_every_label_with_two_documents_is_trained_on_somewhere(Y: np.ndarray, folds: int) -> None:
    found = fitted(RememberingPlan(folds=min(folds, len(Y))), numbered(Y))
    known = found.ensemble.known
    assert known[:, Y.sum(axis=0) >= 2].any(axis=0).all()
    # And so many models know it as have a training document with it.
    assert found.fold_of is not None
    for fold, row in enumerate(known):
        assert (row == Y[found.fold_of != fold].any(axis=0)).all()


def test_two_documents_of_a_label_go_to_two_folds() -> None:
    """So that each of them is scored by a model that has learned the label from the other."""
    Y = np.zeros((40, 20), dtype=np.int8)
    for label in range(20):
        Y[[label, 39 - label], label] = 1
    found = fitted(RememberingPlan(folds=5), numbered(Y))
    assert found.fold_of is not None
    assert not np.ma.getmaskarray(found.scores)[Y.astype(bool)].any()


def test_the_mean_leaves_out_models_without_the_label() -> None:
    models = [Remembering(), Remembering(), Remembering()]
    for model, counts in zip(models, ([4, 0, 0], [2, 6, 0], [0, 8, 0]), strict=True):
        model.counts = np.array(counts, dtype=np.float32)
    known = np.array([model.counts > 0 for model in models])
    joined = Ensemble(list(models), known, "cpu")
    np.testing.assert_allclose(joined.scores(["0", "1"]), [[3, 7, 0], [3.25, 7.25, 0.25]])
    assert joined.scores([]).shape == (0, 3)
    blocks = list(joined.blocks(["0", "1", "3"], size=2))
    assert [(rows.start, rows.stop) for rows, _ in blocks] == [(0, 2), (2, 3)]
    np.testing.assert_array_equal(
        np.concatenate([block for _, block in blocks]), joined.scores(["0", "1", "3"])
    )


@settings(max_examples=50)
@given(label_matrices, st.integers(1, 9))
def test_sparse_scores_are_the_highest_of_the_dense_ones(Y: np.ndarray, kept: int) -> None:
    data = numbered(Y)
    plan = RememberingPlan(folds=3)
    dense = fitted(plan, data).scores
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ensemble_room, "DENSE_PAIRS", 1)
        patch.setattr(ensemble_room, "KEPT_LABELS", kept)
        sparse = fitted(plan, data).scores
    assert sp.issparse(sparse) and sparse.shape == dense.shape
    known = ~np.ma.getmaskarray(dense)
    for row in range(len(data)):
        start, stop = sparse.indptr[row : row + 2]
        labels, values = sparse.indices[start:stop], sparse.data[start:stop]
        # As many as there are, up to the limit; a label that was not learned takes no place.
        assert len(labels) == min(kept, known[row].sum())
        assert known[row, labels].all()
        np.testing.assert_array_equal(values, dense.data[row, labels])
        best = np.sort(dense.data[row, known[row]])[::-1][: len(labels)]
        np.testing.assert_array_equal(np.sort(values)[::-1], best)


def test_the_highest_scores() -> None:
    scores = np.array([[0.0, -1.0, 3.0, 2.0], [5.0, 0.0, 0.0, -2.0]], dtype=np.float32)
    found = ensemble_room.highest(scores, kept=2)
    assert found[0].indices.tolist() == [2, 3] and found[0].data.tolist() == [3.0, 2.0]
    assert 0 in found[1].indices and found.nnz == 4
    among = ensemble_room.highest(scores, np.array([1, 3]), kept=1)
    assert among.toarray().tolist() == [[0, 0, 0, 2.0], [0, 0, 0, 0]] and among.indices[1] == 1
    assert ensemble_room.highest(scores, np.zeros(0, dtype=np.int64)).nnz == 0


def test_one_fold_scores_the_validation_part() -> None:
    data = numbered([[1, 0, 0], [1, 1, 0], [0, 0, 0]])
    validation = TextData(
        ["7", "8"], sp.csr_matrix(np.eye(2, dtype=np.float32)), ("new", "label-1")
    )
    found = fitted(RememberingPlan(), data, validation)
    assert found.fold_of is None and found.tuning.texts == ["7", "8"]
    # On the labels of the training documents; one of them nobody has.
    assert found.tuning.Y.toarray().tolist() == [[0, 0, 0], [0, 1, 0]]
    assert found.scores.tolist() == [[2.25, 1.25, None], [2.5, 1.5, None]]
    assert found.ensemble.known.tolist() == [[True, True, False]]


def test_several_folds_train_on_the_validation_part_as_well() -> None:
    found = fitted(RememberingPlan(folds=2), numbered([[1], [1]]), numbered([[1], [1]]))
    assert found.tuning.texts == ["0", "1", "0", "1"] and len(found.scores) == 4


def test_what_cannot_be_fitted() -> None:
    data = numbered([[1], [0], [1]])
    for validation in (None, data.select([])):
        with pytest.raises(InputError, match=r"validation part .* needed, got 3 and 0 documents"):
            fit(RememberingPlan(), data, validation)
    with pytest.raises(InputError, match="cannot make 4 folds of 3 documents"):
        fit(RememberingPlan(folds=4), data)
    with pytest.raises(InputError, match="expected a fold from 0 to 1, got 2"):
        fit(RememberingPlan(folds=2), data, only=2)
    with pytest.raises(InputError, match="one fold only"):
        fit(RememberingPlan(), data, data, only=0)


def documents(n: int = 30) -> TextData:
    draw = np.random.default_rng(2)
    labels = [
        draw.choice(WORDS, size=draw.integers(1, 3), replace=False).tolist() for _ in range(n)
    ]
    filler = [["rose"] * int(draw.integers(0, 6)) for _ in range(n)]
    texts = [" ".join(words + rest) for words, rest in zip(labels, filler, strict=True)]
    return TextData.from_lists(texts, labels, WORDS)


def encoder_plan(tiny_bert: Path, folds: int = 3, **training: Any) -> Plan:
    used = {"epochs": 2, "batch_size": 8, "device": "cpu", **training}
    encoder = {"encoder": str(tiny_bert)}
    return Plan("encoder", encoder, training=TrainingConfig(**used), folds=folds)


def weights(found: Fitted) -> list[dict[str, torch.Tensor]]:
    return [model.network.state_dict() for model in found.ensemble.models]  # type: ignore[attr-defined]


def equal(one: Fitted, other: Fitted) -> bool:
    if not (np.ma.allequal(one.scores, other.scores) and one.scores.shape == other.scores.shape):
        return False
    pairs = zip(weights(one), weights(other), strict=True)
    return all(torch.equal(a[name], b[name]) for a, b in pairs for name in a)


def test_encoders(tiny_bert: Path) -> None:
    """Same seed, same result; the caller's random numbers are left alone; moments in order."""
    data, seen = documents(), []
    torch.manual_seed(3)
    expected_draw = torch.rand(4)
    torch.manual_seed(3)
    first = fitted(encoder_plan(tiny_bert), data, progress=seen.append)
    assert torch.equal(torch.rand(4), expected_draw)
    second = fitted(encoder_plan(tiny_bert), data)
    assert equal(first, second)
    assert not equal(first, fitted(encoder_plan(tiny_bert, seed=1), data))
    places = [(moment.fold, moment.step) for moment in seen]
    assert places == [(fold, step) for fold in (1, 2, 3) for step in range(1, 7)]
    assert {(moment.folds, moment.steps) for moment in seen} == {(3, 6)}
    # The models of the folds differ, and predict the mean of their logits.
    joined = first.ensemble.scores(data.texts)
    each = [
        predict_logits(model.network, model.encode(data.texts))  # type: ignore[attr-defined]
        for model in first.ensemble.models
    ]
    assert not np.allclose(each[0], each[1])
    np.testing.assert_allclose(joined, np.mean(each, axis=0), atol=1e-6)
    # Out of fold: the scores of the model that left the document out.
    assert first.fold_of is not None
    own = np.stack(each)[first.fold_of, np.arange(len(data))]
    np.testing.assert_allclose(first.scores, own, atol=1e-6)


def test_texts_are_made_ready_once(tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the fit for all folds and their scores, by a prediction for all models."""
    from longtail.models.encoder import EncoderModel

    encode, counted = EncoderModel.encode, []

    def counting(self: EncoderModel, texts: Any) -> Any:
        counted.append(len(texts))
        return encode(self, texts)

    monkeypatch.setattr(EncoderModel, "encode", counting)
    found = fitted(encoder_plan(tiny_bert, epochs=1), documents())
    assert counted == [30]
    found.ensemble.scores(documents().texts[:7])
    assert counted == [30, 7]


def test_many_texts_are_kept_for_the_next_training(
    tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from longtail.fitting import crossfit
    from longtail.models.encoder import EncoderModel

    monkeypatch.setenv("LONGTAIL_CACHE", str(tmp_path))
    first = fitted(encoder_plan(tiny_bert, epochs=1), documents())
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(crossfit, "CACHED_CHARACTERS", 100)
    again = [fitted(encoder_plan(tiny_bert, epochs=1), documents()) for _ in range(2)]
    assert len(list((tmp_path / "tokens").iterdir())) == 1
    assert equal(first, again[0]) and equal(first, again[1])
    # What is predicted is not kept.
    model = again[1].ensemble.models[0]
    assert isinstance(model, EncoderModel) and model.cache is None


def test_folds_one_by_one_then_gathered(tiny_bert: Path, tmp_path: Path) -> None:
    data, plan = documents(), encoder_plan(tiny_bert)
    whole = fitted(plan, data)
    work = Work(tmp_path / "folds")
    work.begin(fingerprint([plan], data, None), resume=True)
    seen: list[Moment] = []
    for fold in (2, 0):
        assert fit(plan, data, work=work, only=fold, progress=seen.append) is None
    assert {moment.fold for moment in seen} == {1, 3}
    seen.clear()
    gathered = fitted(plan, data, work=work, progress=seen.append)
    # The one that was left is trained now.
    assert {moment.fold for moment in seen} == {2}
    assert equal(whole, gathered)
    seen.clear()
    assert equal(whole, fitted(plan, data, work=work, progress=seen.append)) and not seen


def test_one_fold_with_patience(tiny_bert: Path) -> None:
    """The judge sees the logits of the validation part, and its best epoch is kept."""
    data, given = documents(), iter([0.1, 0.7, 0.2, 0.3])
    judged: list[np.ndarray] = []

    def judge(logits: np.ndarray) -> float:
        judged.append(logits)
        return next(given)

    plan = encoder_plan(tiny_bert, folds=1, epochs=9, patience=2)
    found = fitted(plan, data.select(np.arange(20)), data.select(np.arange(20, 30)), judge=judge)
    assert len(judged) == 4
    np.testing.assert_array_equal(found.scores, judged[1])


def test_a_loss_that_is_no_number_names_the_users_documents(tiny_bert: Path) -> None:
    ids = list("abcdefghij")
    data = TextData.from_lists(["copper rose", "wheat"] * 5, [["a"], ["b"]] * 5, ids=ids)
    plan = encoder_plan(tiny_bert, folds=2, learning_rate=1e30, batch_size=1)
    with pytest.raises(
        LongtailError, match=r"at documents [a-j] \('(copper rose|wheat)'\)\. Lower"
    ):
        fit(plan, data)
