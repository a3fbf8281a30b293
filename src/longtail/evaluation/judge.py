"""`evaluate`: judge scores at thresholds that were fitted elsewhere. It cannot tune anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import InputError
from longtail.evaluation.bootstrap import intervals_of
from longtail.evaluation.calibration import calibration_of
from longtail.evaluation.facts import BoolArray, Evaluation, LabelTable, Scores
from longtail.labels import GROUP_NAMES, LabelStats, label_groups
from longtail.metrics import (
    Counts,
    average_precision,
    count,
    decision_scores,
    label_precision_recall_f1,
    propensities,
    ranking_scores,
)
from longtail.metrics.inputs import label_matrix
from longtail.thresholds import Thresholds
from longtail.thresholds.tuning import Scale, to_logits

KS = (1, 3, 5)


def evaluate(
    y_true: Any,
    scores: Any,
    thresholds: Thresholds,
    stats: LabelStats,
    unknown_labels: Mapping[str, int] | None = None,
    *,
    scale: Scale | None = None,
    cuts: tuple[float, float] | None = None,
    n_resamples: int = 200,
    seed: int = 0,
) -> Evaluation:
    """Judge scores of documents that had no part in training or in choosing the thresholds.

    Args:
        y_true: labels, documents x labels, of 0 and 1.
        scores: documents x labels, dense or CSR (an absent pair is not scored, never predicted).
        thresholds: of `fit_thresholds`.
        stats: of the training part; head, medium and tail are by its counts.
        unknown_labels: counts of labels that could not be judged, to be told.
        scale: `logit`, `probability`, or `margin`, which has no calibration; default: what the
            thresholds were fitted on.
        cuts: tail below the first training count, head above the second; default: terciles.
        n_resamples: of the bootstrap intervals; 0 leaves them out.
    """
    truth = label_matrix(y_true, "labels")
    scale = scale or thresholds.scale
    if truth.shape[1] != stats.n_labels:
        raise InputError(
            f"expected the labels of the training statistics, {stats.n_labels} of them, got "
            f"{truth.shape[1]} columns."
        )
    logits = to_logits(scores, scale, truth.shape)
    decided = thresholds.apply(logits, "logit")
    counts = count(truth, decided)
    masks = label_groups(stats.label_counts, cuts)
    n_documents = int(truth.shape[0])
    by_group = {
        name: Scores.of(Counts(*(part[masks[name]] for part in counts)), n_documents)
        for name in GROUP_NAMES
    }
    return Evaluation(
        overall=Scores.of(counts, n_documents),
        **by_group,
        by_labels_per_document=_by_documents(truth, decided),
        metrics=_metrics(truth, decided, logits, stats),
        labels=_table(counts, stats),
        calibration=None if scale == "margin" else calibration_of(truth, logits),
        intervals=intervals_of(truth, decided, masks, n_resamples, seed),
        thresholds=thresholds.to_dict(),
        unknown_labels=dict(unknown_labels or {}),
        y_true=truth,
        y_pred=decided,
        masks=masks,
    )


def _metrics(
    truth: sp.csr_matrix, decided: sp.csr_matrix, logits: Any, stats: LabelStats
) -> dict[str, float]:
    if not truth.shape[0]:
        return {}
    # Jain's propensities are not defined for fewer training documents.
    weights = propensities(stats.label_counts, stats.n_samples) if stats.n_samples > 2 else None
    ks = tuple(k for k in KS if k <= truth.shape[1])
    found = {
        **decision_scores(truth, decided),
        **ranking_scores(truth, logits, ks=ks, propensities=weights),
    }
    for average in ("micro", "macro"):
        found[f"{average}_average_precision"] = average_precision(truth, logits, average)
    return found


def _table(counts: Counts, stats: LabelStats) -> LabelTable:
    names = stats.label_names or tuple(str(k) for k in range(stats.n_labels))
    precision, recall, f1 = label_precision_recall_f1(counts)
    return LabelTable(
        names,
        stats.label_counts,
        counts.actual,
        counts.predicted,
        counts.hits,
        precision,
        recall,
        f1,
    )


def _by_documents(truth: sp.csr_matrix, decided: sp.csr_matrix) -> dict[str, Scores]:
    """Single- and multi-label documents, and terciles of the labels per document, as the paper."""
    each = np.diff(truth.indptr)
    groups: dict[str, BoolArray] = {"single_label": each == 1, "multi_label": each > 1}
    groups |= terciles(each)
    return {
        name: Scores.of(count(truth[rows], decided[rows]), int(rows.sum()))
        for name, rows in groups.items()
    }


def terciles(each: NDArray[np.int64]) -> dict[str, BoolArray]:
    """Documents by their number of labels in three parts, where there are three."""
    if not len(each):
        return {}
    low, high = (int(q) for q in np.quantile(each, [1 / 3, 2 / 3], method="lower"))
    groups = {
        f"up to {low} labels": each <= low,
        f"{low + 1} to {high} labels": (each > low) & (each <= high),
        f"{high + 1} or more labels": each > high,
    }
    return groups if all(rows.any() for rows in groups.values()) else {}
