"""Tables as Markdown in which nothing of the data is taken for markup."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from longtail.evaluation import Evaluation
from longtail.report.tables import Table, label_table, one_line, render_cell

# An underscore inside a word is no markup, and paths read better without the backslash.
SPECIAL = re.compile(r"([\\`*\[\]|~$#!]|(?<!\w)_|_(?!\w))")
HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def escape_markdown(text: str) -> str:
    """Text that shows as it is, on one line, in a cell or a paragraph."""
    return SPECIAL.sub(r"\\\1", one_line(text)).translate(HTML)


def to_markdown(evaluations: Mapping[str, Evaluation]) -> str:
    """Micro-/macro-F1 for every label group as one Markdown table, and what must be said of it."""
    table = label_table(evaluations)
    grid = _grid([[escape_markdown(cell) for cell in row] for row in table.plain()])
    return "\n".join([grid, *(escape_markdown(line) + "\n" for line in table.caveats)])


def table_markdown(table: Table) -> str:
    """A heading, the table with its best figures bold, and its notes."""
    rows = [[escape_markdown(cell) for cell in table.header]]
    rows += [[render_cell(cell, escape_markdown, "**{}**") for cell in row] for row in table.rows]
    notes = [escape_markdown(note) for note in (*table.notes, *table.caveats)]
    parts = [f"## {escape_markdown(table.title)}\n", _grid(rows), "\n".join(notes) + "\n"]
    return "\n".join(part for part in parts if part.strip())


def tables_markdown(title: str, tables: Sequence[Table]) -> str:
    """A whole document."""
    return "\n".join([f"# {escape_markdown(title)}\n", *map(table_markdown, tables)])


def _grid(rows: Sequence[Sequence[str]]) -> str:
    header, *body = rows
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in body]
    return "\n".join(lines) + "\n"
