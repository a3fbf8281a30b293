"""Small runs with awkward names for the tests of this folder."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.data import TextData
from longtail.evaluation import Evaluation, evaluate
from longtail.labels import LabelStats
from longtail.report import Run
from longtail.thresholds import Thresholds

EVIL = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    "\"quoted\" & 'single'",
    "a|b*c_d`e`[f](g)",
    "50% of $x^2 #1 {y} ~z \\end{tabular}",
    "שלום עולם",
    "👩\u200d🔬 emoji",
    "line\nbreak\x00\ud800",
    "plain",
)
COUNTS = (90, 60, 40, 20, 9, 7, 3, 2, 0)


def from_labels(lists: list[list[str]], names: tuple[str, ...] | None = None) -> TextData:
    return TextData.from_lists([f"text {k}" for k in range(len(lists))], lists, names)


def evaluated(
    truth: Any, scores: Any, counts: Any, names: Any = None, at: float = 0.0, **more: Any
) -> Evaluation:
    stats = LabelStats.from_counts(counts, 100, names)
    thresholds = Thresholds(np.full(stats.n_labels, at))
    return evaluate(sp.csr_matrix(truth), scores, thresholds, stats, n_resamples=20, **more)


@cache
def runs() -> dict[str, Run]:
    """Three runs on the same documents, one of them without scores and calibration."""
    rng = np.random.RandomState(0)
    truth = sp.csr_matrix((rng.rand(60, 9) < np.linspace(0.6, 0.02, 9)).astype(float))
    texts = [f"<b>text {k}</b> & </script> " + "long " * 200 for k in range(60)]
    data = TextData(texts, truth, EVIL, tuple(f"<id {k}>" for k in range(60)))
    result = {}
    for k, name in enumerate(("bce", "<i>db</i>", "third|run")):
        scores = truth.toarray() * (1 + k) - 1 + rng.randn(60, 9)
        evaluation = evaluated(truth, scores, COUNTS, EVIL)
        result[name] = Run(evaluation, data, None if k == 2 else scores)
    return result


def by_hand(scores: Any = None, rows: int = 4, **more: Any) -> Evaluation:
    """Three labels and four documents: micro-F1 80, macro-F1 61.90."""
    truth = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1], [1, 0, 0]])
    default = [[2.0, -1, -1], [1, -1, -1], [1, -2, 3], [2, -3, -3]]
    scores = np.array(default if scores is None else scores)
    return evaluated(truth[:rows], scores[:rows], [90, 20, 2], ["a", "b", "c"], **more)


def empty_groups() -> Evaluation:
    """All labels are medium, and no document has two labels."""
    truth = np.eye(3)[[0, 1, 2, 0]]
    return evaluated(truth, truth - 0.5, [5, 5, 5])
