"""What a report is made of: a judged model, and where known its scores and the documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from longtail.data import TextData
from longtail.errors import InputError
from longtail.evaluation import Difference, Evaluation, compare

N_RESAMPLES = 1000
Comparison = dict[str, dict[str, Difference]] | str
"""Group -> measure -> difference, or why there is none."""


@dataclass(frozen=True, eq=False)
class Run:
    """One trained model on the judged documents."""

    evaluation: Evaluation
    data: TextData | None = None
    """The judged documents, for their texts and ids."""
    scores: Any = None
    """Documents x labels on the scale of the thresholds (logits or margins), dense or CSR."""

    def __post_init__(self) -> None:
        expected = (self.evaluation.overall.n_documents, len(self.evaluation.labels.names))
        if self.data is not None and len(self.data) != expected[0]:
            raise InputError(
                f"expected the {expected[0]} judged documents, got {len(self.data)} texts."
            )
        if self.scores is not None and tuple(self.scores.shape) != expected:
            raise InputError(f"expected scores of shape {expected}, got {self.scores.shape}.")


def evaluations_of(runs: Mapping[str, Run]) -> dict[str, Evaluation]:
    """The evaluations alone; an error if there are none."""
    if not runs:
        raise InputError("there is nothing to report: expected at least one run.")
    return {name: run.evaluation for name, run in runs.items()}


def compare_runs(evaluations: Mapping[str, Evaluation], seed: int = 0) -> dict[str, Comparison]:
    """Every later evaluation against the first."""
    (_, first), *later = evaluations.items()
    found: dict[str, Comparison] = {}
    for name, evaluation in later:
        if evaluation.labels.names != first.labels.names:
            found[name] = "its labels are others than those of the first run."
            continue
        try:
            found[name] = compare(first, evaluation, N_RESAMPLES, seed)
        except InputError as error:
            found[name] = str(error)
    return found
