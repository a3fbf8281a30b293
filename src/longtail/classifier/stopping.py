"""Scores for early stopping: a metric of the validation part, by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import UnknownNameError
from longtail.evaluation import evaluate
from longtail.labels import LabelStats
from longtail.thresholds import Objective, fit_thresholds

# The objective of the epoch's threshold, for metrics of decisions.
OBJECTIVE_OF: dict[str, Objective] = {
    "macro_f1": "macro",
    "tail_macro_f1": "macro",
    "mean_f1": "mean",
}
LOWER_IS_BETTER = ("hamming_loss",)


def score_by_name(
    name: str, Y: sp.csr_matrix, stats: LabelStats
) -> Callable[[NDArray[np.float32]], float]:
    """A function from logits to the score, higher being better; it fits a threshold each time."""
    objective = OBJECTIVE_OF.get(name, "micro")

    def scores(logits: NDArray[np.float32]) -> dict[str, float]:
        thresholds = fit_thresholds(logits, Y, stats.label_counts, "global", objective=objective)
        evaluation = evaluate(Y, logits, thresholds, stats, n_resamples=0)
        overall = evaluation.overall
        return {
            **evaluation.metrics,
            "micro_f1": overall.micro_f1,
            "macro_f1": overall.macro_f1,
            "mean_f1": (overall.micro_f1 + overall.macro_f1) / 2,
            "tail_macro_f1": evaluation.tail.macro_f1,
        }

    def score(logits: NDArray[np.float32]) -> float:
        value = scores(logits)[name]
        return -value if name in LOWER_IS_BETTER else value

    # Now rather than after the first epoch.
    known = scores(np.zeros(Y.shape, dtype=np.float32))
    if name not in known:
        raise UnknownNameError("early stopping metric", name, known)
    return score
