"""`render`: runs as one text in any of the formats."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from longtail import __version__
from longtail.analysis.runs import Run, compare_runs
from longtail.errors import InputError, UnknownNameError
from longtail.report.evaluation_tables import report_tables
from longtail.report.latex import to_latex_document
from longtail.report.page import build_page
from longtail.report.paper import LAYOUTS, paper_rows
from longtail.report.table import to_document
from longtail.runs.files import MADE_BY

TITLE = "Multi-label classification by frequency of the labels"
FORMATS = ("markdown", "latex", "json", "html")
SUFFIXES = dict(zip((".md", ".tex", ".json", ".html"), FORMATS, strict=True))


def render(runs: Mapping[str, Run], format: str = "markdown", corpus: str | None = None) -> str:
    """Runs as Markdown, LaTeX, JSON or one HTML page.

    Args:
        runs: by name, in the order of the tables; the others are compared with the first.
        format: `markdown`, `latex`, `json` or `html`.
        corpus: `reuters` or `pubmed` adds the paper's figures.
    """
    format_of(format, None)
    if not runs:
        raise InputError("there is nothing to report: expected at least one run.")
    if format == "html":
        return build_page(runs, corpus)
    if format == "json":
        return _to_json(runs, corpus)
    tables = report_tables({name: run.evaluation for name, run in runs.items()}, corpus)
    return (to_document if format == "markdown" else to_latex_document)(TITLE, tables)


def format_of(format: str | None, out: Path | None) -> str:
    """The format as named, or by the suffix of the file; a folder is refused."""
    if out is not None and out.is_dir():
        raise InputError(
            f"{out} is a folder: expected the name of a file to write the report to, such as "
            f"{out / 'report.html'}."
        )
    if format is not None and format not in FORMATS:
        raise UnknownNameError("format", format, FORMATS)
    if format is not None or out is None:
        return format or "markdown"
    suffix = out.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(
            f"unknown format {suffix!r} of the file {out}. End its name in one of "
            f"{', '.join(SUFFIXES)}, or name the format: {', '.join(FORMATS)}."
        )
    return SUFFIXES[suffix]


def _to_json(runs: Mapping[str, Run], corpus: str | None) -> str:
    """All figures of every run, and the differences to the first."""
    evaluations = {name: run.evaluation for name, run in runs.items()}
    comparisons = {
        name: comparison
        if isinstance(comparison, str)
        else {g: {m: asdict(d) for m, d in each.items()} for g, each in comparison.items()}
        for name, comparison in compare_runs(evaluations).items()
    }
    plain = {
        "made_by": MADE_BY,
        "longtail_version": __version__,
        "runs": {name: evaluation.to_dict() for name, evaluation in evaluations.items()},
        "compared_with": next(iter(runs)),
        "comparisons": comparisons,
        "corpus": corpus,
        "paper": {} if corpus is None else {each: paper_rows(corpus, each) for each in LAYOUTS},
    }
    return json.dumps(plain, indent=2, allow_nan=False) + "\n"
