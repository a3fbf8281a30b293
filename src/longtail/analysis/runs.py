"""Evaluated models side by side: their scores and documents, comparisons, labels by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from longtail.data import TextData
from longtail.errors import InputError
from longtail.evaluation import Difference, Evaluation, compare
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
    """What the scores are: `logit`, `probability` or `margin`; default: as they were evaluated."""

    def __post_init__(self) -> None:
        expected = (self.evaluation.overall.n_documents, len(self.evaluation.labels.names))
        if self.data is not None and len(self.data) != expected[0]:
            raise InputError(
                f"expected the {expected[0]} evaluated documents, got {len(self.data)} texts."
            )
        if self.scores is not None and getattr(self.scores, "shape", None) != expected:
            got = getattr(self.scores, "shape", type(self.scores).__name__)
            raise InputError(f"expected scores of shape {expected}, got {got}.")
        if self.logits is not None and self.evaluation.y_pred is not None:
            self._check_decisions()

    @cached_property
    def logits(self) -> Any:
        """The scores on the scale of the thresholds: logits or margins. None: unknown."""
        return None if self.scores is None else to_logits(self.scores, self._scale)

    @property
    def _scale(self) -> Scale:
        return self.evaluation.scale if self.scale is None else self.scale

    def _check_decisions(self) -> None:
        """Figures of other scores, or of the same on another scale, would be silently wrong."""
        evaluated = self.evaluation.decisions()[1]
        decided = self.evaluation.rule.apply(self.logits, "logit")
        different = int((evaluated != decided).nnz)
        if different > ROUNDED * max(evaluated.nnz, decided.nnz):
            raise InputError(
                f"expected the scores that were evaluated, but as {self._scale}s these lead to "
                f"other decisions ({different} differ). Pass the scores that `evaluate` got, and "
                "their scale: Run(evaluation, data, scores, scale='probability'), for example."
            )


def compare_runs(evaluations: Mapping[str, Evaluation]) -> dict[str, Comparison]:
    """Every later evaluation against the first."""
    (_, first), *later = evaluations.items()
    comparisons: dict[str, Comparison] = {}
    for name, evaluation in later:
        if evaluation.labels.names != first.labels.names:
            comparisons[name] = "its labels are others than those of the first run."
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


@dataclass(frozen=True)
class LabelRow:
    """A label, as the first run that knows it counts it, and its figures in every run."""

    name: str
    group: str
    train_count: int
    documents: int
    values: dict[str, list[float | None]]
    """Measure -> one value per run; fractions, but documents for `predicted`."""


def label_rows(evaluations: Mapping[str, Evaluation], most: int | None = None) -> list[LabelRow]:
    """Labels of all runs by name, the most frequent in training first; at most `most`."""
    runs = list(evaluations.values())
    known: dict[str, tuple[int, int]] = {}
    for number, evaluation in enumerate(runs):
        for k, name in enumerate(evaluation.labels.names):
            known.setdefault(name, (number, k))
    counts = np.array([runs[number].labels.train_count[k] for number, k in known.values()])
    names = list(known)
    # Of a million labels only those that are shown become rows.
    chosen = [names[k] for k in np.argsort(-counts, kind="stable")[:most]]
    wanted = set(chosen)
    columns = [{n: k for k, n in enumerate(e.labels.names) if n in wanted} for e in runs]
    rows = []
    for name in chosen:
        number, k = known[name]
        table, masks = runs[number].labels, runs[number].masks
        group = next((group for group, mask in masks.items() if mask[k]), "")
        values = {
            measure: [
                float(getattr(e.labels, measure)[of[name]]) if name in of else None
                for e, of in zip(runs, columns, strict=True)
            ]
            for measure in MEASURES
        }
        rows.append(LabelRow(name, group, int(table.train_count[k]), int(table.actual[k]), values))
    return rows
