"""A reproduction as tables: figures with their spread, differences, claims, confusions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from longtail.evaluation.bootstrap import MEASURES
from longtail.report.paper import SOURCE, Pair, paper_rows
from longtail.report.table import NONE, Cell, Strong, Table, best_pair, heading, pair_cell
from longtail.reproduce.claims import (
    CONFUSED,
    Evidence,
    claims_about,
    paper_figures,
    row_name,
    signed,
)
from longtail.reproduce.recipes import describe_model, is_random
from longtail.reproduce.summary import N_RESAMPLES, RowSummary, Summary

TITLES = {"labels": "By frequency of the labels", "documents": "By labels per document"}
ANSWERS = {True: "seen", False: "not seen", None: NONE}


def figure_table(summary: Summary, layout: str) -> Table:
    """Mean and spread of micro- and macro-F1 of every row; the best of a column is strong."""
    groups, rows = groups_of(summary, layout), summary.rows
    best = {group: best_pair(_mean(row, group) for row in rows.values()) for group in groups}
    cells: list[list[Cell]] = []
    for name, row in rows.items():
        pairs = [pair_cell(_mean(row, g), best[g], _suffixes(row, g)) for g in groups]
        cells.append([row_name(name), *pairs, str(len(row.seeds) or NONE)])
    if summary.paper is not None:
        pairs = [pair_cell(pair) for pair in _papers_best(summary, layout).values()]
        cells.append(["the paper's best", *pairs, NONE])
    header = ("row", *_headings(summary, layout), "n")
    return Table(TITLES[layout], header, cells, _figure_notes(summary, layout))


def means_table(summary: Summary, title: str) -> Table:
    """The means by frequency of the labels, narrow enough for a terminal."""
    groups = groups_of(summary, "labels")
    rows = [
        [
            row_name(name),
            *(pair_cell(_mean(row, g)) for g in groups),
            str(len(row.seeds) or NONE),
        ]
        for name, row in summary.rows.items()
    ]
    return Table(title, ("row", *_headings(summary, "labels"), "n"), rows)


def interval_table(summary: Summary) -> Table:
    """95 % intervals over test documents, of all labels and of the rarest."""
    first, *_, last = groups_of(summary, "labels")
    columns = [(group, measure) for group in (first, last) for measure in MEASURES]
    rows = []
    for name, row in summary.rows.items():
        limits = [row.interval.get(group, {}).get(measure) for group, measure in columns]
        rows.append((row_name(name), *(f"{x[0]:.1f} to {x[1]:.1f}" if x else NONE for x in limits)))
    header = ("row", *(f"{_group(group)} {heading(measure)}" for group, measure in columns))
    note = f"95 % intervals of the means over the seeds; bootstrap, {N_RESAMPLES} resamples of the"
    return Table("Intervals", header, rows, (f"{note} test documents.",))


def paper_table(summary: Summary, layout: str) -> Table | None:
    """Ours minus the paper's, and the paper's; None where the paper has no such corpus."""
    if summary.paper is None:
        return None
    paper, best = paper_rows(summary.paper, layout), _papers_best(summary, layout)
    # A row that the paper lacks is measured by the best that it has.
    rows = [
        (row_name(name), *(_minus(_mean(row, g), paper.get(name, best)[g]) for g in best))
        for name, row in summary.rows.items()
    ]
    notes = [f"Points of percent, micro / macro; in brackets the paper's figures ({SOURCE})."]
    others = [row_name(name) for name in summary.rows if name not in paper]
    if others:
        notes.append(f"The paper's best figures of each column for {', '.join(others)}.")
    header = ("row", *_headings(summary, layout))
    return Table(f"{TITLES[layout]}: ours minus the paper's", header, rows, notes)


def claim_rows(summary: Summary) -> list[dict[str, Any]]:
    """Every claim of the paper about this corpus, checked on our figures and on its own."""
    if summary.paper is None:
        return []
    published, rows = Evidence(paper_figures(summary.paper)), []
    for claim in claims_about(summary.paper):
        ours, paper = (asdict(claim.evaluate(e)) for e in (summary.evidence, published))
        in_paper = {f"{key}_in_paper": value for key, value in paper.items()}
        rows.append({"claim": claim.text, **ours, **in_paper})
    return rows


def claim_table(summary: Summary) -> Table | None:
    """The claims, whether they are seen here, and what decides that."""
    rows = []
    for row in claim_rows(summary):
        here, paper = ANSWERS[row["seen"]], ANSWERS[row["seen_in_paper"]]
        if row["seen_in_paper"] is False:
            paper += f" ({row['because_in_paper']})"
        answer = Strong(here) if row["seen"] else here
        rows.append((row["claim"], answer, row["because"] or NONE, paper))
    header = ("what the paper says, in our words", "here", "what decides", "in its own table")
    note = (
        "Decided on the means above, significant or not: see the stars and the spread for that. "
        "Where the paper says similar, close or far, the bound in points is ours, set so that the "
        "paper's own figures lie within it. A dash where rows are missing, or where the paper "
        "publishes no figures."
    )
    return Table("The paper's claims", header, rows, (note,)) if rows else None


def confusion_table(summary: Summary) -> Table | None:
    """The most confused pairs of labels of every row."""
    if not any(row.confused for row in summary.rows.values()):
        return None
    rows = []
    for name, row in summary.rows.items():
        pairs = [f"{missed} → {given} ({_amount(n)})" for missed, given, n in row.confused]
        rows.append((row_name(name), *pairs, *[NONE] * (3 - len(pairs))))
    if summary.paper is not None:
        pairs = [f"{one} and {other}" for one, other in CONFUSED[summary.paper]]
        rows.append(("the paper, all losses", *pairs))
    notes = ("missed → wrongly predicted instead (test documents, mean over the seeds)",)
    header = ("row", "most often", "second", "third")
    return Table("Labels that are confused", header, rows, notes)


def training_table(summary: Summary) -> Table:
    """What was trained, how long, on what."""
    made = {(row.hardware, row.commits) for row in summary.rows.values() if row.seeds}
    # What is the same everywhere stands above the tables already.
    n_more = 2 if len(made) > 1 else 0
    rows = []
    for name, row in summary.rows.items():
        seconds = NONE if row.seconds is None else f"{row.seconds:.1f}"
        origin = (", ".join(row.hardware) or NONE, ", ".join(row.commits) or NONE)
        model = describe_model(name, row.recipe)
        rows.append((row_name(name), model, str(len(row.seeds)), seconds, *origin[:n_more]))
    libraries = by_text(
        (", ".join(f"{library} {version}" for library, version in versions.items()), name)
        for name, row in summary.rows.items()
        for versions in row.versions
    )
    notes = ["Seconds of one training, mean; several at a time (--jobs) slow each other down."]
    for text, names in libraries.items():
        notes.append(f"{'' if len(libraries) == 1 else ', '.join(names) + ': '}{text}.")
    header = ("row", "model", "trainings", "seconds", *("hardware", "commit")[:n_more])
    return Table("Training", header, rows, notes)


def failure_table(summary: Summary) -> Table | None:
    """What has no result, and why."""
    rows = [
        (row_name(name), str(seed), why)
        for name, row in summary.rows.items()
        for seed, why in row.failed.items()
    ]
    return Table("Failed", ("row", "seed", "why"), rows) if rows else None


def by_text(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Text -> the rows that it is about, from pairs of both."""
    rows: dict[str, list[str]] = {}
    for text, row in pairs:
        rows.setdefault(text, []).append(row_name(row))
    return rows


def groups_of(summary: Summary, layout: str) -> tuple[str, ...]:
    """The columns: those that are not empty; where the paper has the corpus, the paper's."""
    if summary.paper is not None:
        return tuple(next(iter(paper_rows(summary.paper, layout).values())))
    return tuple(group for group, size in summary.sizes[layout].items() if size)


def _figure_notes(summary: Summary, layout: str) -> list[str]:
    """How to read the figures; the second table is read as the first."""
    unit = "labels" if layout == "labels" else "test documents"
    brackets = f"in brackets behind a group its number of {unit}."
    if layout != "labels":
        return [f"As above; {brackets}"]
    several = any(row.std for row in summary.rows.values())
    spread = ", mean ± standard deviation over n seeds" if several else ""
    notes = [f"Micro-F1 / macro-F1 in percent{spread}; {brackets} Bold: the best of a column."]
    once = [row_name(name) for name, row in summary.rows.items() if not is_random(name, row.recipe)]
    if once and several:
        notes.append(f"No random numbers, so one training is enough: {', '.join(once)}.")
    if any(row.difference for row in summary.rows.values()):
        notes.append(
            f"Stars: the difference to {row_name(str(summary.against))} is significant over the "
            "choice of test documents (two-sided p < 0.05 *, p < 0.01 **; paired bootstrap, "
            f"{N_RESAMPLES} resamples of the documents, means over the seeds; not corrected for "
            "the number of comparisons)."
        )
    return notes


def _group(group: str) -> str:
    return "total" if group == "all" else heading(group)


def _headings(summary: Summary, layout: str) -> list[str]:
    sizes = summary.sizes[layout]
    return [f"{_group(group)} ({sizes[group]})" for group in groups_of(summary, layout)]


def _mean(row: RowSummary, group: str) -> Pair | None:
    mean = row.mean.get(group)
    return (mean["micro_f1"], mean["macro_f1"]) if mean else None


def _papers_best(summary: Summary, layout: str) -> dict[str, Pair | None]:
    rows = paper_rows(str(summary.paper), layout).values()
    return {group: best_pair(row[group] for row in rows) for group in groups_of(summary, layout)}


def _suffixes(row: RowSummary, group: str) -> tuple[str, str]:
    """Stars and standard deviation of micro- and of macro-F1."""
    suffixes = []
    for measure in MEASURES:
        difference = row.difference.get(group, {}).get(measure)
        p = difference.p if difference and difference.value else 1.0
        spread = f" ± {row.std[group][measure]:.2f}" if group in row.std else ""
        suffixes.append(f"{'**' if p < 0.01 else '*' if p < 0.05 else ''}{spread}")
    return suffixes[0], suffixes[1]


def _minus(ours: Pair | None, paper: Pair | None) -> Cell:
    if paper is None:
        return NONE
    figures = f" ({paper[0]:.2f} / {paper[1]:.2f})"
    if ours is None:
        return NONE + figures
    # Strong where ours is higher, by more than the paper's rounding.
    values = [a - b for a, b in zip(ours, paper, strict=True)]
    micro, macro = (Strong(signed(v)) if v >= 0.005 else signed(v) for v in values)
    return micro, " / ", macro, figures


def _amount(documents: float) -> str:
    return f"{documents:.0f}" if documents == round(documents) else f"{documents:.1f}"
