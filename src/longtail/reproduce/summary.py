"""The figures of a table from finished cells: means over seeds, spread, significance.

All cells are evaluated in the same bootstrap resamples of the test documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from longtail.analysis import ConfusedPair, confused_pairs
from longtail.data import TextData
from longtail.evaluation.bootstrap import (
    MEASURES,
    Difference,
    Figures,
    difference,
    interval,
    resampled,
)
from longtail.evaluation.results import document_groups
from longtail.labels import label_groups
from longtail.report.paper import CORPORA, Pair, paper_document_groups, paper_sizes
from longtail.reproduce.cells import Finished
from longtail.reproduce.claims import CONFUSED, Seen

N_RESAMPLES = 1000
TOP, ALL = 3, 10**9
Confusions = dict[tuple[str, str], float]
"""(missed, wrongly given) -> documents, mean over the seeds."""
Values = dict[str, dict[str, float]]
"""Group of labels or of documents -> micro_f1 and macro_f1 -> percent."""


@dataclass(frozen=True)
class RowSummary:
    """One row over its seeds."""

    recipe: Mapping[str, Any]
    seeds: dict[int, Values]
    mean: Values
    std: Values
    """Of a sample; empty with a single seed."""
    interval: dict[str, dict[str, tuple[float, float]]]
    """95 % interval of the mean, in percent, by bootstrap over the test documents."""
    difference: dict[str, dict[str, Difference]]
    """To the row that others are compared with, as fractions; empty for that row itself."""
    confused: list[tuple[str, str, float]]
    """Missed, wrongly given, documents (mean over the seeds): the most frequent."""
    seconds: float | None
    """Of one training, mean of those of which all seconds are known."""
    hardware: tuple[str, ...]
    commits: tuple[str, ...]
    versions: tuple[dict[str, str], ...]
    """Of Python and libraries: all that its cells were made with."""
    failed: dict[int, str] = field(default_factory=dict)
    """Seed -> why there is no result."""


@dataclass(frozen=True)
class Summary:
    """A whole reproduction as far as it got."""

    corpus: str
    paper: str | None
    """The corpus whose figures in the paper are the ones to compare with."""
    documents: dict[str, int]
    """Part -> documents."""
    sizes: dict[str, dict[str, int]]
    """Layout, `labels` or `documents` -> group -> how many of them."""
    rows: dict[str, RowSummary]
    n_seeds: int
    against: str | None
    seen: Seen
    busy: dict[str, float]
    """Hardware -> seconds in which it trained, on one cell or on several at a time."""
    killed: bool
    """Whether a training was killed on the way, which leaves out some of these seconds."""


def has_papers_sizes(parts: Mapping[str, TextData], corpus: str) -> bool:
    """Whether as many labels are in each group as in the paper: a folder's name says nothing."""
    groups = label_groups(parts["train"].stats().label_counts)
    ours = {"all": len(parts["train"].label_names)} | {k: int(m.sum()) for k, m in groups.items()}
    wanted = paper_sizes(corpus, "labels")
    return all(n is None or ours.get(group) == n for group, n in wanted.items())


class Evaluator:
    """Evaluates cells as they are finished, each once."""

    def __init__(self, parts: Mapping[str, TextData], corpus: str) -> None:
        self.corpus, self.paper = corpus, corpus if corpus in CORPORA else None
        self.parts = parts
        self.truth = parts["test"].onto(parts["train"].label_names)[0].Y
        self.stats = parts["train"].stats()
        self.masks = label_groups(self.stats.label_counts)
        each = np.diff(self.truth.indptr)
        self.groups = (
            paper_document_groups(each) if self.paper == "pubmed" else document_groups(self.truth)
        )
        self._figures: dict[tuple[str, int], Figures] = {}
        self._pairs: dict[tuple[str, int], list[ConfusedPair]] = {}

    def sizes(self) -> dict[str, dict[str, int]]:
        labels = {name: int(mask.sum()) for name, mask in self.masks.items()}
        documents = {name: int(mask.sum()) for name, mask in self.groups.items()}
        return {
            "labels": {"all": self.truth.shape[1], **labels},
            "documents": {"all": self.truth.shape[0], **documents},
        }

    def figures(self, cell: Finished) -> Figures:
        key = (cell.row, cell.seed)
        if key not in self._figures:
            (self._figures[key],) = resampled(
                self.truth, [cell.decisions], self.masks, N_RESAMPLES, 0, self.groups
            )
        return self._figures[key]

    def summary(
        self,
        recipes: Mapping[str, Mapping[str, Any]],
        cells: Mapping[str, Sequence[Finished]],
        failed: Mapping[str, Mapping[int, str]],
        n_seeds: int,
        against: str | None,
    ) -> Summary:
        """All rows with what is known of them."""
        means = {row: _mean([self.figures(c) for c in own]) for row, own in cells.items() if own}
        base = means.get(against) if against is not None else None
        counts = {row: self._confusions(own) for row, own in cells.items() if own}
        rows = {}
        for row, recipe in recipes.items():
            own = cells.get(row, ())
            values = {cell.seed: _percent(self.figures(cell)) for cell in own}
            compared = base is not None and row != against and row in means
            whole = [cell.seconds for cell in own if cell.seconds is not None]
            rows[row] = RowSummary(
                recipe=recipe,
                seeds=values,
                mean=_percent(means[row]) if row in means else {},
                std=_std(list(values.values())),
                interval=_intervals(means[row]) if row in means else {},
                difference=_differences(means[row], base) if compared and base else {},
                confused=[(*pair, n) for pair, n in _top(counts.get(row, {}))],
                seconds=float(np.mean(whole)) if whole else None,
                hardware=tuple(dict.fromkeys(cell.hardware for cell in own)),
                commits=tuple(dict.fromkeys(cell.commit for cell in own)),
                versions=tuple(_distinct([cell.versions for cell in own])),
                failed=dict(failed.get(row, {})),
            )
        everyone = [cell for own in cells.values() for cell in own]
        return Summary(
            corpus=self.corpus,
            paper=self.paper,
            documents={name: len(part) for name, part in self.parts.items()},
            sizes=self.sizes(),
            rows=rows,
            n_seeds=n_seeds,
            against=against,
            seen=self._seen(rows, counts),
            busy=_busy(everyone),
            killed=any(cell.seconds is None for cell in everyone),
        )

    def _confusions(self, cells: Sequence[Finished]) -> Confusions:
        """(missed, given) -> documents, mean over the cells."""
        names, found = self.parts["train"].label_names, dict[tuple[str, str], float]()
        for cell in cells:
            key = (cell.row, cell.seed)
            if key not in self._pairs:
                self._pairs[key] = confused_pairs(self.truth, cell.decisions, names, ALL)
            for missed, given, n in self._pairs[key]:
                found[missed, given] = found.get((missed, given), 0.0) + n / len(cells)
        return found

    def _seen(self, rows: Mapping[str, RowSummary], counts: Mapping[str, Confusions]) -> Seen:
        """What the claims are judged on."""
        figures: dict[str, dict[str, Pair | None]] = {
            row: {group: (v["micro_f1"], v["macro_f1"]) for group, v in found.mean.items()}
            for row, found in rows.items()
            if found.mean
        }
        confused = {row: _unordered(found) for row, found in counts.items()}
        wanted = {frozenset(pair) for pair in CONFUSED.get(str(self.paper), ())}
        errors = {
            row: float(sum(n for pair, n in found.items() if frozenset(pair) in wanted))
            for row, found in counts.items()
        }
        pairs = dict.fromkeys(pair for found in confused.values() for pair in found)
        return Seen(figures, confused, errors, {pair: self._shared(*pair) for pair in pairs})

    def _shared(self, one: str, other: str) -> int:
        """Training documents that carry both labels."""
        place = self.parts["train"].label_names.index
        columns = self.parts["train"].Y[:, [place(one), place(other)]]
        return int((np.diff(columns.tocsr().indptr) == 2).sum())


def _distinct(found: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    return [one for place, one in enumerate(found) if one not in found[:place]]


def _busy(cells: Sequence[Finished]) -> dict[str, float]:
    """Seconds in which each machine trained; cells side by side share theirs."""
    spans: dict[str, list[tuple[float, float]]] = {}
    for cell in cells:
        known = [(begin, end) for begin, end in cell.spans if end is not None]
        spans.setdefault(cell.hardware, []).extend(known)
    found = {}
    for hardware, own in spans.items():
        total, until = 0.0, -np.inf
        for begin, end in sorted(own):
            total += max(0.0, end - max(begin, until))
            until = max(until, end)
        found[hardware] = total
    return found


def _top(counts: Confusions) -> list[tuple[tuple[str, str], float]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:TOP]


def _unordered(counts: Confusions) -> list[tuple[str, str]]:
    """The most confused pairs, either of which is missed or given."""
    found: Confusions = {}
    for (missed, given), n in counts.items():
        pair = (min(missed, given), max(missed, given))
        found[pair] = found.get(pair, 0.0) + n
    return [pair for pair, _ in _top(found)]


def _mean(figures: Sequence[Figures]) -> Figures:
    return {
        group: {name: np.mean([one[group][name] for one in figures], axis=0) for name in measures}
        for group, measures in figures[0].items()
    }


def _percent(figures: Figures) -> Values:
    """The figures of all documents, which come before those of the resamples."""
    return {
        group: {name: 100 * float(measures[name][0]) for name in MEASURES}
        for group, measures in figures.items()
    }


def _std(values: Sequence[Values]) -> Values:
    if len(values) < 2:
        return {}
    return {
        group: {name: float(np.std([v[group][name] for v in values], ddof=1)) for name in MEASURES}
        for group in values[0]
    }


def _intervals(figures: Figures) -> dict[str, dict[str, tuple[float, float]]]:
    """95 % intervals, in percent, of the mean over the seeds."""
    return {
        group: {name: _scaled(interval(measures[name], (0.0, 1.0))) for name in MEASURES}
        for group, measures in figures.items()
    }


def _scaled(found: tuple[float, float]) -> tuple[float, float]:
    return 100 * found[0], 100 * found[1]


def _differences(figures: Figures, base: Figures) -> dict[str, dict[str, Difference]]:
    return {
        group: {name: difference(measures[name] - base[group][name]) for name in MEASURES}
        for group, measures in figures.items()
        if group in base
    }
