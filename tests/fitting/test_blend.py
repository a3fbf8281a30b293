"""Blends: the same folds, weights from held-out scores, the sum of the members' means."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data import TextData
from longtail.errors import InputError
from longtail.fitting import Fitted, Plan, Work, blend_weights, fingerprint, fit
from longtail.fitting.blend import _summed
from longtail.settings import TrainingConfig
from longtail.training import Moment

WORDS = ("copper", "nickel", "tin", "wheat", "zinc")
CPU = TrainingConfig(device="cpu")


def documents(n: int = 60) -> TextData:
    rng = np.random.default_rng(0)
    lists = [sorted({WORDS[k] for k in rng.integers(0, 5, 2)}) for _ in range(n)]
    return TextData.from_lists([f"{' and '.join(own)} rose" for own in lists], lists, WORDS)


def plans(folds: int = 3, seed: int = 0) -> tuple[Plan, ...]:
    training = TrainingConfig(device="cpu", seed=seed)
    return (
        Plan("bag", folds=folds, training=training),
        Plan("svm", folds=folds, training=training),
        Plan("bag", {"ngrams": 2}, "bce", folds=folds, training=training),
    )


def blended(folds: int = 3) -> Fitted:
    held = None if folds > 1 else documents(20)
    found = fit(plans(folds), documents(), held)
    assert found is not None
    return found


@pytest.mark.parametrize("folds", [1, 3])
def test_a_blend_is_the_weighted_sum_of_its_members(folds: int) -> None:
    held = None if folds > 1 else documents(20)
    alone = [fit(plan, documents(), held) for plan in plans(folds)]
    both = blended(folds)
    weights, intercept = both.ensemble.weights, both.ensemble.intercept
    assert len(weights) == both.ensemble.n_members == 3 and both.ensemble.scale == "logit"
    assert len(both.ensemble.models) == 3 * folds
    texts = ["copper fell", "wheat", ""]
    parts = [one.ensemble.scores(texts) for one in alone if one is not None]
    expected = intercept + sum(w * part for w, part in zip(weights, parts, strict=True))
    np.testing.assert_allclose(both.ensemble.scores(texts), expected, rtol=1e-5, atol=1e-5)
    held_out = intercept + sum(w * one.scores for w, one in zip(weights, alone, strict=True) if one)
    np.testing.assert_allclose(both.scores, held_out, rtol=1e-5, atol=1e-5)
    if folds > 1:
        assert all(np.array_equal(one.fold_of, both.fold_of) for one in alone if one)


def test_saved_and_read_again(tmp_path: Path) -> None:
    both = blended()
    both.ensemble.save(tmp_path)
    assert (tmp_path / "member-2" / "fold-1" / "model.safetensors").is_file()
    texts = ["copper fell", "wheat"]
    expected = both.ensemble.scores(texts)
    fresh = [plan.new_model() for plan in plans() for _ in range(3)]
    both.ensemble.models[:] = fresh
    both.ensemble.load(tmp_path)
    np.testing.assert_array_equal(both.ensemble.scores(texts), expected)


def test_a_blend_resumes_where_it_stopped(tmp_path: Path) -> None:
    data, chosen = documents(), plans()
    work = Work(tmp_path / "work")
    work.begin(fingerprint(chosen, data, None), resume=False)

    def stop_in_the_second(moment: Moment) -> None:
        assert moment.folds == 9
        if moment.fold > 6:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        fit(chosen, data, work=work, progress=stop_in_the_second)
    done = sorted(path.parent for path in work.folder.rglob("model") if path.is_dir())  # type: ignore[union-attr]
    assert len(done) == 6
    before = {path: path.stat().st_mtime_ns for place in done for path in place.rglob("*.safe*")}
    work.begin(fingerprint(chosen, data, None), resume=True)
    found = fit(chosen, data, work=work)
    assert found is not None and found.ensemble.weights == blended().ensemble.weights
    assert all(path.stat().st_mtime_ns == when for path, when in before.items())
    other = (*chosen[:2], Plan("bag", {"ngrams": 3}, "bce", folds=3, training=CPU))
    with pytest.raises(InputError, match="--ngrams was 2 and is now 3"):
        work.begin(fingerprint(other, data, None), resume=True)
    work.begin(fingerprint(other, data, None), resume=False)
    assert not list(work.folder.rglob("member-*"))  # type: ignore[union-attr]


def test_one_fold_alone(tmp_path: Path) -> None:
    work = Work(tmp_path)
    with work.begun(fingerprint(plans(), documents(), None), resume=True):
        assert fit(plans(), documents(), work=work, only=1) is None
    done = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("model"))
    assert done == [f"member-{k}/fold-1/model" for k in range(3)]


def test_members_share_folds_and_seed() -> None:
    with pytest.raises(InputError, match="the same folds and the same seed"):
        fit((Plan(folds=2), Plan(folds=3)), documents())
    with pytest.raises(InputError, match="the same folds and the same seed"):
        fit((plans(3)[0], plans(3, seed=1)[1]), documents())


def test_weights_follow_what_members_know() -> None:
    rng = np.random.default_rng(0)
    Y = (rng.random((2000, 4)) < [0.5, 0.3, 0.1, 0.02]).astype(float)
    logits = rng.logistic(size=Y.shape) + np.where(Y > 0, 3.0, -3.0)
    noise = rng.normal(size=Y.shape)
    weights, _ = blend_weights([logits, noise, -logits], sp.csr_matrix(Y))
    assert weights[0] > 0.5 and weights[1] < 0.1 and weights[2] < 1e-3
    # Another unit of a member is another weight, not another blend.
    (half, *_), _ = blend_weights([2 * logits, noise, -logits], sp.csr_matrix(Y))
    assert half == pytest.approx(weights[0] / 2, rel=1e-3)


def test_members_that_know_nothing_count_alike() -> None:
    Y = sp.csr_matrix(np.eye(4))
    weights, intercept = blend_weights([-np.eye(4), -2 * np.eye(4)], Y)
    assert weights[0] == pytest.approx(2 * weights[1]) and weights[1] > 0
    assert np.isfinite(intercept)
    assert all(np.isfinite(blend_weights([np.zeros((4, 4))] * 2, Y)[0]))


def test_pairs_without_a_score_decide_nothing() -> None:
    rng = np.random.default_rng(1)
    Y = (rng.random((300, 3)) < 0.3).astype(float)
    scores = rng.normal(size=Y.shape) + 2 * Y
    other = rng.normal(size=Y.shape) + Y
    mask = np.zeros(Y.shape, dtype=bool)
    mask[:, 2] = True
    wild = np.where(mask, 1e6, scores)
    expected = blend_weights([scores[:, :2], other[:, :2]], sp.csr_matrix(Y[:, :2]))
    found = blend_weights([np.ma.array(wild, mask=mask), other], sp.csr_matrix(Y))
    assert found[0] == pytest.approx(expected[0], rel=1e-3)


def test_what_one_member_knows_has_a_score() -> None:
    lists = [["often"], ["often", "once"], *[["often"]] * 10]
    data = TextData.from_lists([f"document {k}" for k in range(12)], lists)
    named = Plan("bag", {"min_df": 1}, folds=3, label_texts="names", training=CPU)
    found = fit((named, Plan("svm", folds=3, training=CPU)), data)
    assert found is not None and not np.ma.getmaskarray(found.scores).any()
    neither = fit((Plan("svm", folds=3, training=CPU), Plan("bag", folds=3, training=CPU)), data)
    assert neither is not None
    assert np.ma.getmaskarray(neither.scores).sum() == (neither.fold_of == neither.fold_of[1]).sum()


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_sparse_scores_are_summed_like_dense_ones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dense = [rng.normal(size=(6, 5)).astype(np.float32) for _ in range(2)]
    whole = [sp.csr_matrix(each) for each in dense]
    found = _summed(whole, (0.5, 2.0), -1.0)
    np.testing.assert_allclose(found.toarray(), 0.5 * dense[0] + 2 * dense[1] - 1, rtol=1e-4)
    # Where one has left out a pair, it counts as 1 below the lowest that it has kept.
    kept = whole[0].copy()
    kept.data[kept.indptr[2]] = 0
    kept.eliminate_zeros()
    found = _summed([kept, whole[1]], (0.5, 2.0), -1.0).toarray()
    expected = 0.5 * dense[0] + 2 * dense[1] - 1
    expected[2, 0] = 0.5 * (dense[0][2, 1:].min() - 1) + 2 * dense[1][2, 0] - 1
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
