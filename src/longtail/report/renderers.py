"""Tables as Markdown and on the terminal; nothing of the data is taken for markup."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from longtail.errors import printable
from longtail.report.table import Cell, Strong, Table, one_line, pieces

if TYPE_CHECKING:
    from rich.table import Table as RichTable

# An underscore inside a word is no markup, and paths read better without the backslash.
SPECIAL = re.compile(r"([\\`*\[\]|~$#!]|(?<!\w)_|_(?!\w))")
HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
# Characters of a cell on the terminal: a label may have 10 MB.
CELL_LIMIT = 600


def escape_markdown(text: str) -> str:
    """Text that shows as it is, on one line, in a cell or a paragraph."""
    return SPECIAL.sub(r"\\\1", one_line(text)).translate(HTML)


def to_markdown(table: Table, *, bare: bool = False) -> str:
    """A heading, the table with its best figures bold, and its notes.

    Args:
        table: the table.
        bare: leave out heading, marks and notes, but not the caveats.
    """
    strong = "{}" if bare else "**{}**"
    rows = [[escape_markdown(cell) for cell in table.header]]
    rows += [[render_cell(cell, escape_markdown, strong) for cell in row] for row in table.rows]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(table.header))
    notes = [escape_markdown(note) for note in (*(() if bare else table.notes), *table.caveats)]
    title = [] if bare or not table.title else [f"## {escape_markdown(table.title)}\n"]
    below = ["\n".join(notes) + "\n"] if notes else []
    return "\n".join([*title, "\n".join(lines) + "\n", *below])


def to_terminal(table: Table, *, framed: bool = False) -> RichTable:
    """For `rich.console.Console.print`; long cells are cut in their middle."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    def text(value: str, style: str = "") -> Text:
        return Text(printable(value, CELL_LIMIT).replace("\n", " "), style)

    rich = RichTable(
        title=text(table.title, "bold"),
        title_justify="center" if framed else "left",
        box=box.HEAVY_HEAD if framed else box.SIMPLE_HEAD,
        show_header=any(table.header),
    )
    for position, name in enumerate(table.header):
        left = position < table.n_names
        rich.add_column(text(name), justify="left" if left else "right", overflow="fold")
    for row in table.rows:
        rich.add_row(
            *(
                Text.assemble(
                    *(text(p, "bold" if isinstance(p, Strong) else "") for p in pieces(cell))
                )
                for cell in row
            )
        )
    return rich


def render_cell(cell: Cell, escape: Callable[[str], str], strong: str) -> str:
    """The escaped cell; `strong` is a pattern such as `**{}**`."""
    # `escape` strips white space; one space between pieces stays.
    return "".join(
        " " * piece.startswith(" ")
        + (strong if isinstance(piece, Strong) else "{}").format(escape(piece))
        + " " * piece.endswith(" ")
        for piece in pieces(cell)
    )


def to_document(title: str, tables: Sequence[Table]) -> str:
    """A whole Markdown document."""
    return "\n".join([f"# {escape_markdown(title)}\n", *map(to_markdown, tables)])
