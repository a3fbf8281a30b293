"""The figures of a table from finished cells: means over seeds, spread, significance.

All cells are evaluated in the same bootstrap resamples of the test documents.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from longtail.report.paper import CORPORA, paper_document_groups, paper_sizes
from longtail.reproduce.cells import Finished
from longtail.reproduce.claims import CONFUSED, Evidence

N_RESAMPLES = 1000
TOP, ALL = 3, 10**9
Confusions = Mapping[tuple[str, str], float]
"""(missed, wrongly given) -> documents, mean over the seeds."""
Values = dict[str, dict[str, float]]
"""Group of labels or of documents -> micro_f1 and macro_f1 -> percent."""


@dataclass(frozen=True)
class RowSummary:
    """One row over its seeds; a row without results has its recipe and what failed alone."""

    recipe: Mapping[str, Any]
    seeds: dict[int, Values] = field(default_factory=dict)
    mean: Values = field(default_factory=dict)
    std: Values = field(default_factory=dict)
    """Of a sample; empty with a single seed."""
    interval: dict[str, dict[str, tuple[float, float]]] = field(default_factory=dict)
    """95 % interval of the mean, in percent, by bootstrap over the test documents."""
    difference: dict[str, dict[str, Difference]] = field(default_factory=dict)
    """To the row that others are compared with, as fractions; empty for that row itself."""
    confused: Sequence[tuple[str, str, float]] = ()
    """Missed, wrongly given, documents (mean over the seeds): the most frequent."""
    seconds: float | None = None
    """Of one training, mean of those of which all seconds are known."""
    hardware: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    versions: tuple[dict[str, str], ...] = ()
    """Of Python and libraries: all that its cells were made with."""
    failed: Mapping[int, str] = field(default_factory=dict)
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
    evidence: Evidence
    busy: dict[str, float]
    """Hardware -> seconds in which it trained, on one cell or on several at a time."""
    killed: bool
    """Whether a training was killed on the way, which leaves out some of these seconds."""


def has_papers_sizes(parts: Mapping[str, TextData], corpus: str) -> bool:
    """Whether as many labels are in each group as in the paper: a folder's name says nothing."""
    train = parts["train"]
    ours = _sizes(len(train.label_names), label_groups(train.stats().label_counts))
    papers = paper_sizes(corpus, "labels")
    return all(n is None or ours.get(group) == n for group, n in papers.items())


class Evaluator:
    """Evaluates cells as they are finished, each once."""

    def __init__(
        self,
        parts: Mapping[str, TextData],
        corpus: str,
        recipes: Mapping[str, Mapping[str, Any]],
        n_seeds: int,
        against: str | None,
    ) -> None:
        self.recipes, self.n_seeds, self.against = recipes, n_seeds, against
        self.finished: dict[tuple[str, int], Finished] = {}
        """(row, seed) -> result."""
        self.failed: dict[str, dict[int, str]] = {row: {} for row in recipes}
        """Row -> seed -> why there is no result."""
        self.corpus, self.paper = corpus, corpus if corpus in CORPORA else None
        self.parts, self.train = parts, parts["train"]
        self.truth = parts["test"].onto(self.train.label_names)[0].Y
        self.masks = label_groups(self.train.stats().label_counts)
        if corpus == "pubmed":
            self.groups = paper_document_groups(np.diff(self.truth.indptr))
        else:
            self.groups = document_groups(self.truth)
        self._evaluated: dict[tuple[str, int], tuple[Figures, list[ConfusedPair]]] = {}

    def evaluate(self, cell: Finished) -> tuple[Figures, list[ConfusedPair]]:
        """The figures of a cell, and all pairs of labels that it confuses."""
        key = (cell.row, cell.seed)
        if key not in self._evaluated:
            (figures,) = resampled(
                self.truth, [cell.decisions], self.masks, N_RESAMPLES, 0, self.groups
            )
            names = self.train.label_names
            pairs = confused_pairs(self.truth, cell.decisions, names, ALL)
            self._evaluated[key] = figures, pairs
        return self._evaluated[key]

    def summary(self) -> Summary:
        """All rows with what is known of them."""
        finished = [self.finished[key] for key in sorted(self.finished)]
        by_row = {row: [cell for cell in finished if cell.row == row] for row in self.recipes}
        base = self._mean(by_row[self.against]) if self.against and by_row[self.against] else None
        confusions = {row: self._confusions(cells) for row, cells in by_row.items() if cells}
        rows = {}
        for row, cells in by_row.items():
            rows[row] = RowSummary(self.recipes[row], failed=dict(self.failed[row]))
            if cells:
                compared = None if row == self.against else base
                rows[row] = self._filled(rows[row], cells, confusions[row], compared)
        n_documents, n_labels = self.truth.shape
        return Summary(
            corpus=self.corpus,
            paper=self.paper,
            documents={name: len(part) for name, part in self.parts.items()},
            sizes={
                "labels": _sizes(n_labels, self.masks),
                "documents": _sizes(n_documents, self.groups),
            },
            rows=rows,
            n_seeds=self.n_seeds,
            against=self.against,
            evidence=self._evidence(rows, confusions),
            busy=_busy(finished),
            killed=any(cell.seconds is None for cell in finished),
        )

    def _filled(
        self,
        row: RowSummary,
        cells: Sequence[Finished],
        confusions: Confusions,
        base: Figures | None,
    ) -> RowSummary:
        """The row with the results of its cells."""
        mean = self._mean(cells)
        seeds = {cell.seed: _percent(self.evaluate(cell)[0]) for cell in cells}
        seconds = [cell.seconds for cell in cells if cell.seconds is not None]
        return replace(
            row,
            seeds=seeds,
            mean=_percent(mean),
            std=_each(_std, *seeds.values()) if len(seeds) > 1 else {},
            interval=_each(lambda v: tuple(100 * x for x in interval(v, (0.0, 1.0))), mean),
            difference=_each(lambda v, w: difference(v - w), mean, base) if base else {},
            confused=[(*pair, n) for pair, n in _top(confusions)],
            seconds=float(np.mean(seconds)) if seconds else None,
            hardware=tuple(dict.fromkeys(cell.hardware for cell in cells)),
            commits=tuple(dict.fromkeys(cell.commit for cell in cells)),
            versions=tuple({str(cell.versions): cell.versions for cell in cells}.values()),
        )

    def _mean(self, cells: Sequence[Finished]) -> Figures:
        figures = [self.evaluate(cell)[0] for cell in cells]
        return _each(lambda *values: np.mean(values, axis=0), *figures)

    def _confusions(self, cells: Sequence[Finished]) -> Confusions:
        counts: dict[tuple[str, str], float] = defaultdict(float)
        for cell in cells:
            for missed, given, n in self.evaluate(cell)[1]:
                counts[missed, given] += n / len(cells)
        return counts

    def _evidence(
        self, rows: Mapping[str, RowSummary], confusions: Mapping[str, Confusions]
    ) -> Evidence:
        """What decides the paper's claims."""
        figures = {
            row: {group: (v["micro_f1"], v["macro_f1"]) for group, v in rows[row].mean.items()}
            for row in confusions
        }
        confused = {row: _unordered(counts) for row, counts in confusions.items()}
        of_paper = {frozenset(pair) for pair in CONFUSED.get(str(self.paper), ())}
        errors = {
            row: float(sum(n for pair, n in counts.items() if frozenset(pair) in of_paper))
            for row, counts in confusions.items()
        }
        pairs = {pair for top in confused.values() for pair in top}
        return Evidence(figures, confused, errors, {pair: self._shared(*pair) for pair in pairs})

    def _shared(self, one: str, other: str) -> int:
        """Training documents that carry both labels."""
        index = self.train.label_names.index
        columns = self.train.Y[:, [index(one), index(other)]]
        return int((np.diff(columns.tocsr().indptr) == 2).sum())


def _sizes(total: int, masks: Mapping[str, Any]) -> dict[str, int]:
    return {"all": total, **{name: int(mask.sum()) for name, mask in masks.items()}}


def _busy(cells: Sequence[Finished]) -> dict[str, float]:
    """Seconds in which each machine trained; cells side by side share theirs."""
    total = {cell.hardware: 0.0 for cell in cells}
    until = dict.fromkeys(total, -np.inf)
    spans = [(*span, cell.hardware) for cell in cells for span in cell.known_spans]
    for begin, end, hardware in sorted(spans):
        total[hardware] += max(0.0, end - max(begin, until[hardware]))
        until[hardware] = max(until[hardware], end)
    return total


def _top(counts: Confusions) -> list[tuple[tuple[str, str], float]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:TOP]


def _unordered(counts: Confusions) -> list[tuple[str, str]]:
    """The most confused pairs, either of which is missed or given."""
    both: dict[tuple[str, str], float] = defaultdict(float)
    for (missed, given), n in counts.items():
        both[min(missed, given), max(missed, given)] += n
    return [pair for pair, _ in _top(both)]


def _each(
    function: Callable[..., Any], *tables: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """A function of what stands in each group and measure of the tables."""
    return {
        group: {name: function(*(table[group][name] for table in tables)) for name in MEASURES}
        for group in tables[0]
    }


def _percent(figures: Figures) -> Values:
    """The figures of all documents, which come before those of the resamples."""
    return _each(lambda values: 100 * float(values[0]), figures)


def _std(*values: float) -> float:
    return float(np.std(values, ddof=1))
