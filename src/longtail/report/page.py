"""Runs as one text: Markdown, LaTeX, JSON, or one self-contained HTML page with figures.

The page loads nothing, and a policy in its head forbids it to; its script is named there by hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from markupsafe import Markup

from longtail import __version__
from longtail.analysis.mistakes import confused_pairs, never_predicted, worst_documents
from longtail.analysis.runs import MEASURES, Run, compare_runs, label_rows
from longtail.errors import InputError, UnknownNameError
from longtail.evaluation import Evaluation
from longtail.labels import GROUP_NAMES
from longtail.report.evaluation_tables import metric_tables, other_groups, report_tables
from longtail.report.figures.evaluation import draw_figures
from longtail.report.jinja import render_html, text_file, to_html
from longtail.report.latex import to_latex
from longtail.report.paper import LAYOUTS, paper_rows
from longtail.report.table import by_text, shorten, to_markdown
from longtail.runs.files import MADE_BY

TITLE = "Multi-label classification by frequency of the labels"
FORMATS = ("markdown", "latex", "json", "html")
SUFFIXES = dict(zip((".md", ".tex", ".json", ".html"), FORMATS, strict=True))
MOST_ROWS = 2000


def build_page(runs: Mapping[str, Run], corpus: str | None = None, title: str | None = None) -> str:
    """All runs on one page.

    Args:
        runs: by name; the others are compared with the first.
        corpus: `reuters` or `pubmed` adds the paper's figures.
        title: default: the names of the runs.
    """
    evaluations = {name: run.evaluation for name, run in runs.items()}
    rows = label_rows(evaluations, MOST_ROWS)
    script = text_file("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return render_html(
        "page.html.j2",
        title=shorten(title or "Report: " + " · ".join(runs), 120),
        version=__version__,
        policy=(
            f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
            "base-uri 'none'; form-action 'none'"
        ),
        style=Markup(text_file("page.css")),
        script=Markup(script),
        names=list(runs),
        facts=by_text((_sizes(each), name) for name, each in evaluations.items()),
        tables=[*report_tables(evaluations, corpus), *metric_tables(evaluations)],
        n_open=3 if len(runs) > 1 else 2,
        # Tables of one row per run show the colours of the runs.
        html=lambda table: to_html(
            table,
            0 if table.header[0] else len(runs),
            "figures dense" if table.header[0] == "run" else "figures",
        ),
        figures={name: Markup(svg) for name, svg in draw_figures(runs).items()},
        errors={
            name: f"({each.calibration.expected_error:.4f})"
            for name, each in evaluations.items()
            if each.calibration is not None
        },
        confused={
            name: confused_pairs(
                run.evaluation.y_true, run.evaluation.y_pred, run.evaluation.labels.names
            )
            for name, run in runs.items()
        },
        never={
            name: (
                int((each.labels.actual > 0).sum()),
                [f"{label.label} ({label.documents})" for label in never_predicted(each)],
            )
            for name, each in evaluations.items()
        },
        worst={name: (run.data, worst_documents(run)) for name, run in runs.items()},
        groups=GROUP_NAMES,
        groups_differ=bool(other_groups(evaluations)),
        rows=rows,
        n_labels=len({name for each in evaluations.values() for name in each.labels.names}),
        label_data={
            measure: [[v and round(v, 4) for v in row["figures"][measure]] for row in rows]
            for measure in MEASURES
        },
    )


def _sizes(evaluation: Evaluation) -> str:
    (_, overall), *groups = evaluation.groups().items()
    sizes = ", ".join(f"{scores.n_labels} {group}" for group, scores in groups)
    return f"{overall.n_documents} evaluated documents, {overall.n_labels} labels: {sizes}."


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
    if format == "markdown":
        return "\n".join([f"# {TITLE}\n", *map(to_markdown, tables)])
    needs = r"% Needs \usepackage{booktabs,graphicx}."
    return "\n".join([f"% {TITLE}", needs, "", *map(to_latex, tables)])


def format_of(format: str | None, out: Path | None) -> str:
    """The format as named, or by the suffix of the file."""
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
