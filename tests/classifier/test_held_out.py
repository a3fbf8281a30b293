"""Which pairs of document and label choose the thresholds, where there are very many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from longtail.fitting import Fitted
from longtail.fitting import ensemble as ensemble_room

from longtail.classifier import deciding
from longtail.data import TextData
from longtail.thresholds import fit_thresholds


def fitted(n_documents: int = 50, n_labels: int = 12) -> tuple[Fitted, Any]:
    rng = np.random.default_rng(3)
    Y = (rng.random((n_documents, n_labels)) < 0.2).astype(np.float32)
    scores = (rng.normal(size=Y.shape) + 3 * Y).astype(np.float32)
    mask = rng.random(Y.shape) < 0.1
    names = tuple(f"label {k}" for k in range(n_labels))
    data = TextData([str(k) for k in range(n_documents)], sp.csr_matrix(Y), names)
    made: Any = None
    return Fitted(made, np.ma.array(scores, mask=mask), data, None), Y


def test_few_pairs_are_all_kept() -> None:
    given, _ = fitted()
    assert deciding.likely_pairs(given) is given


@pytest.mark.parametrize("rows", [7, 100])
def test_the_highest_scores_that_are_known(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    given, Y = fitted()
    monkeypatch.setattr(deciding, "DECIDING_PAIRS", 10)
    monkeypatch.setattr(deciding, "ROWS", rows)
    monkeypatch.setattr(ensemble_room, "KEPT_LABELS", 5)
    found = deciding.likely_pairs(given)
    known = ~np.ma.getmaskarray(given.scores)
    np.testing.assert_array_equal(found.tuning.Y.toarray(), Y * known)
    for row in range(len(Y)):
        own = found.scores[row]
        values = np.where(known[row], given.scores.data[row], -np.inf)
        best = np.argsort(-values)[:5]
        assert set(own.indices) == set(best[np.isfinite(values[best])])
        np.testing.assert_array_equal(own.toarray().ravel()[own.indices], values[own.indices])


def test_thresholds_are_those_of_all_pairs_where_all_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given, _ = fitted()
    monkeypatch.setattr(deciding, "DECIDING_PAIRS", 10)
    found = deciding.likely_pairs(given)
    assert sp.issparse(found.scores)
    for method in ("global", "per-label", "micromacro", "frequency"):
        counts = np.arange(1, 13)
        few, all_ = (
            fit_thresholds(one.scores, one.tuning.Y, counts, method) for one in (found, given)
        )
        np.testing.assert_array_equal(few.values, all_.values, method)
