"""The kept pairs of many labels: the decisions and rankings of dense scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail import Bag, LongTailClassifier
from longtail.classifier import ensemble, prediction
from longtail.classifier.kept_pairs import KeptPairs
from longtail.metrics import top_k
from longtail.models import tiles
from longtail.thresholds import Thresholds

TEXTS = ["copper rose", "wheat fell", "copper and nickel rose", "wheat rose", "tin and zinc"] * 9
LABELS = [["copper"], ["wheat"], ["copper", "nickel"], ["wheat"], ["tin", "zinc"]] * 9
NEW = ["nickel and wheat", "", "unheard", "tin tin copper", *TEXTS[:5]]


@settings(max_examples=min(150, settings.default.max_examples * 3))
@given(
    n_labels=st.integers(1, 200),
    n_highest=st.integers(1, 12),
    limits=st.sampled_from([(0, None), (2, None), (0, 3), (1, 1), (3, 5)]),
    levels=st.integers(1, 60),
    width=st.integers(1, 90),
    seed=st.integers(0, 999),
)
def test_decisions_and_ranks_are_those_of_dense_scores(
    n_labels: int,
    n_highest: int,
    limits: tuple[int, int | None],
    levels: int,
    width: int,
    seed: int,
) -> None:
    """Also with equal scores, infinite thresholds, and labels that no model knows."""
    rng = np.random.default_rng(seed)
    scores = (rng.integers(-levels, levels, size=(5, n_labels)) / levels).astype(np.float32)
    values = np.where(rng.random(n_labels) < 0.2, np.inf, rng.normal(0.5, 1, n_labels))
    values[rng.random(n_labels) < 0.2] = 0.5
    known = rng.random(n_labels) < 0.9
    values[~known] = np.inf
    thresholds = Thresholds(values, min_labels=limits[0], max_labels=limits[1])
    kept = KeptPairs(5, known, n_highest, thresholds)
    for first in range(0, n_labels, width):
        kept.add(first, scores[:, first : first + width])
    matrix = kept.matrix()
    matrix.check_format(full_check=True)
    assert matrix.has_canonical_format
    rows = np.repeat(np.arange(5), np.diff(matrix.indptr))
    np.testing.assert_array_equal(matrix.data, scores[rows, matrix.indices])
    assert (thresholds.apply(matrix) != thresholds.apply(scores)).nnz == 0
    columns = np.flatnonzero(known)
    if len(columns):
        k = min(n_highest, len(columns))
        np.testing.assert_array_equal(top_k(matrix, k), columns[top_k(scores[:, columns], k)])
    else:
        assert matrix.nnz == 0


@settings(max_examples=min(60, settings.default.max_examples))
@given(st.integers(1, 70), st.integers(1, 20), st.integers(0, 999))
def test_tiles_score_as_the_whole_product(n_labels: int, tile: int, seed: int) -> None:
    """To the bit, with dense and sparse features, and features without weights."""
    features = sp.random(9, 12, 0.4, format="csr", dtype=np.float32, random_state=seed)
    rng = np.random.default_rng(seed)
    density = rng.random(12) ** 2
    dense = np.where(rng.random((n_labels, 12)) < density, rng.normal(size=(n_labels, 12)), 0)
    weight = sp.csr_matrix(dense, dtype=np.float32)
    bias = rng.normal(size=n_labels).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "TILE", tile)
        parts = [tiles.tile_scores(features, part) for part in tiles.tiles_of(weight, bias)]
    expected = (features @ sp.csr_matrix(weight.T)).toarray() + bias
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), expected)


MODELS: dict[str, Any] = {
    "hinge": {"model": Bag(C=1.0), "loss": "squared-hinge"},
    "margins": {"model": Bag(C=1.0), "loss": "squared-hinge", "thresholds": "grid"},
    "logits": {"model": Bag(C=10.0), "loss": "bce"},
    "blend": {"model": [Bag(C=1.0), Bag(C=1.0, char_ngrams=3)], "loss": "squared-hinge"},
    "network": {"model": Bag(hidden=8), "loss": "bce"},
    "limits": {"model": Bag(C=1.0), "loss": "squared-hinge", "min_labels": 1, "max_labels": 2},
}


@pytest.mark.parametrize("name", MODELS)
def test_predictions_of_many_labels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = LongTailClassifier(folds=2, **MODELS[name]).fit(TEXTS, LABELS)
    truth = [*LABELS[:4], *LABELS[:5]]

    def results() -> tuple[Any, ...]:
        evaluation = classifier.evaluate_scores(NEW, truth)[0]
        ranked = {name: value for name, value in evaluation.metrics.items() if "@" in name}
        return (
            classifier.predict(NEW).toarray().tolist(),
            [block.records(classifier.classes_, 3) for block in classifier.predict_blocks(NEW, 3)],
            classifier.top_k(NEW, 4),
            [each.labels for each in classifier.explain(NEW)],
            [each.scores.tolist() for each in classifier.explain(NEW, ["tin", "wheat"])],
            evaluation.overall,
            ranked,
        )

    dense = results()
    monkeypatch.setattr(prediction, "MANY_LABELS", 1)
    monkeypatch.setattr(ensemble, "DENSE_PAIRS", 1)
    (block,) = classifier.predict_blocks(NEW, 2)
    assert sp.issparse(block.scores)
    assert results() == dense
