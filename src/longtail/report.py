"""Evaluations as tables: rows for any renderer, and Markdown."""

from __future__ import annotations

from collections.abc import Mapping

from longtail.evaluation import Evaluation

GROUPS = ("all", "head", "medium", "tail")


def table_rows(evaluations: Mapping[str, Evaluation]) -> list[list[str]]:
    """A header and one row per evaluation: micro-/macro-F1 in percent for every label group."""
    first = next(iter(evaluations.values()))
    sizes = {name: scores.n_labels for name, scores in first.groups().items()}
    header = ["", *(f"{name} ({sizes[name]})" for name in GROUPS)]
    rows = [header]
    for name, evaluation in evaluations.items():
        cells = evaluation.groups()
        rows.append(
            [name]
            + [f"{100 * cells[g].micro_f1:.2f} / {100 * cells[g].macro_f1:.2f}" for g in GROUPS]
        )
    return rows


def to_markdown(evaluations: Mapping[str, Evaluation]) -> str:
    """The same as a Markdown table."""
    header, *rows = ([cell.replace("|", "\\|") for cell in row] for row in table_rows(evaluations))
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
