"""The verdict of a report: which run leads, by how much, and which group of labels decides it.

For a single run: its weakest group of labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from longtail.analysis.mistakes import NeverPredicted, never_predicted
from longtail.analysis.runs import Comparison, compare_runs
from longtail.evaluation import Difference, Evaluation
from longtail.evaluation.bootstrap import MEASURES
from longtail.labels import GROUP_NAMES

LEVEL = 0.05
"""Significance level: differences with a smaller p are significant."""


class Lead(NamedTuple):
    """The run with the highest F1 over all labels, compared with the second best."""

    measure: str
    """`micro_f1` or `macro_f1`."""
    best: str
    value: float
    second: str
    differences: Mapping[str, Difference]
    """Best minus second over `all` labels and in each group; empty if they cannot be compared."""
    deciding: str | None
    """The group that contributes most to the difference over all labels."""
    why_not: str | None = None
    """Why the two cannot be compared."""

    @property
    def is_significant(self) -> bool:
        """Whether the difference over all labels is significant."""
        return "all" in self.differences and self.differences["all"].p < LEVEL

    @property
    def significant_groups(self) -> list[str]:
        """Groups with a significant difference, Bonferroni-corrected for their number."""
        groups = {name: each for name, each in self.differences.items() if name != "all"}
        return [name for name, each in groups.items() if each.p < LEVEL / len(groups)]


class Weakness(NamedTuple):
    """The group of labels with the lowest macro-F1, and the labels that were never predicted."""

    group: str | None
    """None if fewer than two groups have labels."""
    never: list[NeverPredicted]
    n_carried: int
    """Number of labels present in the evaluated documents."""


def leads(
    evaluations: Mapping[str, Evaluation], comparisons: Mapping[str, Comparison]
) -> list[Lead]:
    """The leading runs in micro-F1 and in macro-F1; `comparisons` come from `compare_runs`."""
    return [_lead(measure, evaluations, comparisons) for measure in MEASURES]


def weakness(evaluation: Evaluation) -> Weakness:
    """The weakest group of labels of a run, and the labels it never predicts."""
    groups = {name: evaluation.groups()[name] for name in GROUP_NAMES}
    known = {name: scores.macro_f1 for name, scores in groups.items() if not scores.is_empty}
    # Ties go to the rarer group.
    weakest = min(reversed(known), key=lambda name: known[name]) if len(known) > 1 else None
    n_carried = int(np.count_nonzero(evaluation.labels.actual))
    return Weakness(weakest, never_predicted(evaluation), n_carried)


def _lead(
    measure: str, evaluations: Mapping[str, Evaluation], comparisons: Mapping[str, Comparison]
) -> Lead:
    values = {name: getattr(each.overall, measure) for name, each in evaluations.items()}
    best, second, *_ = sorted(values, key=lambda name: -values[name])
    first = next(iter(evaluations))
    # Head, medium and tail are those of the reference.
    reference, other = (best, second) if best == first else (second, best)
    if reference == first:
        compared = comparisons[other]
    else:
        compared = compare_runs({name: evaluations[name] for name in (reference, other)})[other]
    if isinstance(compared, str):
        return Lead(measure, best, values[best], second, {}, None, compared)
    groups = [name for name in ("all", *GROUP_NAMES) if name in compared]
    differences = {name: compared[name][measure] for name in groups}
    if reference == best:
        differences = {
            name: Difference(-each.value, -each.high, -each.low, each.p)
            for name, each in differences.items()
        }
    sizes = _sizes(measure, evaluations[reference], evaluations[other])
    # Macro-F1 is a mean over labels, micro-F1 nearly one over predicted and actual pairs, so the
    # contributions of the groups add up.
    parts = {name: sizes[name] * differences[name].value for name in groups if name != "all"}
    deciding = max(parts, key=lambda name: parts[name], default=None)
    if deciding is not None and parts[deciding] <= 0:
        deciding = None
    return Lead(measure, best, values[best], second, differences, deciding)


def _sizes(measure: str, reference: Evaluation, other: Evaluation) -> dict[str, float]:
    """The weight of each group's F1 in the F1 over all labels."""
    if measure == "macro_f1":
        return {name: float(mask.sum()) for name, mask in reference.masks.items()}
    first, second = reference.labels, other.labels
    pairs = first.actual + first.predicted + second.actual + second.predicted
    return {name: float(np.sum(pairs[mask])) for name, mask in reference.masks.items()}
