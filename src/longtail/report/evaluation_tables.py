"""Tables of evaluations in the paper's two layouts, with their notes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from longtail.analysis.runs import Comparison, same_groups
from longtail.evaluation import Difference, Evaluation, Scores
from longtail.evaluation.bootstrap import MEASURES
from longtail.metrics import count
from longtail.report.paper import LAYOUTS, SOURCE, paper_document_groups, paper_rows, paper_sizes
from longtail.report.table import (
    NONE,
    Cell,
    Pair,
    Strong,
    Table,
    best_pair,
    heading,
    pair_cell,
    plural,
)

Evaluations = Mapping[str, Evaluation]
GROUPS = ("all", "head", "medium", "tail")
DIFFERENCES = (
    "Percentage points [95 % interval of a paired bootstrap over documents], two-sided p; bold "
    "where the interval excludes 0. p is not corrected for the number of comparisons."
)


def report_tables(
    evaluations: Evaluations, comparisons: Mapping[str, Comparison], corpus: str | None = None
) -> list[Table]:
    """The tables of a report: both layouts, differences to the first run, and intervals."""
    tables = [
        label_table(evaluations, corpus, precision_recall=True),
        document_table(evaluations, corpus),
    ]
    if any(not isinstance(each, str) for each in comparisons.values()):
        first = next(iter(evaluations))
        tables += [difference_table(comparisons, first, layout) for layout in LAYOUTS]
    if any(evaluation.intervals for evaluation in evaluations.values()):
        tables += [make(evaluations, intervals=True) for make in (label_table, document_table)]
    return tables


def label_table(
    evaluations: Evaluations,
    corpus: str | None = None,
    intervals: bool = False,
    precision_recall: bool = False,
) -> Table:
    """F1 by training frequency of the labels: all, head, medium, tail.

    Args:
        evaluations: one row each; the best value of each column is bold.
        corpus: `reuters` or `pubmed` adds the paper's rows.
        intervals: add 95 % bootstrap intervals.
        precision_recall: add columns with precision and recall over all labels.
    """
    groups = {name: evaluation.groups() for name, evaluation in evaluations.items()}
    return _layout("labels", evaluations, groups, corpus, intervals, precision_recall)


def group_table(groups: Mapping[str, Mapping[str, Scores]]) -> Table:
    """`label_table` from the scores of groups, without evaluations."""
    return _layout("labels", {}, groups)


def document_table(
    evaluations: Evaluations, corpus: str | None = None, intervals: bool = False
) -> Table:
    """F1 by labels per document: single- and multi-label, or terciles; see `label_table`."""
    groups = {
        name: {"all": each.overall, **_document_groups(each, corpus)}
        for name, each in evaluations.items()
    }
    return _layout("documents", evaluations, groups, corpus, intervals)


def difference_table(
    comparisons: Mapping[str, Comparison], first: str, layout: str = "labels"
) -> Table:
    """Each later run minus the first, in percentage points, with interval and p.

    The columns are groups of labels (`labels`) or of documents (`documents`); empty groups have
    dashes.
    """
    known = {name: each for name, each in comparisons.items() if not isinstance(each, str)}
    groups = dict.fromkeys(group for each in known.values() for group in each)
    columns = GROUPS if layout == "labels" else ("all", *(g for g in groups if g not in GROUPS))
    rows = [
        (name, heading(measure), *(_difference(each.get(g, {}).get(measure)) for g in columns))
        for name, each in known.items()
        for measure in MEASURES
    ]
    title, notes = f"Difference to {first}", [DIFFERENCES]
    if layout == "labels":
        notes.append("Head, medium and tail are those of the first run.")
    else:
        title += ", by labels per document"
    for name, reason in comparisons.items():
        if isinstance(reason, str):
            notes.append(f"{name}: not compared, because {reason}")
    header = ("run", "measure", *map(heading, columns))
    return Table(title, header, rows, notes, range(2, len(rows), 2), n_names=2)


def metric_tables(evaluations: Evaluations) -> list[Table]:
    """A table of all metrics, one column per run; none if there are no metrics."""
    rows = []
    for metric in dict.fromkeys(name for each in evaluations.values() for name in each.metrics):
        values = (each.metrics.get(metric, np.nan) for each in evaluations.values())
        rows.append((metric, *(NONE if np.isnan(value) else f"{value:.4f}" for value in values)))
    return [Table("All metrics", ("metric", *evaluations), rows, ("Fractions.",))] if rows else []


def not_evaluated(evaluations: Evaluations) -> list[str]:
    """One sentence per run that does not know some labels of the documents."""
    return [
        f"Not evaluated, as {run} was not trained on {'it' if len(unknown) == 1 else 'them'}: "
        f"{plural(sum(unknown.values()), 'assignment')} of {plural(len(unknown), 'label')}, "
        f"such as {min(unknown)}."
        for run, evaluation in evaluations.items()
        if (unknown := evaluation.unknown_labels)
    ]


def other_groups(evaluations: Evaluations) -> list[str]:
    """A sentence naming the runs whose head, medium and tail differ from those of the first run."""
    first = next(iter(evaluations), "")
    others = [n for n, each in evaluations.items() if not same_groups(evaluations[first], each)]
    whose = f"those of {', '.join(others)} hold other labels than those of {first}"
    sentence = f"Head, medium and tail are by the counts of each run's training part: {whose}."
    return [sentence] if others else []


def _layout(
    layout: str,
    evaluations: Evaluations,
    groups: Mapping[str, Mapping[str, Scores]],
    corpus: str | None = None,
    intervals: bool = False,
    precision_recall: bool = False,
) -> Table:
    unit = "n_labels" if layout == "labels" else "n_documents"
    sizes: dict[str, set[int]] = defaultdict(set)
    for by_group in groups.values():
        for key, scores in by_group.items():
            sizes[key].add(getattr(scores, unit))
    paper = {} if corpus is None else paper_sizes(corpus, layout)
    # None where the runs disagree.
    ours = {key: n.pop() if len(n) == 1 else None for key, n in sizes.items()}
    rows: list[list[Cell]] = [[name] for name in groups]
    header = [""]
    for key in tuple(paper or ours) or GROUPS:
        size = ours.get(key, paper.get(key))
        header.append(heading(key) if size is None else f"{heading(key)} ({size})")
        pairs = [_percents(by_group.get(key)) for by_group in groups.values()]
        limits = [evaluations[name].intervals.get(key, {}) if intervals else {} for name in groups]
        for row, pair, limit in zip(rows, pairs, limits, strict=True):
            suffixes = [_bracket(limit.get(measure)) for measure in MEASURES]
            row.append(pair_cell(pair, best_pair(pairs), suffixes))
    notes = _notes(layout, ours, paper, intervals)
    extra = ("precision", "recall") if precision_recall else ()
    for measure in extra:
        pairs = [_percents(by_group["all"], measure) for by_group in groups.values()]
        for row, pair in zip(rows, pairs, strict=True):
            row.append(pair_cell(pair, best_pair(pairs)))
    if extra:
        notes.append("Precision and recall: micro / macro, over all labels.")
    if corpus is not None:
        for name, cells in paper_rows(corpus, layout).items():
            # The paper gives neither precision nor recall.
            figures = [*map(pair_cell, cells.values()), *(NONE for _ in extra)]
            rows.append([f"{name.upper()} (paper)", *figures])
    return Table(
        f"{LAYOUTS[layout]}, with intervals" if intervals else LAYOUTS[layout],
        [*header, *extra],
        rows,
        notes,
        (len(groups),) if 0 < len(groups) < len(rows) else (),
        caveats=(
            *not_evaluated(evaluations),
            *(other_groups(evaluations) if layout == "labels" else ()),
        ),
    )


def _document_groups(evaluation: Evaluation, corpus: str | None) -> dict[str, Scores]:
    if corpus != "pubmed":
        return evaluation.by_labels_per_document
    truth, decided = evaluation.y_true, evaluation.y_pred
    return {
        key: Scores.of(count(truth[rows], decided[rows]), int(rows.sum()))
        for key, rows in paper_document_groups(np.diff(truth.indptr)).items()
    }


def _percents(scores: Scores | None, measure: str = "f1") -> Pair | None:
    if scores is None or scores.is_empty:
        return None
    micro, macro = (getattr(scores, f"{average}_{measure}") for average in ("micro", "macro"))
    return round(100 * micro, 2), round(100 * macro, 2)


def _bracket(limits: tuple[float, float] | None) -> str:
    return "" if limits is None else f" [{100 * limits[0]:.1f}, {100 * limits[1]:.1f}]"


def _difference(difference: Difference | None) -> Cell:
    if difference is None:
        return NONE
    value, low, high = map(points, (difference.value, difference.low, difference.high))
    significant = difference.low > 0 or difference.high < 0
    return (Strong(value) if significant else value, f" [{low}, {high}] {p_value(difference)}")


def points(difference: float) -> str:
    """A difference of fractions in percentage points."""
    # Adding 0.0 turns -0.0 into 0.0.
    return f"{round(100 * difference, 2) + 0.0:+.2f}"


def p_value(difference: Difference) -> str:
    """The p-value of a difference, as text."""
    return "p <0.001" if difference.p < 0.001 else f"p {difference.p:.3f}"


def _notes(
    layout: str, ours: Mapping[str, int | None], paper: Mapping[str, int | None], intervals: bool
) -> list[str]:
    notes = [f"Micro-F1 / macro-F1 in percent; in parentheses the number of {layout} in a group."]
    if intervals:
        notes.append("In square brackets the 95 % bootstrap interval over documents.")
    if paper:
        notes.append(f"Rows marked (paper): {SOURCE}.")
        if layout == "documents":
            notes.append("The paper gives no groups of documents for its SVM.")
    different = [
        f"{heading(key)} {size} (here {ours[key]})"
        for key, size in paper.items()
        if size is not None and ours.get(key) not in (None, size)
    ]
    if different:
        notes.append(f"The paper's groups have other numbers of {layout}: {', '.join(different)}.")
    return notes
