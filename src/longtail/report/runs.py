"""What a report is made of: a judged model, and where known its scores and the documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from longtail.data import TextData
from longtail.errors import InputError
from longtail.evaluation import Difference, Evaluation, compare
from longtail.thresholds.scales import Scale, to_logits

N_RESAMPLES = 1000
# Of the judged decisions so many may differ by rounding, where scores come on another scale.
ROUNDED = 0.001
Comparison = dict[str, dict[str, Difference]] | str
"""Group -> measure -> difference, or why there is none."""


@dataclass(frozen=True, eq=False)
class Run:
    """One trained model on the judged documents."""

    evaluation: Evaluation
    data: TextData | None = None
    """The judged documents, for their texts and ids."""
    scores: Any = None
    """The judged scores, documents x labels: dense, masked or CSR."""
    scale: Scale | None = None
    """What the scores are: `logit`, `probability` or `margin`; default: as they were judged."""

    def __post_init__(self) -> None:
        expected = (self.evaluation.overall.n_documents, len(self.evaluation.labels.names))
        if self.data is not None and len(self.data) != expected[0]:
            raise InputError(
                f"expected the {expected[0]} judged documents, got {len(self.data)} texts."
            )
        if self.scores is not None and getattr(self.scores, "shape", None) != expected:
            came = getattr(self.scores, "shape", type(self.scores).__name__)
            raise InputError(f"expected scores of shape {expected}, got {came}.")
        if self.logits is not None and self.evaluation.y_pred is not None:
            self._check_decisions()

    @cached_property
    def logits(self) -> Any:
        """The scores, checked, on the scale of the thresholds: logits or margins. None: unknown."""
        return None if self.scores is None else to_logits(self.scores, self._scale)

    @property
    def _scale(self) -> Scale:
        return self.evaluation.scale if self.scale is None else self.scale

    def _check_decisions(self) -> None:
        """Figures of other scores, or of the same on another scale, would be wrong in silence."""
        judged = self.evaluation.decisions()[1]
        found = self.evaluation.rule.apply(self.logits, "logit")
        different = int((judged != found).nnz)
        if different > ROUNDED * max(judged.nnz, found.nnz):
            raise InputError(
                f"expected the scores that were judged, but as {self._scale}s these lead to other "
                f"decisions ({different} differ). Pass the scores that `evaluate` got, and say "
                "their scale: Run(evaluation, data, scores, scale='probability'), for example."
            )


def check_different(folders: Sequence[Path]) -> None:
    """Raise if two of the folders are one: a report would show it once, and compare nothing."""
    seen: dict[Path, Path] = {}
    for folder in folders:
        place = folder.resolve()
        if place in seen:
            as_well = "" if seen[place] == folder else f", as {seen[place]} and as {folder}"
            raise InputError(
                f"expected different runs, got {folder} twice{as_well}. Name each run once."
            )
        seen[place] = folder


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
