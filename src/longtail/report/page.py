"""One self-contained HTML page: tables, figures, mistakes, and every label of every run.

It loads nothing, and a policy in its head forbids it to; the only script is named there by hash.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import NamedTuple

from longtail import __version__
from longtail.analysis import WrongDocument, confused_pairs, never_predicted, worst_documents
from longtail.evaluation import Evaluation
from longtail.report.drawing import draw_figures
from longtail.report.label_rows import label_section
from longtail.report.markup import (
    chips,
    escape,
    foreign,
    legend,
    plain_table,
    shortened,
    swatch,
    table_html,
)
from longtail.report.paper import LAYOUTS
from longtail.report.runs import Run, compare_runs, evaluations_of
from longtail.report.tables import difference_table, document_table, label_table, metric_table

TEXT_LIMIT = 420


class Shown(NamedTuple):
    heading: str
    explanation: str
    width: str = "half"


FIGURES = {
    "f1-by-count": Shown(
        "F1 of the labels over their training documents",
        "Dots: labels; lines: means of labels of like counts. Labels without judged documents are "
        "left out, and of very many labels only some have a dot.",
    ),
    "f1-by-group": Shown("F1 by group", "Thin lines: 95 % bootstrap intervals over documents."),
    "thresholds": Shown(
        "Thresholds over training documents",
        "As logits, or as margins where the run's scores are such. A line: one threshold for all "
        "labels; dots: one for each, those that are never predicted left out.",
    ),
    "reliability": Shown(
        "Reliability",
        "Probabilities on the dotted line can be taken at their word. In brackets the expected "
        "calibration error; margins, such as the SVM's, are no probabilities.",
    ),
    "precision-recall": Shown(
        "Precision and recall by group",
        "All decisions on a group of labels together, as all thresholds move by the same amount, "
        "the options top_k and at_least_one holding throughout. Dots: the decisions judged here.",
        "wide",
    ),
    "f1-by-shift": Shown(
        "F1 as all thresholds move",
        "At 0 the thresholds judged here; the unit is that of logits or margins, and the options "
        "top_k and at_least_one hold throughout. Only to be looked at: thresholds chosen on these "
        "documents would flatter the run.",
        "wide",
    ),
}


def build_page(runs: Mapping[str, Run], corpus: str | None = None, title: str | None = None) -> str:
    """All runs on one page.

    Args:
        runs: by name; the first is what the others are compared with.
        corpus: `reuters` or `pubmed` sets the paper's figures beside ours.
        title: default: the names of the runs.
    """
    found = evaluations_of(runs)
    shown = shortened(title or "Report: " + " · ".join(runs), 120)
    sections = {
        "tables": ("Tables", _tables(found, corpus)),
        "figures": ("Figures", _figures(runs)),
        "mistakes": ("Mistakes", _mistakes(runs)),
        "labels": ("Labels", label_section(found)),
    }
    links = "".join(f'<a href="#{key}">{said}</a>' for key, (said, _) in sections.items())
    body = "\n".join(
        f'<section id="{key}">\n<h2>{said}</h2>\n{inner}\n</section>'
        for key, (said, inner) in sections.items()
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy()}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{escape(shown)}</title>
<style>
{_file("page.css")}</style>
</head>
<body>
<header><h1>{foreign(shown)}</h1>
{_facts(found)}
<nav>{links}</nav></header>
<main>
{body}
</main>
<footer class="note">Made by longtail {escape(__version__)}.</footer>
<script>{_file("page.js")}</script>
</body>
</html>
"""


def _facts(found: Mapping[str, Evaluation]) -> str:
    """How many documents and labels; runs that agree are told together."""
    told: dict[str, list[str]] = {}
    for name, evaluation in found.items():
        groups = evaluation.groups()
        sizes = ", ".join(f"{s.n_labels} {g}" for g, s in groups.items() if g != "all")
        overall = evaluation.overall
        fact = f"{overall.n_documents} judged documents, {overall.n_labels} labels: {sizes}."
        told.setdefault(fact, []).append(name)
    lines = []
    for fact, names in told.items():
        whose = "" if len(told) == 1 else ", ".join(map(foreign, names)) + ": "
        lines.append(f'<p class="facts">{whose}{fact}</p>')
    return "\n".join(lines)


def _tables(found: Mapping[str, Evaluation], corpus: str | None) -> str:
    parts = []
    for table in (label_table(found, corpus), document_table(found, corpus)):
        parts.append(f"<h3>{escape(table.title)}</h3>\n{table_html(table, len(found))}")
    folded = []
    if len(found) > 1:
        compared, first = compare_runs(found), next(iter(found))
        differences, folded_differences = (
            difference_table(compared, first, layout) for layout in LAYOUTS
        )
        inner = table_html(differences, kind="figures dense")
        parts.append(f"<h3>{foreign(differences.title)}</h3>\n{inner}")
        folded.append(folded_differences)
    if any(evaluation.intervals for evaluation in found.values()):
        folded += [label_table(found, intervals=True), document_table(found, intervals=True)]
    if any(evaluation.metrics for evaluation in found.values()):
        folded.append(metric_table(found))
    for table in folded:
        kind = "figures dense" if table.header[0] == "run" else "figures"
        inner = table_html(table, 0 if table.header[0] else len(found), kind)
        parts.append(f"<details><summary>{foreign(table.title)}</summary>\n{inner}</details>")
    return "\n".join(parts)


def _figures(runs: Mapping[str, Run]) -> str:
    drawn = draw_figures(runs)
    errors = {
        name: f"({found.expected_error:.4f})"
        for name, run in runs.items()
        if (found := run.evaluation.calibration) is not None
    }
    parts = []
    for name, shown in FIGURES.items():
        if name in drawn:
            key = legend(list(runs), errors if name == "reliability" else None)
            parts.append(
                f'<figure class="{shown.width}"><h3>{shown.heading}</h3>\n{key}\n'
                f"{drawn[name]}\n<figcaption>{shown.explanation}</figcaption></figure>"
            )
    return f'<div class="grid">\n{"".join(parts)}\n</div>'


def _mistakes(runs: Mapping[str, Run]) -> str:
    known = {n: run for n, run in runs.items() if run.evaluation.y_true is not None}
    pairs, never = [], []
    for k, (name, run) in enumerate(runs.items()):
        head = f"<h3>{swatch(k)}{foreign(name)}</h3>"
        if name in known:
            pairs.append(f'<div class="card">{head}\n{_pairs(run.evaluation)}</div>')
        never.append(f"{head}\n{_never(run.evaluation)}")
    worst = [
        f"<details{' open' if k == len(known) - 1 else ''}><summary>{foreign(name)}</summary>\n"
        f"{_worst(run)}</details>"
        for k, (name, run) in enumerate(known.items())
    ]
    return f"""<h3>Confused pairs</h3>
<p class="note">Documents where one label was missed and the other wrongly given.</p>
<div class="grid cards">
{"".join(pairs)}
</div>
<h3>Labels that judged documents carry and that no document got</h3>
{"".join(never)}
<h3>Worst documents</h3>
<p class="note">Those with the largest sum, over their wrong decisions, of how far the score lies on
the wrong side of the label's threshold, as logits or margins; without scores those with most wrong
decisions.</p>
{"".join(worst)}"""


def _pairs(evaluation: Evaluation) -> str:
    pairs = confused_pairs(*evaluation.decisions(), evaluation.labels.names)
    rows = [(pair.missed, pair.given, str(pair.documents)) for pair in pairs]
    return plain_table(("missed", "given instead", "documents"), rows) if rows else "<p>None.</p>"


def _never(evaluation: Evaluation) -> str:
    labels = never_predicted(evaluation)
    if not labels:
        return "<p>None.</p>"
    carried = int((evaluation.labels.actual > 0).sum())
    names = [f"{label.label} ({label.documents})" for label in labels]
    return f"<p>{len(labels)} of {carried}: {chips(names, 'plain')}</p>"


def _worst(run: Run) -> str:
    found = worst_documents(run.evaluation, run.logits, scale="logit")
    return "\n".join(_document(run, each) for each in found) or "<p>None.</p>"


def _document(run: Run, found: WrongDocument) -> str:
    data = run.data
    named = f"document {found.position}"
    if data is not None and data.ids is not None:
        named = data.ids[found.position]
    text = "" if data is None else shortened(data.texts[found.position], TEXT_LIMIT)
    labels = "".join(
        f"<p>{said}: {chips(names, said.split()[0])}</p>"
        for said, names in (
            ("missed", found.missed),
            ("given wrongly", found.given),
            ("right", found.right),
        )
        if names
    )
    return (
        f'<div class="document"><strong>{foreign(named)}</strong> '
        f'<span class="note">error {found.error:.2f}</span>\n{labels}'
        f'<p dir="auto">{escape(text)}</p></div>'
    )


def _policy() -> str:
    digest = base64.b64encode(hashlib.sha256(_file("page.js").encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _file(name: str) -> str:
    return resources.files("longtail.report").joinpath(name).read_text("utf-8")
