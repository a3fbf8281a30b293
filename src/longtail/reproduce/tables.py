"""A reproduction as tables of text: figures with their spread, differences, claims, confusions."""

from __future__ import annotations

from typing import Any

from longtail.report import Table, paper_rows
from longtail.report.paper import SOURCE, Pair
from longtail.report.tables import NONE, Cell, Span
from longtail.reproduce.claims import CONFUSED, Seen, claims_about, paper_figures, shown, signed
from longtail.reproduce.recipes import describe_model, uses_chance
from longtail.reproduce.summary import N_RESAMPLES, RowSummary, Summary

MEASURES = MICRO, MACRO = "micro_f1", "macro_f1"
TITLES = {"labels": "By frequency of the labels", "documents": "By labels per document"}
ROW = "row"
ANSWERS = {True: "seen", False: "not seen", None: NONE}


def figure_table(summary: Summary, layout: str) -> Table:
    """Mean and spread of micro- and macro-F1 of every row; the best of a column is strong."""
    groups = groups_of(summary, layout)
    best = {group: _best(summary, group) for group in groups}
    rows: list[tuple[Cell, ...]] = []
    for name, row in summary.rows.items():
        cells = [_figures(row, group, best[group]) for group in groups]
        rows.append((_text(shown(name)), *cells, _text(str(len(row.seeds) or NONE))))
    rules: tuple[int, ...] = ()
    if summary.paper is not None:
        rules = (len(rows),)
        theirs = [_pair(_papers_best(summary.paper, layout, group)) for group in groups]
        rows.append((_text("the paper's best"), *theirs, _text(NONE)))
    header = (ROW, *(_heading(summary, layout, group) for group in groups), "n")
    return Table(TITLES[layout], header, tuple(rows), tuple(_figure_notes(summary, layout)), rules)


def interval_table(summary: Summary) -> Table:
    """How far other test documents of the kind could have moved the means."""
    groups = groups_of(summary, "labels")
    columns = [(group, measure) for group in (groups[0], groups[-1]) for measure in MEASURES]
    rows = []
    for name, row in summary.rows.items():
        cells = []
        for group, measure in columns:
            found = row.interval.get(group, {}).get(measure)
            cells.append(_text(NONE if found is None else f"{found[0]:.1f} to {found[1]:.1f}"))
        rows.append((_text(shown(name)), *cells))
    said = {"micro_f1": "micro-F1", "macro_f1": "macro-F1"}
    names = {"all": "total"}
    header = (ROW, *(f"{names.get(group, group)} {said[measure]}" for group, measure in columns))
    note = f"95 % intervals of the means over the seeds; bootstrap, {N_RESAMPLES} resamples of the"
    return Table("Intervals", header, tuple(rows), (f"{note} test documents.",))


def paper_table(summary: Summary, layout: str) -> Table | None:
    """Ours minus the paper's, and the paper's; None where the paper has no such corpus."""
    if summary.paper is None:
        return None
    groups, theirs = groups_of(summary, layout), paper_rows(summary.paper, layout)
    best = {group: _papers_best(summary.paper, layout, group) for group in groups}
    rows = []
    for name, row in summary.rows.items():
        # A row that the paper lacks is measured by the best that it has.
        its = theirs.get(name, best)
        rows.append((_text(shown(name)), *(_minus(row, group, its.get(group)) for group in groups)))
    header = (ROW, *(_heading(summary, layout, group) for group in groups))
    notes = [f"Points of percent, micro / macro; in brackets the paper's figures ({SOURCE})."]
    others = [shown(name) for name in summary.rows if name not in theirs]
    if others:
        notes.append(f"The paper's best figures of each column for {', '.join(others)}.")
    return Table(f"{TITLES[layout]}: ours minus the paper's", header, tuple(rows), tuple(notes))


def claim_rows(summary: Summary) -> list[dict[str, Any]]:
    """Every claim of the paper about this corpus, judged on our figures and on its own."""
    if summary.paper is None:
        return []
    theirs = Seen(paper_figures(summary.paper))
    found = []
    for claim in claims_about(summary.paper):
        ours, its = claim.judge(summary.seen), claim.judge(theirs)
        found.append(
            {
                "claim": claim.text,
                "seen": ours.seen,
                "because": ours.because,
                "seen_in_paper": its.seen,
                "because_in_paper": its.because,
            }
        )
    return found


def claim_table(summary: Summary) -> Table | None:
    """The claims, whether they are seen here, and what decides that."""
    rows = []
    for found in claim_rows(summary):
        here = (Span(ANSWERS[found["seen"]], found["seen"] is True),)
        theirs = ANSWERS[found["seen_in_paper"]]
        if found["seen_in_paper"] is False:
            theirs += f" ({found['because_in_paper']})"
        rows.append((_text(found["claim"]), here, _text(found["because"] or NONE), _text(theirs)))
    if not rows:
        return None
    header = ("what the paper says, in our words", "here", "what decides", "in its own table")
    note = (
        "Judged on the means above, without regard to chance: see the stars and the spread for "
        "that. Where the paper says similar, close or far, the bound in points is ours, set so "
        "that the paper's own figures lie within it. A dash where rows are missing, or where the "
        "paper publishes no figures."
    )
    return Table("The paper's claims", header, tuple(rows), (note,))


def confusion_table(summary: Summary) -> Table | None:
    """The most confused pairs of labels of every row."""
    rows = []
    for name, row in summary.rows.items():
        pairs = [f"{missed} → {given} ({_amount(n)})" for missed, given, n in row.confused]
        pairs += [NONE] * (3 - len(pairs))
        rows.append((_text(shown(name)), *map(_text, pairs)))
    if not any(row.confused for row in summary.rows.values()):
        return None
    if summary.paper is not None:
        theirs = [f"{a} and {b}" for a, b in CONFUSED[summary.paper]]
        rows.append((_text("the paper, all losses"), *map(_text, theirs)))
    rules = (len(rows) - 1,) if summary.paper else ()
    notes = ("missed → wrongly given in its place (test documents, mean over the seeds)",)
    header = (ROW, "most often", "second", "third")
    return Table("Labels that are confused", header, tuple(rows), notes, rules)


def training_table(summary: Summary) -> Table:
    """What was trained, how long, on what."""
    made = {name: (row.hardware, row.commits) for name, row in summary.rows.items() if row.seeds}
    # What is the same everywhere stands above the tables already.
    differ = len(set(made.values())) > 1
    rows = []
    for name, row in summary.rows.items():
        seconds = NONE if row.seconds is None else f"{row.seconds:.1f}"
        told = [describe_model(name, row.recipe), str(len(row.seeds)), seconds]
        if differ:
            told += [", ".join(row.hardware) or NONE, ", ".join(row.commits) or NONE]
        rows.append((_text(shown(name)), *map(_text, told)))
    header = (ROW, "model", "trainings", "seconds", *(("hardware", "commit") if differ else ()))
    notes = ["Seconds of one training, mean; several at a time (--jobs) slow each other down."]
    libraries: dict[str, list[str]] = {}
    for name, row in summary.rows.items():
        for versions in row.versions:
            said = ", ".join(f"{library} {version}" for library, version in versions.items())
            libraries.setdefault(said, []).append(shown(name))
    for said, names in libraries.items():
        whose = "" if len(libraries) == 1 else f"{', '.join(names)}: "
        notes.append(f"{whose}{said}.")
    return Table("Training", header, tuple(rows), tuple(notes))


def failure_table(summary: Summary) -> Table | None:
    """What has no result, and why."""
    rows = [
        (_text(shown(name)), _text(str(seed)), _text(why))
        for name, row in summary.rows.items()
        for seed, why in row.failed.items()
    ]
    return Table("Failed", (ROW, "seed", "why"), tuple(rows)) if rows else None


def _figure_notes(summary: Summary, layout: str) -> list[str]:
    """How to read the figures; the second table is read as the first."""
    unit = "labels" if layout == "labels" else "test documents"
    brackets = f"in brackets behind a group its number of {unit}."
    if layout != "labels":
        return [f"As above; {brackets}"]
    spread = ", mean ± standard deviation over n seeds"
    several = any(row.std for row in summary.rows.values())
    first = f"Micro-F1 / macro-F1 in percent{spread if several else ''}; {brackets}"
    notes = [f"{first} Bold: the best of a column."]
    once = [shown(name) for name, row in summary.rows.items() if not uses_chance(name, row.recipe)]
    if once and several:
        notes.append(f"No random numbers, so one training says all: {', '.join(once)}.")
    if any(row.difference for row in summary.rows.values()):
        notes.append(
            f"Stars: the difference to {shown(str(summary.against))} is more than chance in the "
            "choice of test documents (two-sided p < 0.05 *, p < 0.01 **; paired bootstrap, "
            f"{N_RESAMPLES} resamples of the documents, means over the seeds; not corrected for "
            "the number of comparisons)."
        )
    return notes


def groups_of(summary: Summary, layout: str) -> tuple[str, ...]:
    """The columns: those that are not empty; where the paper has the corpus, the paper's."""
    sizes = summary.sizes[layout]
    if summary.paper is not None:
        return tuple(next(iter(paper_rows(summary.paper, layout).values())))
    return tuple(group for group, size in sizes.items() if size)


def _heading(summary: Summary, layout: str, group: str) -> str:
    said = "total" if group == "all" else group.replace("_", "-")
    size = summary.sizes[layout].get(group)
    return said if size is None else f"{said} ({size})"


def _best(summary: Summary, group: str) -> Pair | None:
    found = [row.mean[group] for row in summary.rows.values() if group in row.mean]
    if len(found) < 2:
        return None
    micro, macro = (max(round(values[m], 2) for values in found) for m in MEASURES)
    return micro, macro


def _papers_best(paper: str, layout: str, group: str) -> Pair | None:
    pairs = [pair for cells in paper_rows(paper, layout).values() if (pair := cells.get(group))]
    return (max(p[0] for p in pairs), max(p[1] for p in pairs)) if pairs else None


def _figures(row: RowSummary, group: str, best: Pair | None) -> Cell:
    if group not in row.mean:
        return _text(NONE)
    spans: list[Span] = []
    for place, measure in enumerate(MEASURES):
        value = row.mean[group][measure]
        strong = best is not None and round(value, 2) == best[place] > 0
        spans.append(Span(f"{value:.2f}", strong))
        spans.append(Span(_stars(row, group, measure)))
        if row.std:
            spans.append(Span(f" ± {row.std[group][measure]:.2f}"))
        spans.append(Span(" / "))
    return tuple(span for span in spans[:-1] if span.text)


def _stars(row: RowSummary, group: str, measure: str) -> str:
    found = row.difference.get(group, {}).get(measure)
    if found is None or found.value == 0:
        return ""
    return "**" if found.p < 0.01 else "*" if found.p < 0.05 else ""


def _minus(row: RowSummary, group: str, theirs: Pair | None) -> Cell:
    if theirs is None:
        return _text(NONE)
    if group not in row.mean:
        return _text(f"{NONE} ({theirs[0]:.2f} / {theirs[1]:.2f})")
    found = [row.mean[group][m] - its for m, its in zip(MEASURES, theirs, strict=True)]
    spans: list[Span] = []
    for value in found:
        # Strong where ours is higher, by more than the paper's rounding.
        spans += [Span(signed(value), value >= 0.005), Span(" / ")]
    return (*spans[:-1], Span(f" ({theirs[0]:.2f} / {theirs[1]:.2f})"))


def _pair(pair: Pair | None) -> Cell:
    return _text(NONE if pair is None else f"{pair[0]:.2f} / {pair[1]:.2f}")


def _amount(documents: float) -> str:
    return f"{documents:.0f}" if documents == round(documents) else f"{documents:.1f}"


def _text(text: str) -> Cell:
    return (Span(text),)


def plain_table(summary: Summary) -> list[list[str]]:
    """The means by frequency of the labels as strings, narrow enough for a terminal."""
    groups = groups_of(summary, "labels")
    rows = [[ROW, *(_heading(summary, "labels", group) for group in groups), "n"]]
    for name, row in summary.rows.items():
        pairs = [row.mean.get(group) for group in groups]
        cells = [NONE if p is None else f"{p[MICRO]:.2f} / {p[MACRO]:.2f}" for p in pairs]
        rows.append([shown(name), *cells, str(len(row.seeds) or NONE)])
    return rows
