"""`render`: runs as one text in any of the formats."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from longtail import __version__
from longtail.errors import InputError, UnknownNameError
from longtail.report.latex import tables_latex
from longtail.report.markdown import tables_markdown
from longtail.report.page import build_page
from longtail.report.paper import LAYOUTS, paper_rows
from longtail.report.runs import Run, compare_runs, evaluations_of
from longtail.report.tables import Table, difference_table, document_table, label_table
from longtail.runs import MADE_BY

TITLE = "Multi-label classification by frequency of the labels"
SUFFIXES = {".md": "markdown", ".tex": "latex", ".json": "json", ".html": "html"}


def render(runs: Mapping[str, Run], format: str = "markdown", corpus: str | None = None) -> str:
    """Runs as Markdown, LaTeX, JSON or one HTML page.

    Args:
        runs: by name, in the order of the tables; the first is what the others are compared with.
        format: `markdown`, `latex`, `json` or `html`.
        corpus: `reuters` or `pubmed` sets the paper's figures beside ours.
    """
    if format not in FORMATS:
        raise UnknownNameError("format", format, FORMATS)
    return FORMATS[format](runs, corpus)


def format_of(format: str | None, out: Path | None) -> str:
    """The format that was named, or the one that the file's name says; a folder is no file."""
    if out is not None and out.is_dir():
        raise InputError(
            f"{out} is a folder: expected the name of a file to write the report to, such as "
            f"{out / 'report.html'}."
        )
    if format is None and out is not None:
        suffix = out.suffix.lower()
        if suffix not in SUFFIXES:
            raise InputError(
                f"unknown format {suffix!r} of the file {out}. End its name in one of "
                f"{', '.join(SUFFIXES)}, or say which format: {', '.join(FORMATS)}."
            )
        return SUFFIXES[suffix]
    found = "markdown" if format is None else format
    if found not in FORMATS:
        raise UnknownNameError("format", found, FORMATS)
    return found


def _tables(runs: Mapping[str, Run], corpus: str | None) -> list[Table]:
    found = evaluations_of(runs)
    tables = [label_table(found, corpus), document_table(found, corpus)]
    tables += [label_table(found, intervals=True), document_table(found, intervals=True)]
    if len(found) > 1:
        compared, first = compare_runs(found), next(iter(found))
        tables += [difference_table(compared, first, layout) for layout in LAYOUTS]
    return tables


def _markdown(runs: Mapping[str, Run], corpus: str | None) -> str:
    return tables_markdown(TITLE, _tables(runs, corpus))


def _latex(runs: Mapping[str, Run], corpus: str | None) -> str:
    return tables_latex(TITLE, _tables(runs, corpus))


def _json(runs: Mapping[str, Run], corpus: str | None) -> str:
    """Everything that is known of every run, and the differences to the first."""
    found = evaluations_of(runs)
    comparisons = {
        name: comparison
        if isinstance(comparison, str)
        else {g: {m: asdict(d) for m, d in each.items()} for g, each in comparison.items()}
        for name, comparison in compare_runs(found).items()
    }
    layouts = () if corpus is None else LAYOUTS
    plain = {
        "made_by": MADE_BY,
        "longtail_version": __version__,
        "runs": {name: evaluation.to_dict() for name, evaluation in found.items()},
        "compared_with": next(iter(found)),
        "comparisons": comparisons,
        "corpus": corpus,
        "paper": {layout: paper_rows(str(corpus), layout) for layout in layouts},
    }
    return json.dumps(_finite(plain), indent=2, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """The same with null for what JSON has no number for."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


FORMATS: dict[str, Callable[[Mapping[str, Run], str | None], str]] = {
    "markdown": _markdown,
    "latex": _latex,
    "json": _json,
    "html": build_page,
}
