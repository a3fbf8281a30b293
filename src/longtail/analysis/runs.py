"""Evaluated models side by side: scores, documents, comparisons, labels by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from longtail.data import TextData
from longtail.errors import InputError
from longtail.evaluation import Difference, Evaluation, compare
from longtail.metrics.inputs import without_pairs
from longtail.thresholds.scales import Scale, to_logits

N_RESAMPLES = 1000
# The share of decisions that may differ by rounding, where scores come on another scale.
ROUNDED = 0.001
MEASURES = ("f1", "precision", "recall", "predicted")
Comparison = dict[str, dict[str, Difference]] | str
"""Group -> measure -> difference, or why there is none."""


@dataclass(frozen=True, eq=False)
class Run:
    """One trained model on the evaluated documents."""

    evaluation: Evaluation
    data: TextData | None = None
    """The evaluated documents, for their texts and ids."""
    scores: Any = None
    """The evaluated scores, documents x labels: dense, masked or CSR."""
    scale: Scale | None = None
    """Their scale: `logit`, `probability` or `margin`; default: that of the evaluation."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the training by name, such as its loss."""

    def __post_init__(self) -> None:
        expected = (self.evaluation.overall.n_documents, len(self.evaluation.labels.names))
        if self.data is not None and len(self.data) != expected[0]:
            raise InputError(
                f"expected the {expected[0]} evaluated documents, got {len(self.data)} texts."
            )
        got = getattr(self.scores, "shape", type(self.scores).__name__)
        if self.scores is not None and got != expected:
            raise InputError(f"expected scores of shape {expected}, got {got}.")
        if self.logits is None:
            return
        evaluated = self.evaluation.y_pred
        # Figures of other scores, or of the same on another scale, would be silently wrong.
        decided = self.evaluation.thresholds.apply(self.logits, "logit")
        decided = without_pairs(decided, self.evaluation.unknown)
        different = int((evaluated != decided).nnz)
        if different > ROUNDED * max(evaluated.nnz, decided.nnz):
            raise InputError(
                "expected the scores that were evaluated, but as "
                f"{self.scale or self.evaluation.scale}s these lead to other decisions "
                f"({different} differ). Is it another scale, such as scale='probability'?"
            )

    @cached_property
    def logits(self) -> Any:
        """The scores on the scale of the thresholds: logits or margins. None: unknown."""
        scale = self.evaluation.scale if self.scale is None else self.scale
        return None if self.scores is None else to_logits(self.scores, scale)


def compare_runs(evaluations: Mapping[str, Evaluation]) -> dict[str, Comparison]:
    """Every later evaluation against the first."""
    (_, first), *later = evaluations.items()
    comparisons: dict[str, Comparison] = {}
    for name, evaluation in later:
        if evaluation.labels.names != first.labels.names:
            comparisons[name] = "they know different labels."
            continue
        try:
            comparisons[name] = compare(first, evaluation, N_RESAMPLES)
        except InputError as error:
            comparisons[name] = str(error)
    return comparisons


def same_groups(first: Evaluation, second: Evaluation) -> bool:
    """Whether the same labels are head, medium and tail."""

    def members(evaluation: Evaluation) -> dict[str, set[str]]:
        names = np.array(evaluation.labels.names, dtype=object)
        return {group: set(names[mask].tolist()) for group, mask in evaluation.masks.items()}

    return first is second or members(first) == members(second)


def label_rows(
    evaluations: Mapping[str, Evaluation], most: int | None = None
) -> Iterator[dict[str, Any]]:
    """Labels of all runs by name, the most frequent in training first; at most `most`.

    Each has the numbers of training and evaluated `documents` and the `group` of the first run that
    knows it, and its `figures`: measure -> one value per run, None where it is unknown.
    """
    # Label -> run -> column, in the order in which the runs name them.
    columns: dict[str, dict[str, int]] = defaultdict(dict)
    for run, evaluation in evaluations.items():
        for k, name in enumerate(evaluation.labels.names):
            columns[name][run] = k
    firsts = [next(iter(known.items())) for known in columns.values()]
    counts = np.array([evaluations[run].labels.train_count[k] for run, k in firsts])
    names = list(columns)
    by_measure = {
        measure: {name: getattr(each.labels, measure) for name, each in evaluations.items()}
        for measure in MEASURES
    }
    by_measure["threshold"] = {name: each.thresholds.values for name, each in evaluations.items()}
    # Of a million labels only those that are shown become rows.
    for position in np.argsort(-counts, kind="stable")[:most]:
        (run, k), known = firsts[position], columns[names[position]]
        table, masks = evaluations[run].labels, evaluations[run].masks
        yield {
            "name": names[position],
            "group": next((group for group, mask in masks.items() if mask[k]), ""),
            "train_count": int(table.train_count[k]),
            "documents": int(table.actual[k]),
            "figures": {
                measure: [
                    float(of_run[name][known[name]]) if name in known else None for name in of_run
                ]
                for measure, of_run in by_measure.items()
            },
        }
