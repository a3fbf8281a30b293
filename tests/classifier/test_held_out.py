"""The pairs of document and label that choose the thresholds, and `held_out_`."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.classifier import ensemble, estimator, held_out
from longtail.classifier.crossfit import Fitted
from longtail.classifier.saving import model_card
from longtail.evaluation import evaluate
from longtail.thresholds import fit_thresholds

from .cases import LABELS, TEXTS, numbered, reload
from .conftest import Make


@pytest.fixture
def fitted() -> Fitted:
    rng = np.random.default_rng(3)
    Y = (rng.random((50, 12)) < 0.2).astype(np.float32)
    scores = (rng.normal(size=Y.shape) + 3 * Y).astype(np.float32)
    mask = rng.random(Y.shape) < 0.1
    unused: Any = None
    return Fitted(unused, np.ma.array(scores, mask=mask), numbered(Y), None)


@pytest.mark.parametrize("rows", [7, 100])
def test_the_highest_known_scores_are_kept(
    fitted: Fitted, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    assert held_out.likely_pairs(fitted) is fitted, "few pairs are all kept"
    monkeypatch.setattr(held_out, "TUNING_PAIRS", 10)
    monkeypatch.setattr(held_out, "ROWS", rows)
    monkeypatch.setattr(ensemble, "KEPT_LABELS", 5)
    reduced = held_out.likely_pairs(fitted)
    known = ~np.ma.getmaskarray(fitted.scores)
    np.testing.assert_array_equal(reduced.tuning.Y.toarray(), fitted.tuning.Y.toarray() * known)
    for row in range(50):
        kept = reduced.scores[row]
        values = np.where(known[row], fitted.scores.data[row], -np.inf)
        best = np.argsort(-values)[:5]
        assert set(kept.indices) == set(best[np.isfinite(values[best])])
        np.testing.assert_array_equal(kept.toarray().ravel()[kept.indices], values[kept.indices])


def test_thresholds_are_the_same_if_all_pairs_are_kept(
    fitted: Fitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_out, "TUNING_PAIRS", 10)
    reduced = held_out.likely_pairs(fitted)
    assert sp.issparse(reduced.scores)
    for method in ("global", "per-label", "micromacro", "frequency"):
        counts = np.arange(1, 13)
        sparse, dense = (
            fit_thresholds(each.scores, each.tuning.Y, counts, method) for each in (reduced, fitted)
        )
        np.testing.assert_array_equal(sparse.values, dense.values, method)


def test_held_out_is_computed_when_it_is_read(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = Mock(wraps=evaluate)
    monkeypatch.setattr(estimator, "evaluate", counting)
    classifier = make(epochs=1, folds=2).fit(TEXTS, LABELS)
    assert not counting.called
    evaluation = classifier.held_out_
    assert evaluation is not None and classifier.held_out_ is evaluation
    assert counting.call_count == 1 and evaluation.overall.n_documents == 24
    assert classifier.facts_.held_out == evaluation.groups()
    assert reload(classifier, tmp_path / "run").held_out_ is None
    # Very many pairs are not evaluated in full; the card is the same.
    monkeypatch.setattr(estimator, "EVALUATED_PAIRS", 24 * 3 - 1)
    large = make(epochs=1, folds=2).fit(TEXTS, LABELS)
    assert large.held_out_ is None and large.facts_ == classifier.facts_
    assert model_card(large) == model_card(classifier)
