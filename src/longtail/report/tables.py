"""Tables of evaluations as plain text in the paper's two layouts, for any renderer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from longtail.evaluation import Evaluation, Scores
from longtail.metrics import count
from longtail.report.notes import Sizes, agreed, caveats, not_judged, other_sizes
from longtail.report.paper import SOURCE, Pair, paper_document_groups, paper_rows, paper_sizes

GROUPS = ("all", "head", "medium", "tail")
MEASURES = ("micro_f1", "macro_f1")
NONE = "\N{EN DASH}"
DIFFERENCES = (
    "Points of percent [95 % interval of a paired bootstrap over documents], two-sided p; bold "
    "where the interval leaves out 0. The p are not corrected for the number of comparisons."
)
FIRSTS_GROUPS = "Head, medium and tail are those of the first run."
# Control characters and unpaired surrogates, which no output format takes.
UNFIT = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True)
class Span:
    """A piece of a cell; `strong` for the best figure, or one that chance does not explain."""

    text: str
    strong: bool = False


Cell = tuple[Span, ...]


@dataclass(frozen=True)
class Table:
    """Header and rows of text that is not escaped yet."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    rules: tuple[int, ...] = ()
    """Rows with a line above them, such as the first of the paper's."""
    n_names: int = 1
    """Columns that say what a row is."""
    caveats: tuple[str, ...] = ()
    """Notes without which the figures would be misread: not even a bare table omits them."""

    def plain(self) -> list[list[str]]:
        """Header and rows as strings."""
        cells = [["".join(span.text for span in cell) for cell in row] for row in self.rows]
        return [list(self.header), *cells]


def table_rows(evaluations: Mapping[str, Evaluation]) -> list[list[str]]:
    """A header and one row per evaluation: micro-/macro-F1 in percent for every label group."""
    return label_table(evaluations).plain()


def label_table(
    evaluations: Mapping[str, Evaluation], corpus: str | None = None, intervals: bool = False
) -> Table:
    """By training frequency of the labels: all, head, medium, tail.

    Args:
        evaluations: our rows; the best figure of every column among them is strong.
        corpus: `reuters` or `pubmed` adds the paper's rows.
        intervals: write the 95 % bootstrap interval behind every figure.
    """
    ours = {name: evaluation.groups() for name, evaluation in evaluations.items()}
    limits = {name: e.intervals for name, e in evaluations.items()} if intervals else {}
    title = "By frequency of the labels"
    return _layout("labels", title, ours, corpus, limits, caveats(evaluations))


def document_table(
    evaluations: Mapping[str, Evaluation], corpus: str | None = None, intervals: bool = False
) -> Table:
    """By the number of labels of a document: single- and multi-label, or terciles as the paper.

    The arguments are those of `label_table`.
    """
    ours = {
        name: {
            "all": evaluation.overall,
            **(_paper_terciles if corpus == "pubmed" else _own_groups)(evaluation),
        }
        for name, evaluation in evaluations.items()
    }
    limits = {name: e.intervals for name, e in evaluations.items()} if intervals else {}
    title = "By labels per document"
    return _layout("documents", title, ours, corpus, limits, not_judged(evaluations))


def difference_table(
    comparisons: Mapping[str, Mapping[str, Mapping[str, Any]] | str],
    first: str,
    layout: str = "labels",
) -> Table:
    """Every later run minus the first, in points of percent, with its interval and p.

    The columns are groups of labels (`labels`) or of documents (`documents`); a group without
    either has dashes.
    """
    known = {name: found for name, found in comparisons.items() if not isinstance(found, str)}
    columns: tuple[str, ...] = GROUPS
    if layout == "documents":
        others = (group for found in known.values() for group in found if group not in GROUPS)
        columns = ("all", *dict.fromkeys(others))
    rows: list[tuple[Cell, ...]] = []
    for name, found in known.items():
        for measure in MEASURES:
            cells = [_difference(found.get(group, {}).get(measure)) for group in columns]
            rows.append((_text(name), _text(_said(measure)), *cells))
    notes = [DIFFERENCES] + [FIRSTS_GROUPS] * (layout == "labels")
    notes += [
        f"{name}: not compared, because {found}"
        for name, found in comparisons.items()
        if isinstance(found, str)
    ]
    header = ("run", "measure", *map(_said, columns))
    by = "" if layout == "labels" else ", by labels per document"
    rules = tuple(range(2, len(rows), 2))
    title = f"Difference to {first}{by}"
    return Table(title, header, tuple(rows), tuple(notes), rules, n_names=2)


def metric_table(evaluations: Mapping[str, Evaluation]) -> Table:
    """All averages and ranking metrics, one column per run."""
    names = list(dict.fromkeys(m for e in evaluations.values() for m in e.metrics))
    rows = []
    for metric in names:
        values = [e.metrics.get(metric) for e in evaluations.values()]
        rows.append((_text(metric), *(_text(_number(value)) for value in values)))
    return Table("All metrics", ("metric", *evaluations), tuple(rows), ("Fractions.",))


def render_cell(cell: Cell, escape: Callable[[str], str], strong: str) -> str:
    """The escaped cell; `strong` is a pattern such as `**{}**`. Spaces stay outside of it."""
    parts = []
    for span in cell:
        inner = span.text.strip()
        start = span.text.find(inner)
        text = escape(inner)
        parts += [span.text[:start], strong.format(text) if span.strong else text]
        parts.append(span.text[start + len(inner) :])
    return "".join(parts)


def one_line(text: str) -> str:
    """The text without line breaks and characters that no output format takes."""
    return " ".join(UNFIT.sub("\N{REPLACEMENT CHARACTER}", text).split())


def _layout(
    layout: str,
    title: str,
    ours: Mapping[str, Mapping[str, Scores]],
    corpus: str | None,
    limits: Mapping[str, Any],
    told: Iterable[str],
) -> Table:
    sizes = _sizes(layout, ours)
    own = {key: agreed(by_run) for key, by_run in sizes.items()}
    theirs = {} if corpus is None else paper_sizes(corpus, layout)
    columns = tuple(theirs or own) or GROUPS
    best = {key: _best(groups.get(key) for groups in ours.values()) for key in columns}
    rows: list[tuple[Cell, ...]] = []
    for name, groups in ours.items():
        found = limits.get(name, {})
        cells = (_cell(groups.get(key), best[key], found.get(key, {})) for key in columns)
        rows.append((_text(name), *cells))
    if corpus is not None:
        for name, pairs in paper_rows(corpus, layout).items():
            rows.append((_text(f"{name.upper()} (paper)"), *map(_paper_cell, pairs.values())))
    header = ["", *(_heading(key, own.get(key, theirs.get(key))) for key in columns)]
    rules = (len(ours),) if 0 < len(ours) < len(rows) else ()
    unit = "labels" if layout == "labels" else "documents"
    notes = _notes(layout, unit, own, theirs, bool(limits))
    title += ", with intervals" if limits else ""
    told = (*other_sizes(sizes, unit), *told)
    return Table(title, tuple(header), tuple(rows), tuple(notes), rules, caveats=told)


def _sizes(layout: str, ours: Mapping[str, Mapping[str, Scores]]) -> Sizes:
    """Columns of all runs, in order."""
    sizes: dict[str, dict[str, int]] = {}
    for name, groups in ours.items():
        for key, scores in groups.items():
            size = scores.n_labels if layout == "labels" else scores.n_documents
            sizes.setdefault(key, {})[name] = size
    return sizes


def _own_groups(evaluation: Evaluation) -> dict[str, Scores]:
    return evaluation.by_labels_per_document


def _paper_terciles(evaluation: Evaluation) -> dict[str, Scores]:
    """Documents cut where the paper cuts those of PubMed, whatever our own terciles are."""
    if evaluation.y_true is None:
        return evaluation.by_labels_per_document
    truth, decided = evaluation.decisions()
    groups = paper_document_groups(np.diff(truth.indptr))
    return {
        key: Scores.of(count(truth[rows], decided[rows]), int(rows.sum()))
        for key, rows in groups.items()
    }


def _best(groups: Iterable[Scores | None]) -> Pair | None:
    """The highest micro- and macro-F1 in percent as written; None for a single run."""
    values = [_percents(scores) for scores in groups if scores and not scores.is_empty]
    return (max(v[0] for v in values), max(v[1] for v in values)) if len(values) > 1 else None


def _percents(scores: Scores) -> Pair:
    return round(100 * scores.micro_f1, 2), round(100 * scores.macro_f1, 2)


def _cell(scores: Scores | None, best: Pair | None, limits: Mapping[str, Any]) -> Cell:
    if scores is None or scores.is_empty:
        return _text(NONE)
    spans = []
    for k, (value, measure) in enumerate(zip(_percents(scores), MEASURES, strict=True)):
        spans.append(Span(f"{value:.2f}", best is not None and value == best[k] > 0))
        if measure in limits:
            low, high = limits[measure]
            spans.append(Span(f" [{100 * low:.1f}, {100 * high:.1f}]"))
        spans.append(Span(" / "))
    return tuple(spans[:-1])


def _paper_cell(pair: Pair | None) -> Cell:
    return _text(NONE if pair is None else f"{pair[0]:.2f} / {pair[1]:.2f}")


def _difference(found: Any) -> Cell:
    if found is None:
        return _text(NONE)
    # Adding 0 turns what rounds to -0 into 0.
    value, low, high = (round(100 * v, 2) + 0.0 for v in (found.value, found.low, found.high))
    sure = found.low > 0 or found.high < 0
    return (
        Span(f"{value:+.2f}", sure),
        Span(f" [{low:+.2f}, {high:+.2f}] p {'<' if found.p < 0.001 else ''}"),
        Span("0.001" if found.p < 0.001 else f"{found.p:.3f}"),
    )


def _heading(key: str, size: int | None) -> str:
    said = _said(key)
    return said if size is None else f"{said} ({size})"


def _said(key: str) -> str:
    """single_label -> single-label, micro_f1 -> micro-F1."""
    return key.replace("_f1", "-F1").replace("_", "-")


def _text(text: str) -> Cell:
    return (Span(text),)


def _number(value: float | None) -> str:
    return NONE if value is None or value != value else f"{value:.4f}"


def _notes(
    layout: str,
    unit: str,
    own: Mapping[str, int | None],
    theirs: Mapping[str, int | None],
    intervals: bool,
) -> list[str]:
    notes = [f"Micro-F1 / macro-F1 in percent; in brackets behind a group its number of {unit}."]
    if intervals:
        notes.append("In square brackets the 95 % bootstrap interval over documents.")
    if theirs:
        notes.append(f"Rows marked (paper): {SOURCE}.")
        if layout == "documents":
            notes.append("The paper gives no groups of documents for its SVM.")
    other = [
        f"{_said(key)} {size} (here {own[key]})"
        for key, size in theirs.items()
        if size is not None and own.get(key) not in (None, size)
    ]
    if other:
        notes.append(f"The paper's groups have other numbers of {unit}: {', '.join(other)}.")
    return notes
