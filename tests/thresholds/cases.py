"""Scores, labels and slow reference computations for the tests of thresholds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from longtail.thresholds import Thresholds

KINDS = ("dense", "masked", "csr")


class Case(NamedTuple):
    """Labels, scores, and which pairs have a score."""

    labels: np.ndarray
    scores: np.ndarray
    scored: np.ndarray
    kind: str

    @property
    def form(self) -> Any:
        """The scores in the form that the kind names."""
        if self.kind == "dense":
            return self.scores
        if self.kind == "masked":
            # Values under the mask must not matter.
            return np.ma.MaskedArray(np.where(self.scored, self.scores, np.nan), ~self.scored)
        # scipy cannot convert half precision from coordinates.
        starts = np.append(0, np.cumsum(self.scored.sum(axis=1)))
        columns = np.nonzero(self.scored)[1]
        return sp.csr_matrix((self.scores[self.scored], columns, starts), self.scores.shape)

    @property
    def truth(self) -> np.ndarray:
        """The labels that count: without masked pairs, with pairs absent from CSR."""
        return self.labels * self.scored if self.kind == "masked" else self.labels


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kind = draw(st.sampled_from(KINDS))
    shape = draw(st.tuples(st.integers(1, 9), st.integers(1, 5)))
    labels = draw(hnp.arrays(np.int64, shape, elements=st.integers(0, 1)))
    # Either few distinct values, so that ties are common, or many.
    tied = st.integers(-3, 3).map(float)
    scores = draw(hnp.arrays(np.float64, shape, elements=st.one_of(tied, st.floats(-4, 4))))
    scored = np.ones(shape, dtype=bool)
    if kind != "dense":
        scored = draw(hnp.arrays(bool, shape))
    return Case(labels, scores, scored, kind)


def decide(case: Case, values: Any) -> np.ndarray:
    return (case.scores >= values) & case.scored


def f1(hits: float, predicted: float, actual: float) -> float:
    return 2 * hits / (predicted + actual) if predicted + actual else 0.0


def f1_of(labels: np.ndarray, decided: np.ndarray, objective: str) -> float:
    """Micro- and macro-F1 by hand, absent labels counting as 0."""
    decided = decided.astype(bool)
    hits, predicted = (labels.astype(bool) & decided).sum(axis=0), decided.sum(axis=0)
    actual = labels.sum(axis=0)
    micro = f1(hits.sum(), predicted.sum(), actual.sum())
    macro = float(np.mean([f1(*each) for each in zip(hits, predicted, actual, strict=True)]))
    return {"micro": micro, "macro": macro, "mean": (micro + macro) / 2}[objective]


def every_cut(values: np.ndarray) -> Iterator[float]:
    """Each distinct score, and infinity."""
    yield from np.unique(values)
    yield np.inf


def long_tail(
    n_documents: int, n_labels: int, seed: int, signal: float = 3.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels and distinct training counts; rare labels score lower, as models do."""
    rng = np.random.default_rng(seed)
    share = 0.4 / np.arange(1, n_labels + 1)
    labels = (rng.random((n_documents, n_labels)) < share).astype(np.int64)
    scores = rng.normal(size=labels.shape) + signal * labels + 0.5 * np.log(share)
    return scores, labels, np.arange(n_labels, 0, -1.0) * 7


def predicted_at(case: Case, rule: Thresholds, shift: float) -> np.ndarray:
    """Decide document by document with shifted thresholds, then apply the limits."""
    decided = np.zeros(case.labels.shape, dtype=bool)
    for row in range(len(decided)):
        margins = {
            label: case.scores[row, label] - rule.values[label]
            for label in range(rule.n_labels)
            if case.scored[row, label] and np.isfinite(rule.values[label])
        }
        ranked = sorted(margins, key=lambda label: (-margins[label], label))
        passed = [label for label in ranked if margins[label] >= shift]
        if len(passed) < rule.min_labels:
            passed = ranked[: rule.min_labels]
        decided[row, passed[: rule.max_labels]] = True
    return decided
