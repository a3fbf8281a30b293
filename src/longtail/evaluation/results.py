"""The results of an evaluation: scores by group of labels or documents, and per label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.labels import GROUP_NAMES
from longtail.metrics import Counts, precision_recall_f1
from longtail.thresholds import Thresholds
from longtail.thresholds.scales import Scale

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Interval = tuple[float, float]


def document_groups(truth: sp.csr_matrix) -> dict[str, BoolArray]:
    """Masks of single- and multi-label documents, and terciles of the number of labels.

    Documents without labels are neither single- nor multi-label. Terciles are left out if one of
    them would be empty, and a tercile that equals one of these masks.
    """
    sizes = np.diff(truth.indptr)
    groups = {"single_label": sizes == 1, "multi_label": sizes > 1}
    low, high = np.quantile(sizes if len(sizes) else [0], [1 / 3, 2 / 3], method="lower").tolist()
    middle = f"{high} labels" if high == low + 1 else f"{low + 1} to {high} labels"
    terciles = {
        f"up to {low} label{'s' * (low != 1)}": sizes <= low,
        middle: (sizes > low) & (sizes <= high),
        f"{high + 1} or more labels": sizes > high,
    }
    if not all(rows.any() for rows in terciles.values()):
        return groups
    return groups | {
        name: rows
        for name, rows in terciles.items()
        if not any(np.array_equal(rows, others) for others in groups.values())
    }


@dataclass(frozen=True)
class Scores:
    """Scores of one group of labels or documents, as fractions, and the size of the group.

    A group without labels or documents is empty: its scores are 0 in Python, null in JSON and a
    dash in tables.
    """

    micro_f1: float
    macro_f1: float
    micro_precision: float
    micro_recall: float
    macro_precision: float
    macro_recall: float
    n_labels: int
    n_documents: int
    n_positive: int
    """Number of (document, label) pairs where the label applies."""

    @classmethod
    def of(cls, counts: Counts, n_documents: int) -> Scores:
        micro, macro = precision_recall_f1(counts), precision_recall_f1(counts, "macro")
        fractions = micro.f1, macro.f1, micro.precision, micro.recall, macro.precision, macro.recall
        return cls(*fractions, len(counts.hits), n_documents, int(counts.actual.sum()))

    @property
    def is_empty(self) -> bool:
        return self.n_labels == 0 or self.n_documents == 0

    def to_dict(self) -> dict[str, float | int | None]:
        """Plain values for JSON; the scores of an empty group are null."""
        sizes = ("n_labels", "n_documents", "n_positive")
        return {k: None if self.is_empty and k not in sizes else v for k, v in asdict(self).items()}


def f1_of_groups(groups: Mapping[str, Scores]) -> str:
    """The F1 of the groups that are not empty, for a repr."""
    figures = [
        f"{name} {100 * group.micro_f1:.2f} / {100 * group.macro_f1:.2f}"
        for name, group in groups.items()
        if not group.is_empty
    ]
    return f"micro / macro F1: {', '.join(figures) or 'none'}"


@dataclass(frozen=True)
class Calibration:
    """Reliability bins over all scored pairs, and the expected calibration error."""

    expected_error: float
    """Mean of |share that applies - mean probability| over the bins, weighted by size."""
    edges: tuple[float, ...]
    n_pairs: tuple[int, ...]
    mean_probability: tuple[float | None, ...]
    share_that_applies: tuple[float | None, ...]


@dataclass(frozen=True, eq=False, repr=False)
class LabelTable:
    """Counts and scores per label, in column order."""

    names: tuple[str, ...]
    train_count: FloatArray
    actual: FloatArray
    predicted: FloatArray
    hits: FloatArray
    precision: FloatArray
    recall: FloatArray
    f1: FloatArray

    def __repr__(self) -> str:
        return f"LabelTable({len(self.names):,} labels; columns: {', '.join(vars(self))})"

    def rows(self) -> list[dict[str, Any]]:
        """One dict per label."""
        keys = ("name", *list(self.__dataclass_fields__)[1:])
        columns = (self.names, *(getattr(self, key).tolist() for key in keys[1:]))
        return [dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)]


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """All results of one model on documents that it was not fitted on."""

    overall: Scores
    head: Scores
    medium: Scores
    tail: Scores
    by_labels_per_document: dict[str, Scores]
    """The groups of `document_groups`."""
    metrics: dict[str, float]
    """Results of `decision_scores`, `ranking_scores` and `average_precision` by name."""
    labels: LabelTable
    calibration: Calibration | None
    """None if the scores are margins, which are not probabilities."""
    intervals: dict[str, dict[str, Interval]]
    """Non-empty group of labels or documents -> `micro_f1` or `macro_f1` -> 95 % bootstrap
    interval over documents."""
    thresholds: Thresholds
    y_true: sp.csr_matrix
    y_pred: sp.csr_matrix
    """Decisions, without those of unknown pairs."""
    unknown: sp.csr_matrix | None
    """Pairs for which it is unknown whether the label applies, or None if there are none."""
    masks: Mapping[str, BoolArray]
    """Group -> mask of its labels, for head, medium and tail."""
    scale: Scale
    """The scale of the evaluated scores."""
    unknown_labels: dict[str, int]
    """Labels that the model does not know -> number of documents; not evaluated."""

    def __repr__(self) -> str:
        unknown = f" (and {len(self.unknown_labels):,} unknown)" if self.unknown_labels else ""
        return (
            f"Evaluation({self.overall.n_documents:,} documents, {self.overall.n_labels:,} labels"
            f"{unknown}; {f1_of_groups(self.groups())})"
        )

    def groups(self) -> dict[str, Scores]:
        """The groups of labels, in the order of the paper's table."""
        return {"all": self.overall, "head": self.head, "medium": self.medium, "tail": self.tail}

    def to_dict(self, per_label: bool = True) -> dict[str, Any]:
        """Plain values for JSON."""
        by_documents = self.by_labels_per_document.items()
        return {
            **{name: getattr(self, name).to_dict() for name in (*GROUP_NAMES, "overall")},
            "by_labels_per_document": {name: group.to_dict() for name, group in by_documents},
            "metrics": self.metrics,
            "calibration": None if self.calibration is None else asdict(self.calibration),
            "intervals": self.intervals,
            "thresholds": self.thresholds.to_dict(),
            "scale": self.scale,
            "unknown_labels": self.unknown_labels,
            **({"labels": self.labels.rows()} if per_label else {}),
        }
