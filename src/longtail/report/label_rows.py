"""The table of all labels and runs: rows that a small script sorts, filters and switches."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from longtail.evaluation import Evaluation
from longtail.labels import GROUP_NAMES
from longtail.report.markup import escape, foreign, swatch
from longtail.report.notes import other_groups
from longtail.report.tables import NONE

MOST_ROWS = 2000
MEASURES = {"f1": "F1", "precision": "precision", "recall": "recall", "predicted": "predicted"}


@dataclass(frozen=True)
class LabelRow:
    """A label, as the first run that knows it counts it, and what every run makes of it."""

    name: str
    group: str
    train_count: int
    documents: int
    values: dict[str, list[float | None]]
    """Measure -> one value per run; fractions, but documents for `predicted`."""


def label_rows(evaluations: Mapping[str, Evaluation], most: int | None = None) -> list[LabelRow]:
    """Labels of all runs by name, the most frequent in training first; at most so many."""
    found = list(evaluations.values())
    known: dict[str, tuple[int, int]] = {}
    for number, evaluation in enumerate(found):
        for k, name in enumerate(evaluation.labels.names):
            known.setdefault(name, (number, k))
    counts = np.array([found[number].labels.train_count[k] for number, k in known.values()])
    names = list(known)
    # Of a million labels only those that are shown become rows.
    chosen = [names[k] for k in np.argsort(-counts, kind="stable")[:most]]
    wanted = set(chosen)
    places = [{n: k for k, n in enumerate(e.labels.names) if n in wanted} for e in found]
    return [_label_row(found, places, name, *known[name]) for name in chosen]


def label_section(evaluations: Mapping[str, Evaluation]) -> str:
    """Controls, the table, and its numbers for the script."""
    shown = label_rows(evaluations, MOST_ROWS)
    n_labels = len({name for e in evaluations.values() for name in e.labels.names})
    heads = ["label", "group", "training", "judged"]
    head = "".join(_head(escape(name), k) for k, name in enumerate(heads))
    head += "".join(_head(swatch(k) + foreign(n), k + 4) for k, n in enumerate(evaluations))
    numbers = {m: [_rounded(row.values[m]) for row in shown] for m in MEASURES}
    cut = ""
    if n_labels > len(shown):
        cut = (
            f"Shown are the {len(shown)} labels with most training documents of {n_labels}; "
            "the JSON report has them all."
        )
    if other_groups(evaluations):
        cut += " Group and training are those of the first run that knows the label."
    options = "".join(f'<option value="{g}">{g}</option>' for g in GROUP_NAMES)
    measures = "".join(f'<option value="{m}">{said}</option>' for m, said in MEASURES.items())
    return f"""<div class="controls" id="label-controls" hidden>
<label>find <input id="label-find" type="search" autocomplete="off"></label>
<label>group <select id="label-group"><option value="">all</option>{options}</select></label>
<label>show <select id="label-measure">{measures}</select></label>
<output id="label-shown"></output></div>
<p class="note">Training and judged: documents with the label. F1, precision and recall in percent.
A label without judged documents has an F1 of 0. {cut}</p>
<div class="scroll tall"><table id="label-table" class="labels">
<thead><tr>{head}</tr></thead>
<tbody>
{"".join(map(_row, shown))}</tbody></table></div>
<script type="application/json" id="label-data">{embedded_json(numbers)}</script>"""


def embedded_json(value: Any) -> str:
    """JSON that cannot end the script element around it."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _head(inner: str, column: int) -> str:
    return f'<th scope="col"><button type="button" data-column="{column}">{inner}</button></th>'


def _row(row: LabelRow) -> str:
    cells = [
        f'<th scope="row">{foreign(row.name)}</th><td>{row.group}</td>',
        f"<td>{row.train_count}</td><td>{row.documents}</td>",
    ]
    for value in row.values["f1"]:
        if value is None:
            cells.append(f'<td class="value">{NONE}</td>')
        else:
            cells.append(f'<td class="value" style="--v:{value:.3f}">{100 * value:.1f}</td>')
    return f"<tr>{''.join(cells)}</tr>\n"


def _label_row(
    found: list[Evaluation], places: list[dict[str, int]], name: str, number: int, k: int
) -> LabelRow:
    """The row of a label, which the run of that number has at k."""
    table, masks = found[number].labels, found[number].masks
    group = next((group for group, mask in masks.items() if mask[k]), "")
    values = {measure: _values(found, places, name, measure) for measure in MEASURES}
    return LabelRow(name, group, int(table.train_count[k]), int(table.actual[k]), values)


def _values(
    found: list[Evaluation], places: list[dict[str, int]], name: str, measure: str
) -> list[float | None]:
    return [
        float(getattr(evaluation.labels, measure)[where[name]]) if name in where else None
        for evaluation, where in zip(found, places, strict=True)
    ]


def _rounded(values: list[float | None]) -> list[float | None]:
    return [None if value is None else round(value, 4) for value in values]
