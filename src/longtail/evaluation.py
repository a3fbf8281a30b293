"""What predictions are worth: overall, by label frequency, and by labels per document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.labels import GROUP_NAMES, LabelStats, label_groups
from longtail.metrics import Counts, count, label_f1, macro_f1, micro_f1
from longtail.thresholds import Thresholds


@dataclass(frozen=True)
class Scores:
    """F1 of one group, as fractions, and the size of the group."""

    micro_f1: float
    macro_f1: float
    n_labels: int
    n_documents: int


@dataclass(frozen=True)
class Evaluation:
    """Scores of all labels, of head, medium and tail, and of single- and multi-label texts."""

    overall: Scores
    head: Scores
    medium: Scores
    tail: Scores
    single_label: Scores
    multi_label: Scores
    label_f1: NDArray[np.float64]
    thresholds: dict[str, Any]
    """Method and values, as `Thresholds.to_dict` gives them."""
    unknown_labels: dict[str, int] = field(default_factory=dict)
    """Labels of the judged documents that the model does not know, and how often: not judged."""

    def groups(self) -> dict[str, Scores]:
        """The label groups in the order of the paper's table."""
        return {"all": self.overall, "head": self.head, "medium": self.medium, "tail": self.tail}

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {**asdict(self), "label_f1": self.label_f1.tolist()}


def evaluate(
    y_true: sp.csr_matrix,
    scores: NDArray[Any],
    thresholds: Thresholds,
    stats: LabelStats,
    unknown_labels: Mapping[str, int] | None = None,
) -> Evaluation:
    """Judge scores at thresholds that were fitted elsewhere; groups come from training counts."""
    y_pred = thresholds.apply(scores)
    counts = count(y_true, y_pred)
    masks = label_groups(stats.label_counts)
    n_documents = int(y_true.shape[0])
    by_group = {
        name: _scores(Counts(*(part[masks[name]] for part in counts)), n_documents)
        for name in GROUP_NAMES
    }
    labels_each = np.diff(y_true.indptr)
    return Evaluation(
        overall=_scores(counts, n_documents),
        **by_group,
        single_label=_of_documents(y_true, y_pred, labels_each == 1),
        multi_label=_of_documents(y_true, y_pred, labels_each > 1),
        label_f1=label_f1(counts),
        thresholds=thresholds.to_dict(),
        unknown_labels=dict(unknown_labels or {}),
    )


def _scores(counts: Counts, n_documents: int) -> Scores:
    return Scores(micro_f1(counts), macro_f1(counts), len(counts.hits), n_documents)


def _of_documents(y_true: sp.csr_matrix, y_pred: sp.csr_matrix, rows: NDArray[np.bool_]) -> Scores:
    return _scores(count(y_true[rows], y_pred[rows]), int(rows.sum()))
