"""One self-contained HTML page: tables, figures, mistakes, and every label of every run.

It loads nothing, and a policy in its head forbids it to; the only script is named there by hash.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from longtail import __version__
from longtail.analysis.mistakes import confused_pairs, never_predicted, worst_documents
from longtail.analysis.runs import MEASURES, Run, label_rows
from longtail.evaluation import Evaluation
from longtail.labels import GROUP_NAMES
from longtail.report.evaluation_tables import metric_tables, other_groups, report_tables
from longtail.report.figures.evaluation import draw_figures
from longtail.report.jinja import render_html, text_file, to_html
from longtail.report.table import Table, shorten

TEXT_LIMIT = 420
MOST_ROWS = 2000


def build_page(runs: Mapping[str, Run], corpus: str | None = None, title: str | None = None) -> str:
    """All runs on one page.

    Args:
        runs: by name; the others are compared with the first.
        corpus: `reuters` or `pubmed` adds the paper's figures.
        title: default: the names of the runs.
    """
    evaluations = {name: run.evaluation for name, run in runs.items()}
    decided = {name: run for name, run in runs.items() if run.evaluation.y_true is not None}
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
        facts=_facts(evaluations),
        tables=[*report_tables(evaluations, corpus), *metric_tables(evaluations)],
        n_open=3 if len(runs) > 1 else 2,
        html=lambda table: _html(table, len(runs)),
        figures={name: Markup(svg) for name, svg in draw_figures(runs).items()},
        errors={
            name: f"({each.calibration.expected_error:.4f})"
            for name, each in evaluations.items()
            if each.calibration is not None
        },
        confused={
            name: confused_pairs(*run.evaluation.decisions(), run.evaluation.labels.names)
            for name, run in decided.items()
        },
        never={
            name: (
                int((each.labels.actual > 0).sum()),
                [f"{label.label} ({label.documents})" for label in never_predicted(each)],
            )
            for name, each in evaluations.items()
        },
        worst={name: _worst(run) for name, run in decided.items()},
        groups=GROUP_NAMES,
        groups_differ=bool(other_groups(evaluations)),
        measures=MEASURES,
        rows=rows,
        n_labels=len({name for each in evaluations.values() for name in each.labels.names}),
        label_data={
            measure: [
                [None if v is None else round(v, 4) for v in row.values[measure]] for row in rows
            ]
            for measure in MEASURES
        },
    )


def _html(table: Table, n_runs: int) -> Markup:
    """Tables of one row per run show the colours of the runs."""
    kind = "figures dense" if table.header[0] == "run" else "figures"
    return to_html(table, 0 if table.header[0] else n_runs, kind)


def _facts(evaluations: Mapping[str, Evaluation]) -> dict[str, list[str]]:
    """How many documents and labels -> the runs that have them."""
    runs_of: dict[str, list[str]] = {}
    for name, evaluation in evaluations.items():
        (_, overall), *groups = evaluation.groups().items()
        sizes = ", ".join(f"{scores.n_labels} {group}" for group, scores in groups)
        fact = f"{overall.n_documents} evaluated documents, {overall.n_labels} labels: {sizes}."
        runs_of.setdefault(fact, []).append(name)
    return runs_of


def _worst(run: Run) -> list[dict[str, Any]]:
    ids = None if run.data is None else run.data.ids
    return [
        {
            "name": f"document {each.row}" if ids is None else ids[each.row],
            "error": each.error,
            "labels": [
                ("missed", "missed", each.missed),
                ("predicted wrongly", "wrong", each.wrong),
                ("right", "right", each.right),
            ],
            "text": "" if run.data is None else shorten(run.data.texts[each.row], TEXT_LIMIT),
        }
        for each in worst_documents(run.evaluation, run.logits, scale="logit")
    ]
