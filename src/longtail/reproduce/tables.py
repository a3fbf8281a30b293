"""A reproduction as tables: figures with their spread, differences, claims, confusions."""

from __future__ import annotations

from typing import Any

from longtail.report.paper import SOURCE, Pair, paper_rows
from longtail.report.table import NONE, Cell, Strong, Table, best_pair, heading, pair_cell
from longtail.reproduce.claims import CONFUSED, Seen, claims_about, paper_figures, shown, signed
from longtail.reproduce.recipes import describe_model, uses_chance
from longtail.reproduce.summary import N_RESAMPLES, RowSummary, Summary

MEASURES = ("micro_f1", "macro_f1")
TITLES = {"labels": "By frequency of the labels", "documents": "By labels per document"}
ROW = "row"
ANSWERS = {True: "seen", False: "not seen", None: NONE}


def figure_table(summary: Summary, layout: str) -> Table:
    """Mean and spread of micro- and macro-F1 of every row; the best of a column is strong."""
    groups, rows = groups_of(summary, layout), summary.rows.values()
    best = {group: best_pair(_mean(row, group) for row in rows) for group in groups}
    cells: list[list[Cell]] = [
        [
            shown(name),
            *(pair_cell(_mean(row, g), best[g], _suffixes(row, g)) for g in groups),
            str(len(row.seeds) or NONE),
        ]
        for name, row in summary.rows.items()
    ]
    if summary.paper is not None:
        paper = (pair_cell(_papers_best(summary.paper, layout, group)) for group in groups)
        cells.append(["the paper's best", *paper, NONE])
    rules = (len(summary.rows),) if summary.paper is not None else ()
    header = (ROW, *_headings(summary, layout), "n")
    return Table(TITLES[layout], header, cells, _figure_notes(summary, layout), rules)


def means_table(summary: Summary, title: str) -> Table:
    """The means by frequency of the labels, narrow enough for a terminal."""
    groups = groups_of(summary, "labels")
    rows = [
        [shown(name), *(pair_cell(_mean(row, g)) for g in groups), str(len(row.seeds) or NONE)]
        for name, row in summary.rows.items()
    ]
    return Table(title, (ROW, *_headings(summary, "labels"), "n"), rows)


def interval_table(summary: Summary) -> Table:
    """95 % intervals over test documents, of all labels and of the rarest."""
    first, *_, last = groups_of(summary, "labels")
    columns = [(group, measure) for group in (first, last) for measure in MEASURES]
    rows = []
    for name, row in summary.rows.items():
        limits = [row.interval.get(group, {}).get(measure) for group, measure in columns]
        rows.append(
            (shown(name), *(NONE if x is None else f"{x[0]:.1f} to {x[1]:.1f}" for x in limits))
        )
    header = (ROW, *(f"{_group(group)} {heading(measure)}" for group, measure in columns))
    note = f"95 % intervals of the means over the seeds; bootstrap, {N_RESAMPLES} resamples of the"
    return Table("Intervals", header, rows, (f"{note} test documents.",))


def paper_table(summary: Summary, layout: str) -> Table | None:
    """Ours minus the paper's, and the paper's; None where the paper has no such corpus."""
    if summary.paper is None:
        return None
    groups, paper = groups_of(summary, layout), paper_rows(summary.paper, layout)
    best = {group: _papers_best(summary.paper, layout, group) for group in groups}
    # A row that the paper lacks is measured by the best that it has.
    rows = [
        (shown(name), *(_minus(_mean(row, g), paper.get(name, best).get(g)) for g in groups))
        for name, row in summary.rows.items()
    ]
    notes = [f"Points of percent, micro / macro; in brackets the paper's figures ({SOURCE})."]
    others = [shown(name) for name in summary.rows if name not in paper]
    if others:
        notes.append(f"The paper's best figures of each column for {', '.join(others)}.")
    header = (ROW, *_headings(summary, layout))
    return Table(f"{TITLES[layout]}: ours minus the paper's", header, rows, notes)


def claim_rows(summary: Summary) -> list[dict[str, Any]]:
    """Every claim of the paper about this corpus, checked on our figures and on its own."""
    if summary.paper is None:
        return []
    rows = []
    for claim in claims_about(summary.paper):
        ours, paper = claim.judge(summary.seen), claim.judge(Seen(paper_figures(summary.paper)))
        rows.append(
            {
                "claim": claim.text,
                "seen": ours.seen,
                "because": ours.because,
                "seen_in_paper": paper.seen,
                "because_in_paper": paper.because,
            }
        )
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
        pairs = [f"{missed} → {wrong} ({_amount(n)})" for missed, wrong, n in row.confused]
        rows.append((shown(name), *pairs, *[NONE] * (3 - len(pairs))))
    if summary.paper is not None:
        rows.append(
            ("the paper, all losses", *(f"{a} and {b}" for a, b in CONFUSED[summary.paper]))
        )
    notes = ("missed → wrongly predicted instead (test documents, mean over the seeds)",)
    rules = (len(summary.rows),) if summary.paper is not None else ()
    header = (ROW, "most often", "second", "third")
    return Table("Labels that are confused", header, rows, notes, rules)


def training_table(summary: Summary) -> Table:
    """What was trained, how long, on what."""
    made = {(row.hardware, row.commits) for row in summary.rows.values() if row.seeds}
    # What is the same everywhere stands above the tables already.
    differ = len(made) > 1
    rows, libraries = [], dict[str, list[str]]()
    for name, row in summary.rows.items():
        seconds = NONE if row.seconds is None else f"{row.seconds:.1f}"
        origin = (", ".join(row.hardware) or NONE, ", ".join(row.commits) or NONE)
        model = describe_model(name, row.recipe)
        rows.append((shown(name), model, str(len(row.seeds)), seconds, *origin[: 2 * differ]))
        for versions in row.versions:
            text = ", ".join(f"{library} {version}" for library, version in versions.items())
            libraries.setdefault(text, []).append(shown(name))
    notes = ["Seconds of one training, mean; several at a time (--jobs) slow each other down."]
    for text, names in libraries.items():
        notes.append(f"{'' if len(libraries) == 1 else ', '.join(names) + ': '}{text}.")
    header = (ROW, "model", "trainings", "seconds", *("hardware", "commit")[: 2 * differ])
    return Table("Training", header, rows, notes)


def failure_table(summary: Summary) -> Table | None:
    """What has no result, and why."""
    rows = [
        (shown(name), str(seed), why)
        for name, row in summary.rows.items()
        for seed, why in row.failed.items()
    ]
    return Table("Failed", (ROW, "seed", "why"), rows) if rows else None


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
    once = [shown(name) for name, row in summary.rows.items() if not uses_chance(name, row.recipe)]
    if once and several:
        notes.append(f"No random numbers, so one training is enough: {', '.join(once)}.")
    if any(row.difference for row in summary.rows.values()):
        notes.append(
            f"Stars: the difference to {shown(str(summary.against))} is significant over the "
            "choice of test documents (two-sided p < 0.05 *, p < 0.01 **; paired bootstrap, "
            f"{N_RESAMPLES} resamples of the documents, means over the seeds; not corrected for "
            "the number of comparisons)."
        )
    return notes


def _group(group: str) -> str:
    return "total" if group == "all" else heading(group)


def _headings(summary: Summary, layout: str) -> list[str]:
    sizes = summary.sizes[layout]
    return [
        f"{_group(group)} ({sizes[group]})" if group in sizes else _group(group)
        for group in groups_of(summary, layout)
    ]


def _mean(row: RowSummary, group: str) -> Pair | None:
    mean = row.mean.get(group)
    return None if mean is None else (mean["micro_f1"], mean["macro_f1"])


def _papers_best(paper: str, layout: str, group: str) -> Pair | None:
    pairs = [pair for cells in paper_rows(paper, layout).values() if (pair := cells.get(group))]
    return (max(p[0] for p in pairs), max(p[1] for p in pairs)) if pairs else None


def _suffixes(row: RowSummary, group: str) -> tuple[str, str]:
    """Stars and standard deviation of micro- and of macro-F1."""
    suffixes = []
    for measure in MEASURES:
        found = row.difference.get(group, {}).get(measure)
        p = 1.0 if found is None or found.value == 0 else found.p
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
