"""Reports as Markdown, LaTeX, JSON, CSV, or a self-contained HTML page with figures.

The page loads nothing: its Content-Security-Policy allows only its own script, by hash.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from markupsafe import Markup

from longtail import __version__
from longtail.analysis.mistakes import confused_pairs, never_predicted, worst_documents
from longtail.analysis.runs import MEASURES, Comparison, Run, compare_runs, label_rows
from longtail.errors import InputError, UnknownNameError, printable
from longtail.evaluation import Evaluation
from longtail.labels import GROUP_NAMES
from longtail.report.evaluation_tables import (
    label_table,
    metric_tables,
    other_groups,
    report_tables,
)
from longtail.report.figures.evaluation import draw_figures
from longtail.report.jinja import render_html, text_file, to_html
from longtail.report.latex import escape_latex, to_latex
from longtail.report.opening import opening
from longtail.report.paper import LAYOUTS, check_corpus, paper_rows
from longtail.report.table import escape_markdown, shorten, to_markdown
from longtail.runs.files import MADE_BY

TITLE = "Multi-label classification by frequency of the labels"
FORMATS = ("markdown", "latex", "json", "html", "csv")
SUFFIXES = dict(zip((".md", ".tex", ".json", ".html", ".csv"), FORMATS, strict=True))
MOST_ROWS = 2000
CSV_MEASURES = ("predicted", "threshold", "precision", "recall", "f1")


def build_page(
    runs: Mapping[str, Run],
    corpus: str | None = None,
    title: str | None = None,
    source: str | None = None,
) -> str:
    """Render an HTML page; `title` defaults to the names of the runs, the rest as in `render`."""
    evaluations = {name: run.evaluation for name, run in runs.items()}
    comparisons = compare_runs(evaluations)
    rows = list(label_rows(evaluations, MOST_ROWS))
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
        opening=opening(runs, comparisons, source),
        tables=[*report_tables(evaluations, comparisons, corpus), *metric_tables(evaluations)],
        n_open=3 if len(runs) > 1 else 2,
        # Tables with one row per run show the colours of the runs.
        settings_table=lambda table: to_html(table, len(runs), "figures names"),
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


def render(
    runs: Mapping[str, Run],
    format: str = "markdown",
    corpus: str | None = None,
    source: str | None = None,
) -> str:
    """Render a report.

    Args:
        runs: name -> run, in the order of the tables; the first is the baseline of comparisons.
        format: `markdown`, `latex`, `json`, `html`, or `csv` with one row per label.
        corpus: `reuters` or `pubmed` adds the paper's results.
        source: the name of the data and of the evaluated part.
    """
    format_of(format, None)
    if corpus is not None:
        check_corpus(corpus)
    if not runs:
        raise InputError("there is nothing to report: expected at least one run.")
    if format == "html":
        return build_page(runs, corpus, source=source)
    evaluations = {name: run.evaluation for name, run in runs.items()}
    if format == "csv":
        return _to_csv(evaluations)
    comparisons = compare_runs(evaluations)
    if format == "json":
        return _to_json(runs, comparisons, corpus, source)
    top = opening(runs, comparisons, source)
    tables = [*top.settings, *report_tables(evaluations, comparisons, corpus)]
    if format == "markdown":
        paragraphs = [f"{escape_markdown(text)}\n" for text in top.paragraphs]
        return "\n".join([f"# {TITLE}\n", *paragraphs, *map(to_markdown, tables)])
    needs = r"% Needs \usepackage{booktabs,graphicx}."
    paragraphs = [f"{escape_latex(text)}\n" for text in top.paragraphs]
    return "\n".join([f"% {TITLE}", needs, "", *paragraphs, *map(to_latex, tables)])


def summarize(runs: Mapping[str, Run], corpus: str | None = None, source: str | None = None) -> str:
    """The opening of a report and its first table for the terminal; arguments as for `render`."""
    evaluations = {name: run.evaluation for name, run in runs.items()}
    top = opening(runs, compare_runs(evaluations), source)
    tables = [*top.settings, label_table(evaluations, corpus, precision_recall=True)]
    paragraphs = [f"{printable(text)}\n" for text in top.paragraphs]
    return "\n".join([*paragraphs, *(to_markdown(table, bare=True) for table in tables)])


def format_of(format: str | None, out: Path | None) -> str:
    """The given format, else that of the file's suffix, else Markdown."""
    if format is not None:
        if format not in FORMATS:
            raise UnknownNameError("format", format, FORMATS)
        return format
    if out is None:
        return "markdown"
    suffix = out.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(
            f"unknown format {suffix!r} of the file {out}. End its name in one of "
            f"{', '.join(SUFFIXES)}, or name the format: {', '.join(FORMATS)}."
        )
    return SUFFIXES[suffix]


def _to_csv(evaluations: Mapping[str, Evaluation]) -> str:
    """One row per label; columns are `MEASURE`, or `RUN MEASURE` if there are several runs.

    Thresholds are logits or margins, `inf` where the label is never predicted. Cells are empty
    where a run does not know the label.
    """
    prefixes = [f"{run} " for run in evaluations] if len(evaluations) > 1 else [""]
    measures = [prefix + measure for prefix in prefixes for measure in CSV_MEASURES]
    table = csv.writer(text := io.StringIO(), lineterminator="\n")
    table.writerow(["label", "group", "train_count", "documents", *measures])
    for row in label_rows(evaluations):
        values = [row["figures"][m][k] for k in range(len(prefixes)) for m in CSV_MEASURES]
        figures = ["" if value is None else f"{value:.6g}" for value in values]
        table.writerow([row["name"], row["group"], row["train_count"], row["documents"], *figures])
    return text.getvalue()


def _to_json(
    runs: Mapping[str, Run],
    comparisons: Mapping[str, Comparison],
    corpus: str | None,
    source: str | None,
) -> str:
    """All results of each run, and the differences to the first run."""
    plain = {
        "made_by": MADE_BY,
        "longtail_version": __version__,
        "verdict": opening(runs, comparisons).verdict,
        "source": source,
        "settings": {name: dict(run.settings) for name, run in runs.items()},
        "runs": {name: run.evaluation.to_dict() for name, run in runs.items()},
        "compared_with": next(iter(runs)),
        "comparisons": {
            name: comparison
            if isinstance(comparison, str)
            else {g: {m: asdict(d) for m, d in each.items()} for g, each in comparison.items()}
            for name, comparison in comparisons.items()
        },
        "corpus": corpus,
        "paper": {} if corpus is None else {each: paper_rows(corpus, each) for each in LAYOUTS},
    }
    return json.dumps(plain, indent=2, allow_nan=False) + "\n"
