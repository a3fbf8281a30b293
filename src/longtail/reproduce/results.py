"""The results of finished cells as plain values: means over seeds, spread, significance, claims.

All cells are evaluated on the same bootstrap resamples of the test documents. `to_dict` is the
content of `results.json`, from which the page is generated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from longtail.analysis import confused_pairs
from longtail.data import TextData
from longtail.evaluation.bootstrap import MEASURES, Figures, difference, interval, resampled
from longtail.evaluation.results import document_groups
from longtail.labels import label_groups
from longtail.report.paper import (
    CORPORA,
    LAYOUTS,
    SOURCE,
    paper_document_groups,
    paper_rows,
    paper_sizes,
)
from longtail.reproduce.cells import Finished, seconds
from longtail.reproduce.claims import CONFUSED, Evidence, evaluate_claims

N_RESAMPLES = 1000
TOP, ALL = 3, 10**9
Pairs = Mapping[tuple[str, str], float]
"""(missed, wrongly predicted) -> number of documents."""


class Results:
    """Collects finished cells and evaluates each of them once."""

    def __init__(
        self,
        parts: Mapping[str, TextData],
        corpus: str,
        recipes: Mapping[str, Mapping[str, Any]],
        n_seeds: int,
        against: str | None,
        command: str = "",
    ) -> None:
        self.recipes, self.n_seeds, self.against = recipes, n_seeds, against
        self.corpus, self.command, self.parts = corpus, command, parts
        self.finished: dict[tuple[str, int], Finished] = {}
        self.failed: dict[str, dict[int, str]] = {row: {} for row in recipes}
        """Row -> seed -> reason of the failure."""
        self.train = parts["train"]
        self.truth = parts["test"].onto(self.train.label_names)[0].Y
        self.masks = label_groups(self.train.stats().label_counts)
        if corpus == "pubmed":
            self.groups = paper_document_groups(np.diff(self.truth.indptr))
        else:
            self.groups = document_groups(self.truth)

    def add(self, result: Finished) -> None:
        """Evaluate a finished cell."""
        decided, names = result["decisions"], self.train.label_names
        (figures,) = resampled(self.truth, [decided], self.masks, N_RESAMPLES, 0, self.groups)
        confused = {
            (pair.missed, pair.predicted): pair.documents
            for pair in confused_pairs(self.truth, decided, names, ALL)
        }
        result |= {"figures": figures, "confused": confused}
        self.finished[result["row"], result["seed"]] = result

    def to_dict(self) -> dict[str, Any]:
        """All results so far, in percent, ready for JSON."""
        cells = [self.finished[key] for key in sorted(self.finished)]
        by_row = {row: [cell for cell in cells if cell["row"] == row] for row in self.recipes}
        known = {row: cells for row, cells in by_row.items() if cells}
        means = {
            row: _apply(lambda *values: np.mean(values, axis=0), *(c["figures"] for c in row_cells))
            for row, row_cells in known.items()
        }
        confused = {row: _mean_pairs(row_cells) for row, row_cells in known.items()}
        base = means.get(self.against or "")
        rows: dict[str, dict[str, Any]] = {}
        for row, row_cells in by_row.items():
            seeds = {cell["seed"]: _percent(cell["figures"]) for cell in row_cells}
            mean, compared = means.get(row), base if row != self.against else None
            times = [time for time in map(seconds, row_cells) if time is not None]
            rows[row] = {
                "recipe": dict(self.recipes[row]),
                "seeds": seeds,
                "mean": _percent(mean) if mean else {},
                "std": _apply(lambda *v: float(np.std(v, ddof=1)), *seeds.values())
                if len(row_cells) > 1
                else {},
                "interval": _apply(_interval, mean) if mean else {},
                "difference": _apply(_difference, mean, compared) if mean and compared else {},
                "confused": [
                    {"missed": missed, "given": given, "documents": round(n, 3)}
                    for (missed, given), n in _top(confused.get(row, {}))
                ],
                "seconds": float(np.mean(times)) if times else None,
                "hardware": _unique(cell["hardware"] for cell in row_cells),
                "versions": _unique(cell["versions"] for cell in row_cells),
                "failed": dict(self.failed[row]),
                "commit": _unique(cell["commit"] for cell in row_cells),
            }
        paper = None
        if self.corpus in CORPORA:
            tables = {layout: paper_rows(self.corpus, layout) for layout in LAYOUTS}
            paper = {"source": SOURCE, **tables}
        n_documents, n_labels = self.truth.shape
        return {
            "corpus": {
                "name": self.corpus,
                "documents": {name: len(part) for name, part in self.parts.items()},
                "sizes": {
                    "labels": _sizes(n_labels, self.masks),
                    "documents": _sizes(n_documents, self.groups),
                },
            },
            "command": self.command,
            "commit": _unique(commit for row in rows.values() for commit in row["commit"]),
            "hardware": _unique(name for row in rows.values() for name in row["hardware"]),
            "units": "percent; std is that of a sample; difference is to the row `against`",
            "against": self.against,
            "n_seeds": self.n_seeds,
            "busy": {name: round(time, 1) for name, time in _busy(cells).items()},
            "killed": any(seconds(cell) is None for cell in cells),
            "rows": rows,
            "paper": paper,
            "claims": self._claims(rows, confused) if paper else [],
        }

    def _claims(
        self, rows: Mapping[str, Any], confused: Mapping[str, Pairs]
    ) -> list[dict[str, Any]]:
        """The paper's claims, checked on our results and on the paper's."""
        unordered = {row: _unordered(pairs) for row, pairs in confused.items()}
        top = {row: [pair for pair, _ in _top(pairs)] for row, pairs in unordered.items()}
        papers = [(min(pair), max(pair)) for pair in CONFUSED[self.corpus]]
        evidence = Evidence(
            {row: {g: (*v.values(),) for g, v in rows[row]["mean"].items()} for row in confused},
            top,
            {row: sum(pairs[pair] for pair in papers) for row, pairs in unordered.items()},
            {pair: self._shared(*pair) for pairs in top.values() for pair in pairs},
        )
        return evaluate_claims(self.corpus, evidence)

    def _shared(self, first: str, second: str) -> int:
        """Number of training documents with both labels."""
        index = self.train.label_names.index
        columns = self.train.Y[:, [index(first), index(second)]]
        return int((np.diff(columns.tocsr().indptr) == 2).sum())


def has_papers_sizes(parts: Mapping[str, TextData], corpus: str) -> bool:
    """Whether each group has as many labels as in the paper: a folder's name proves nothing."""
    train = parts["train"]
    ours = _sizes(len(train.label_names), label_groups(train.stats().label_counts))
    papers = paper_sizes(corpus, "labels")
    return all(n is None or ours.get(group) == n for group, n in papers.items())


def _sizes(total: int, masks: Mapping[str, Any]) -> dict[str, int]:
    return {"all": total, **{name: int(mask.sum()) for name, mask in masks.items()}}


def _busy(cells: Sequence[Finished]) -> dict[str, float]:
    """Seconds during which each machine trained; time of parallel cells counts once."""
    total = {cell["hardware"]: 0.0 for cell in cells}
    until = dict.fromkeys(total, -np.inf)
    spans = [(*span, cell["hardware"]) for cell in cells for span in cell["spans"] if span[1]]
    for begin, end, hardware in sorted(spans):
        total[hardware] += max(0.0, end - max(begin, until[hardware]))
        until[hardware] = max(until[hardware], end)
    return total


def _mean_pairs(cells: Sequence[Finished]) -> Pairs:
    counts: dict[tuple[str, str], float] = defaultdict(float)
    for cell in cells:
        for pair, n in cell["confused"].items():
            counts[pair] += n / len(cells)
    return counts


def _unordered(counts: Pairs) -> Pairs:
    """Counts of pairs regardless of which label was missed."""
    unordered: dict[tuple[str, str], float] = defaultdict(float)
    for pair, n in counts.items():
        unordered[min(pair), max(pair)] += n
    return unordered


def _top(counts: Pairs) -> list[tuple[tuple[str, str], float]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:TOP]


def _apply(
    function: Callable[..., Any], *tables: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Apply a function to the values of the tables, for each group and measure."""
    return {
        group: {name: function(*(table[group][name] for table in tables)) for name in MEASURES}
        for group in tables[0]
    }


def _percent(figures: Figures) -> dict[str, dict[str, float]]:
    """The full-sample values, which come before those of the resamples."""
    return _apply(lambda values: 100 * float(values[0]), figures)


def _interval(values: Any) -> list[float]:
    return [100 * limit for limit in interval(values, (0.0, 1.0))]


def _difference(ours: Any, base: Any) -> dict[str, float]:
    parts = asdict(difference(ours - base))
    return {key: value if key == "p" else 100 * value for key, value in parts.items()}


def _unique(values: Iterable[Any]) -> list[Any]:
    """Distinct values, which may be unhashable."""
    return list({str(value): value for value in values}.values())
