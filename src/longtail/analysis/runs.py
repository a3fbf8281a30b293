"""Evaluated models side by side: their scores and documents, comparisons, labels by name."""

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
# Fraction of decisions that may differ by rounding if scores are given on another scale.
ROUNDED = 0.001
MEASURES = ("f1", "precision", "recall", "predicted")
Comparison = dict[str, dict[str, Difference]] | str
"""Group -> measure -> difference, or the reason why the runs cannot be compared."""


@dataclass(frozen=True, eq=False)
class Run:
    """One trained model on the evaluated documents."""

    evaluation: Evaluation
    data: TextData | None = None
    """The evaluated documents, for their texts and ids."""
    scores: Any = None
    """The evaluated scores, documents x labels: dense, masked or CSR."""
    scale: Scale | None = None
    """The scale of `scores`: `logit`, `probability` or `margin`; default: as evaluated."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Training settings by name, such as the loss."""

    def __post_init__(self) -> None:
        expected = (self.evaluation.overall.n_documents, len(self.evaluation.labels.names))
        if self.data is not None and len(self.data) != expected[0]:
            raise InputError(
                f"expected the {expected[0]} evaluated documents, got {len(self.data)} texts."
            )
        if self.scores is None:
            return
        shape = getattr(self.scores, "shape", type(self.scores).__name__)
        if shape != expected:
            raise InputError(f"expected scores of shape {expected}, got {shape}.")
        # Other scores, or the same on another scale, would give silently wrong figures.
        evaluated = self.evaluation.y_pred
        decided = self.evaluation.thresholds.apply(self.logits, "logit")
        decided = without_pairs(decided, self.evaluation.unknown)
        n_different = int((evaluated != decided).nnz)
        if n_different > ROUNDED * max(evaluated.nnz, decided.nnz):
            raise InputError(
                "expected the scores that were evaluated, but as "
                f"{self.scale or self.evaluation.scale}s these lead to other decisions "
                f"({n_different} differ). Is it another scale, such as scale='probability'?"
            )

    @cached_property
    def logits(self) -> Any:
        """The scores as logits or margins, like the thresholds; None if there are no scores."""
        scale = self.evaluation.scale if self.scale is None else self.scale
        return None if self.scores is None else to_logits(self.scores, scale)


def compare_runs(evaluations: Mapping[str, Evaluation]) -> dict[str, Comparison]:
    """Compare each later evaluation with the first."""
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
    """Whether head, medium and tail are the same labels in both."""

    def members(evaluation: Evaluation) -> dict[str, set[str]]:
        names = np.array(evaluation.labels.names, dtype=object)
        return {group: set(names[mask].tolist()) for group, mask in evaluation.masks.items()}

    return first is second or members(first) == members(second)


def label_rows(
    evaluations: Mapping[str, Evaluation], most: int | None = None
) -> Iterator[dict[str, Any]]:
    """One row per label of any run, the most frequent in training first; at most `most`.

    `group`, `train_count` and `documents` are those of the first run that knows the label;
    `figures` is measure -> one value per run, None if the run does not know the label.
    """
    # Label -> run -> column.
    columns: dict[str, dict[str, int]] = defaultdict(dict)
    for run, evaluation in evaluations.items():
        for k, name in enumerate(evaluation.labels.names):
            columns[name][run] = k
    firsts = [next(iter(known.items())) for known in columns.values()]
    counts = np.array([evaluations[run].labels.train_count[k] for run, k in firsts])
    names = list(columns)
    by_measure = {
        measure: {run: getattr(each.labels, measure) for run, each in evaluations.items()}
        for measure in MEASURES
    }
    by_measure["threshold"] = {run: each.thresholds.values for run, each in evaluations.items()}
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
                    float(values[known[run]]) if run in known else None
                    for run, values in by_run.items()
                ]
                for measure, by_run in by_measure.items()
            },
        }
