"""`evaluate`: score predictions with thresholds fitted elsewhere; it cannot tune them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from longtail.checks import check_integer
from longtail.errors import InputError
from longtail.evaluation.bootstrap import interval, resampled
from longtail.evaluation.results import (
    Calibration,
    Evaluation,
    Interval,
    LabelTable,
    Scores,
    document_groups,
)
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
from longtail.metrics.blocks import applies_to, row_blocks
from longtail.metrics.inputs import known_labels, ratio, without_pairs
from longtail.thresholds import Thresholds
from longtail.thresholds.scales import Scale, to_logits

KS = (1, 3, 5)
N_BINS = 15


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
    random_state: int = 0,
) -> Evaluation:
    """Evaluate scores of documents used neither for training nor for choosing the thresholds.

    Args:
        y_true: documents x labels, 0 or 1; NaN or -1 where unknown, which is ignored.
        scores: documents x labels: dense, masked or CSR. Pairs that are masked or absent from CSR
            are not scored: they are never predicted or ranked and have no calibration, but count
            against recall and F1 if their label applies.
        thresholds: result of `fit_thresholds`.
        stats: label statistics of the training part, which define head, medium and tail.
        unknown_labels: counts of labels that the model does not know, kept for reports.
        scale: `logit`, `probability`, or `margin`, which has no calibration; default: the scale
            of the thresholds.
        cuts: tail below the first training count, head above the second; default: terciles.
        n_resamples: number of bootstrap resamples for the intervals; 0 skips them.
        random_state: seed of the bootstrap.
    """
    truth, unknown = _check(y_true, thresholds, stats)
    check_integer("n_resamples", n_resamples, 0)
    masks = label_groups(stats.label_counts, cuts)
    scale = thresholds.scale if scale is None else scale
    logits = to_logits(scores, scale, truth)
    # Drop unknown pairs afterwards: they count towards min_labels and max_labels.
    decided = without_pairs(thresholds.apply(logits, "logit"), unknown)
    counts = count(truth, decided)
    n_documents = int(truth.shape[0])
    by_group = {
        name: Scores.of(Counts(*(part[masks[name]] for part in counts)), n_documents)
        for name in GROUP_NAMES
    }
    known = without_pairs(logits, unknown)
    intervals: dict[str, dict[str, Interval]] = {}
    if n_resamples and n_documents > 1:
        (figures,) = resampled(truth, [decided], masks, n_resamples, random_state)
        intervals = {
            group: {name: interval(values, (0.0, 1.0)) for name, values in measures.items()}
            for group, measures in figures.items()
        }
    names = stats.label_names or tuple(map(str, range(stats.n_labels)))
    counted = counts.actual, counts.predicted, counts.hits
    return Evaluation(
        overall=Scores.of(counts, n_documents),
        **by_group,
        by_labels_per_document={
            name: Scores.of(count(truth[rows], decided[rows]), int(rows.sum()))
            for name, rows in document_groups(truth).items()
        },
        metrics=_metrics(truth if unknown is None else y_true, decided, logits, stats),
        labels=LabelTable(names, stats.label_counts, *counted, *label_precision_recall_f1(counts)),
        calibration=None if scale == "margin" else calibration_of(truth, known),
        intervals=intervals,
        thresholds=thresholds,
        unknown_labels=dict(unknown_labels or {}),
        y_true=truth,
        y_pred=decided,
        unknown=unknown,
        masks=masks,
        scale=scale,
    )


def _check(y_true: Any, thresholds: Any, stats: Any) -> tuple[sp.csr_matrix, sp.csr_matrix | None]:
    """Check the arguments; return the labels and the unknown pairs."""
    for value, kind, advice in (
        (thresholds, Thresholds, "Fit them with fit_thresholds on other documents than these"),
        (stats, LabelStats, "Make them with LabelStats.from_counts on the training part"),
    ):
        if not isinstance(value, kind):
            raise InputError(f"expected {kind.__name__}, got {type(value).__name__}. {advice}.")
    truth, unknown = known_labels(y_true)
    if truth.shape[1] != stats.n_labels:
        raise InputError(
            f"expected the labels of the training statistics, {stats.n_labels} of them, got "
            f"{truth.shape[1]} columns. Encode them with the label names of the training part."
        )
    return truth, unknown


def _metrics(
    truth: Any, decided: sp.csr_matrix, logits: Any, stats: LabelStats
) -> dict[str, float]:
    if not decided.shape[0]:
        return {}
    # Propensities are undefined for fewer than 3 training documents.
    weights = propensities(stats.label_counts, stats.n_samples) if stats.n_samples > 2 else None
    ks = tuple(k for k in KS if k <= decided.shape[1])
    metrics = decision_scores(truth, decided)
    metrics |= ranking_scores(truth, logits, ks=ks, propensities=weights)
    for average in ("micro", "macro"):
        metrics[f"{average}_average_precision"] = average_precision(truth, logits, average)
    return metrics


def calibration_of(truth: sp.csr_matrix, logits: Any, n_bins: int = N_BINS) -> Calibration:
    """Calibration over all scored pairs: the stored ones of CSR logits."""
    total, applies, summed = np.zeros((3, n_bins))
    blocks: Iterable[tuple[Any, Any]]
    if sp.issparse(logits):
        known = applies_to(truth, logits)
        blocks = ((logits.data[part], known[part]) for part in row_blocks(logits.nnz, 1))
    else:
        parts = row_blocks(*logits.shape)
        blocks = ((logits[rows].ravel(), truth[rows].toarray().ravel() > 0) for rows in parts)
    for values, positive in blocks:
        probability = expit(values, dtype=np.float64)
        bins = np.minimum((probability * n_bins).astype(np.int64), n_bins - 1)
        total += np.bincount(bins, minlength=n_bins)
        applies += np.bincount(bins, weights=positive, minlength=n_bins)
        summed += np.bincount(bins, weights=probability, minlength=n_bins)
    mean, share = ratio(summed, total), ratio(applies, total)
    return Calibration(
        float((total * np.abs(share - mean)).sum() / (total.sum() or 1.0)),
        tuple(np.linspace(0.0, 1.0, n_bins + 1).tolist()),
        tuple(int(n) for n in total),
        *(
            tuple(float(v) if n else None for v, n in zip(values, total, strict=True))
            for values in (mean, share)
        ),
    )
