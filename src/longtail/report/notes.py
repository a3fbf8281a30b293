"""What must be said below a table: labels not judged, and groups that differ between runs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from longtail.evaluation import Evaluation

Sizes = Mapping[str, Mapping[str, int]]
"""Column -> run -> how many labels or documents it has there."""


def caveats(evaluations: Mapping[str, Evaluation]) -> list[str]:
    """Sentences without which the figures of these runs would be misread; mostly none."""
    return [*not_judged(evaluations), *other_groups(evaluations)]


def not_judged(evaluations: Mapping[str, Evaluation]) -> list[str]:
    """Labels of the judged documents that a model does not know, runs with the same together."""
    told: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for name, evaluation in evaluations.items():
        if evaluation.unknown_labels:
            told.setdefault(tuple(sorted(evaluation.unknown_labels.items())), []).append(name)
    lines = []
    for unknown, runs in told.items():
        n_pairs, n_labels = sum(n for _, n in unknown), len(unknown)
        lines.append(
            f"Not judged, as {', '.join(runs)} {'was' if len(runs) == 1 else 'were'} not trained "
            f"on {'it' if n_labels == 1 else 'them'}: {_many(n_pairs, 'assignment')} of "
            f"{_many(n_labels, 'label')}, such as {unknown[0][0]}."
        )
    return lines


def other_groups(evaluations: Mapping[str, Evaluation]) -> list[str]:
    """Which runs count other labels as head, medium and tail than the first does."""
    first = next(iter(evaluations), "")
    others = [n for n, each in evaluations.items() if not same_groups(evaluations[first], each)]
    if not others:
        return []
    whose = f"those of {', '.join(others)} hold other labels than those of {first}"
    return [f"Head, medium and tail are by the counts of each run's training part: {whose}."]


def same_groups(first: Evaluation, second: Evaluation) -> bool:
    """Whether the same labels are head, medium and tail."""
    if first.labels.names == second.labels.names:
        return first.masks.keys() == second.masks.keys() and all(
            np.array_equal(mask, second.masks[group]) for group, mask in first.masks.items()
        )
    return _names(first) == _names(second)


def agreed(sizes: Mapping[str, int]) -> int | None:
    """The size that all runs have, if they have one."""
    found = set(sizes.values())
    return found.pop() if len(found) == 1 else None


def other_sizes(sizes: Sizes, unit: str) -> list[str]:
    """Sizes of the columns for which no single one can be written above."""
    lines = []
    for column, by_run in sizes.items():
        if len(set(by_run.values())) > 1:
            runs: dict[int, list[str]] = {}
            for name, size in by_run.items():
                runs.setdefault(size, []).append(name)
            said = ", ".join(f"{size} in {' and '.join(names)}" for size, names in runs.items())
            lines.append(f"{column.replace('_', '-')} {said}")
    return [f"Numbers of {unit} that differ between runs: {'; '.join(lines)}."] if lines else []


def _names(evaluation: Evaluation) -> dict[str, set[str]]:
    names = np.array(evaluation.labels.names, dtype=object)
    return {group: set(names[mask].tolist()) for group, mask in evaluation.masks.items()}


def _many(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
