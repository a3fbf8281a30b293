"""Blends: the same folds, weights from held-out scores, the sum of the members' means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from longtail import Bag, Encoder, LongTailClassifier, Svm, Training
from longtail.classifier import weights as weights_module
from longtail.classifier.blend import _weighted_sum, fit_plans
from longtail.classifier.crossfit import Fitted, Run
from longtail.classifier.plan import Plan, fingerprint
from longtail.classifier.saving import model_card
from longtail.classifier.weights import blend_weights
from longtail.classifier.work import open_work
from longtail.data import TextData
from longtail.errors import InputError
from longtail.progress import Progress

from .cases import CPU, LABELS, TEXTS, documents, fit_one, reload

RUN = Run()
DOCUMENTS = documents(60)


def plans(folds: int = 3) -> tuple[Plan, ...]:
    return (
        Plan(Bag(C=100.0), folds=folds, training=CPU),
        Plan(Svm(), folds=folds, training=CPU),
        Plan(Bag(C=100.0, ngrams=2), "bce", folds=folds, training=CPU),
    )


def fit_blend(folds: int = 3) -> Fitted:
    fitted = fit_plans(plans(folds), DOCUMENTS, DOCUMENTS[:20] if folds == 1 else None, RUN)
    assert fitted is not None
    return fitted


@pytest.mark.parametrize("folds", [1, 3])
def test_a_blend_is_the_weighted_sum_of_its_members(folds: int) -> None:
    validation = DOCUMENTS[:20] if folds == 1 else None
    members = [fit_one(plan, DOCUMENTS, validation) for plan in plans(folds)]
    blend = fit_blend(folds)
    weights, intercept = blend.ensemble.weights, blend.ensemble.intercept
    assert len(weights) == 3 and blend.ensemble.scale == "logit"
    assert blend.ensemble.sizes == (1, folds, 1)  # the folds of linear heads are one model
    texts = ["copper fell", "wheat", ""]
    parts = [member.ensemble.scores(texts) for member in members]
    expected = intercept + sum(w * part for w, part in zip(weights, parts, strict=True))
    np.testing.assert_allclose(blend.ensemble.scores(texts), expected, rtol=1e-5, atol=1e-5)
    held_out = intercept + sum(w * m.scores for w, m in zip(weights, members, strict=True))
    np.testing.assert_allclose(blend.scores, held_out, rtol=1e-5, atol=1e-5)
    if folds > 1:
        assert all(np.array_equal(m.fold_of, blend.fold_of) for m in members)


def test_an_interrupted_blend_resumes(tmp_path: Path) -> None:
    data, folder = DOCUMENTS, tmp_path / "work"

    def kill_in_the_third(moment: Progress) -> None:
        assert moment.folds == 9
        if moment.fold > 6:
            raise RuntimeError("killed")

    with (
        pytest.raises(RuntimeError, match="killed"),
        open_work(folder, fingerprint(plans(), data, None), False) as work,
    ):
        fit_plans(plans(), data, None, Run(work, progress=kill_in_the_third))
    finished = [path for path in folder.rglob("model") if path.is_dir()]
    assert len(finished) == 6
    before = {path: path.stat().st_mtime_ns for each in finished for path in each.rglob("*.safe*")}
    with open_work(folder, fingerprint(plans(), data, None), True) as work:
        fitted = fit_plans(plans(), data, None, Run(work))
    assert fitted is not None and fitted.ensemble.weights == fit_blend().ensemble.weights
    assert before and all(path.stat().st_mtime_ns == time for path, time in before.items())
    other = fingerprint((*plans()[:2], Plan(Bag(C=100.0, ngrams=3), "bce", folds=3)), data, None)
    with pytest.raises(InputError, match="ngrams was 2, now 3"), open_work(folder, other, True):
        pass
    with open_work(folder, other, False):
        assert not list(folder.rglob("member-*"))


def test_a_single_fold(tmp_path: Path) -> None:
    with open_work(tmp_path, fingerprint(plans(), DOCUMENTS, None), True) as work:
        assert fit_plans(plans(), DOCUMENTS, None, Run(work, only_fold=1)) is None
    finished = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("model"))
    assert finished == [f"member-{k}/fold-1/model" for k in range(3)]


def test_a_saved_blend_with_overrides_loads(blended: LongTailClassifier, tmp_path: Path) -> None:
    loaded = reload(blended, tmp_path / "run")
    weights = (tmp_path / "run").rglob("model.safetensors")
    folders = sorted(path.parent.relative_to(tmp_path / "run").as_posix() for path in weights)
    encoders, svms = ([f"member-{n}/fold-{k}" for k in (0, 1)] for n in (0, 2))
    assert folders == [*encoders, "member-1", *svms]
    assert [plan.loss for plan in loaded.plans_] == ["fl", "cb", "cb"]
    assert loaded.ensemble_.sizes == (2, 1, 2) and len(loaded.ensemble_.weights) == 3
    card = model_card(loaded)
    for text in ("Member 1: Model", "Member 2: weight", "Member 3: Label descriptions"):
        assert text in card
    assert "2 models of each member, each trained without a fold" in card
    probabilities = loaded.predict_proba(TEXTS)
    assert ((probabilities > 0) & (probabilities < 1)).all()
    again = clone(loaded).fit(TEXTS, LABELS)
    assert np.array_equal(again.decision_function(TEXTS), blended.decision_function(TEXTS))


def test_the_loss_and_the_training_of_a_member_have_an_effect(tiny_bert: Path) -> None:
    def scores(epochs: int = 1, **overrides: Any) -> np.ndarray:
        training = Training(epochs=epochs, batch_size=8)
        models = [Encoder(str(tiny_bert), training=training, **overrides), "svm"]
        classifier = LongTailClassifier(models, training=CPU, folds=2).fit(TEXTS, LABELS)
        return np.stack([model.scores(TEXTS) for model in classifier.ensemble_.models[:2]])

    plain = scores()
    assert np.array_equal(plain, scores(loss="db"))
    for overrides in ({"loss": "bce"}, {"loss_settings": {"kappa": 0.5}}, {"epochs": 2}):
        assert not np.array_equal(plain, scores(**overrides))


def test_informative_members_get_weight() -> None:
    rng = np.random.default_rng(0)
    Y = (rng.random((2000, 4)) < [0.5, 0.3, 0.1, 0.02]).astype(float)
    logits = rng.logistic(size=Y.shape) + np.where(Y > 0, 3.0, -3.0)
    noise = rng.normal(size=Y.shape)
    weights, _ = blend_weights([logits, noise, -logits], sp.csr_matrix(Y))
    assert weights[0] > 0.5 and weights[1] < 0.1 and weights[2] < 1e-3
    # Scores in another unit change the weight, not the blend.
    (half, *_), _ = blend_weights([2 * logits, noise, -logits], sp.csr_matrix(Y))
    assert half == pytest.approx(weights[0] / 2, rel=1e-3)


def test_uninformative_members_get_equal_weights() -> None:
    Y = sp.csr_matrix(np.eye(4))
    weights, intercept = blend_weights([-np.eye(4), -2 * np.eye(4)], Y)
    assert weights[0] == pytest.approx(2 * weights[1]) and weights[1] > 0
    assert np.isfinite(intercept)
    assert all(np.isfinite(blend_weights([np.zeros((4, 4))] * 2, Y)[0]))


def test_pairs_without_a_score_are_ignored() -> None:
    rng = np.random.default_rng(1)
    Y = (rng.random((300, 3)) < 0.3).astype(float)
    scores = rng.normal(size=Y.shape) + 2 * Y
    other = rng.normal(size=Y.shape) + Y
    mask = np.zeros(Y.shape, dtype=bool)
    mask[:, 2] = True
    wild = np.where(mask, 1e6, scores)
    expected = blend_weights([scores[:, :2], other[:, :2]], sp.csr_matrix(Y[:, :2]))
    weights, _ = blend_weights([np.ma.array(wild, mask=mask), other], sp.csr_matrix(Y))
    assert weights == pytest.approx(expected[0], rel=1e-3)


def test_a_label_that_one_member_knows_has_a_score() -> None:
    lists = [["often"], ["often", "once"], *[["often"]] * 10]
    data = TextData.from_lists([f"document {k}" for k in range(12)], lists)
    svm, bag = (Plan(model, folds=3, training=CPU) for model in (Svm(), Bag()))
    named = Plan(Bag(min_df=1), folds=3, label_texts="names", training=CPU)
    one, neither = (fit_plans(pair, data, None, RUN) for pair in ((named, svm), (bag, svm)))
    assert one is not None and not np.ma.getmaskarray(one.scores).any()
    assert neither is not None and neither.fold_of is not None
    assert np.ma.getmaskarray(neither.scores).sum() == (neither.fold_of == neither.fold_of[1]).sum()


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_sparse_scores_are_summed_like_dense_ones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dense = [rng.normal(size=(6, 5)).astype(np.float32) for _ in range(2)]
    sparse = [sp.csr_matrix(each) for each in dense]
    total = _weighted_sum(sparse, (0.5, 2.0), -1.0)
    np.testing.assert_allclose(
        total.toarray(), 0.5 * dense[0] + 2 * dense[1] - 1, rtol=1e-4, atol=1e-5
    )
    # A pair that one of them lacks counts as 1 below the lowest that it has.
    kept = sparse[0].copy()
    kept.data[kept.indptr[2]] = 0
    kept.eliminate_zeros()
    total = _weighted_sum([kept, sparse[1]], (0.5, 2.0), -1.0).toarray()
    expected = 0.5 * dense[0] + 2 * dense[1] - 1
    expected[2, 0] = 0.5 * (dense[0][2, 1:].min() - 1) + 2 * dense[1][2, 0] - 1
    np.testing.assert_allclose(total, expected, rtol=1e-4, atol=1e-5)


def test_weights_from_a_sample_of_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """All positive pairs and some of the others give nearly the weights of all, dense or CSR."""
    rng = np.random.default_rng(0)
    Y = sp.csr_matrix(rng.random((600, 50)) < 0.05, dtype=np.float32)
    scores = [3 * Y.toarray() + rng.normal(size=Y.shape) - 2, rng.normal(size=Y.shape)]
    (whole, none), intercept = blend_weights(scores, Y)
    monkeypatch.setattr(weights_module, "FITTING_PAIRS", 6000)
    for drawn in (scores, [sp.csr_matrix(each) for each in scores]):
        (sampled, nothing), constant = blend_weights(drawn, Y)
        assert sampled == pytest.approx(whole, rel=0.1)
        assert constant == pytest.approx(intercept, abs=0.3)
        assert none < 0.1 * whole and nothing < 0.1 * sampled
    monkeypatch.setattr(weights_module, "RARELY", 1.1)  # drawn from the scored pairs
    (sampled, nothing), constant = blend_weights(drawn, Y)
    assert sampled == pytest.approx(whole, rel=0.1) and nothing < 0.1 * sampled
    assert constant == pytest.approx(intercept, abs=0.3)
