"""What early stopping looks at: a metric of the validation part, by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import UnknownNameError
from longtail.evaluation import evaluate
from longtail.labels import LabelStats
from longtail.thresholds import Objective, fit_thresholds

# Scores that the epoch's own threshold decides, and what that threshold is chosen for.
OBJECTIVE_OF: dict[str, Objective] = {
    "macro_f1": "macro",
    "tail_macro_f1": "macro",
    "mean_f1": "mean",
}
LESS_IS_BETTER = ("hamming_loss",)


def score_by_name(
    name: str, Y: sp.csr_matrix, stats: LabelStats
) -> Callable[[NDArray[np.float32]], float]:
    """A function from logits to the score, of which more is better.

    The threshold of each epoch is chosen anew.
    """
    objective = OBJECTIVE_OF.get(name, "micro")

    def scores(logits: NDArray[np.float32]) -> dict[str, float]:
        chosen = fit_thresholds(logits, Y, stats.label_counts, "global", objective=objective)
        found = evaluate(Y, logits, chosen, stats, n_resamples=0)
        overall = found.overall
        return {
            **found.metrics,
            "micro_f1": overall.micro_f1,
            "macro_f1": overall.macro_f1,
            "mean_f1": (overall.micro_f1 + overall.macro_f1) / 2,
            "tail_macro_f1": found.tail.macro_f1,
        }

    def score(logits: NDArray[np.float32]) -> float:
        value = scores(logits)[name]
        return -value if name in LESS_IS_BETTER else value

    # Now rather than after the first epoch.
    known = scores(np.zeros(Y.shape, dtype=np.float32))
    if name not in known:
        raise UnknownNameError("score to stop on", name, known)
    return score
