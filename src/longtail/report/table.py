"""One table for all renderers, and two of them: Markdown and the terminal.

Nothing of the data is taken for markup.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from longtail.errors import printable

if TYPE_CHECKING:
    from rich.table import Table as RichTable

NONE = "\N{EN DASH}"
Pair = tuple[float, float]
"""Micro-F1 and macro-F1 in percent."""
# An underscore inside a word is no markup, and paths read better without the backslash.
SPECIAL = re.compile(r"([\\`*\[\]|~$#!]|(?<!\w)_|_(?!\w))")
HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
# Characters of a cell on the terminal: a label may have 10 MB.
CELL_LIMIT = 600
# Control characters and unpaired surrogates, which no output format takes.
_UNFIT = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


class Strong(str):
    """A piece of a cell in bold: the best of its column, or a significant difference."""


Cell = str | tuple[str, ...]
"""Text that is not escaped yet, or pieces of it."""


@dataclass(frozen=True)
class Table:
    """Text that is not escaped yet; the renderers do that."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()
    rules: Sequence[int] = ()
    """Rows with a line above them, such as the first of the paper's."""
    n_names: int = 1
    """Columns that name a row: aligned to the left, all others to the right."""
    caveats: Sequence[str] = ()
    """Notes without which the figures would be misread: not even a bare table omits them."""

    def plain(self) -> list[list[str]]:
        """Header and rows as strings without marks."""
        return [list(self.header), *(["".join(pieces(cell)) for cell in row] for row in self.rows)]


def pieces(cell: Cell) -> Sequence[str]:
    """The pieces of a cell, some of them `Strong`."""
    return (cell,) if isinstance(cell, str) else cell


def best_pair(pairs: Iterable[Pair | None]) -> Pair | None:
    """The highest micro- and macro-F1 as written; None for fewer than two rows."""
    known = [pair for pair in pairs if pair is not None]
    if len(known) < 2:
        return None
    return max(round(micro, 2) for micro, _ in known), max(round(macro, 2) for _, macro in known)


def pair_cell(pair: Pair | None, best: Pair | None = None, after: Sequence[str] = ("", "")) -> Cell:
    """`micro / macro`, those that are the best of their column strong, each with its suffix."""
    if pair is None:
        return NONE
    cells: list[str] = []
    for k, value in enumerate(pair):
        is_best = best is not None and round(value, 2) == best[k] > 0
        cells += [Strong(f"{value:.2f}") if is_best else f"{value:.2f}", after[k], " / "]
    strong = any(isinstance(piece, Strong) for piece in cells)
    return tuple(filter(None, cells[:-1])) if strong else "".join(cells[:-1])


def heading(group: str) -> str:
    """single_label -> single-label, micro_f1 -> micro-F1."""
    return group.replace("_f1", "-F1").replace("_", "-")


def plural(count: int, noun: str) -> str:
    """1 label, 2 labels, 1,000 labels."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """a; a and b; a, b and c."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def by_text(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Text -> the rows or runs that it is about, from pairs of both."""
    names: dict[str, list[str]] = {}
    for text, name in pairs:
        names.setdefault(text, []).append(name)
    return names


def one_line(text: str) -> str:
    """The text without line breaks and characters that no output format takes."""
    return " ".join(_UNFIT.sub("\N{REPLACEMENT CHARACTER}", text).split())


def shorten(text: str, limit: int) -> str:
    """The beginning of a text, on one line of at most `limit` characters."""
    # Four times the limit, since white space is folded; a text of 10 MB is not read in full.
    folded = one_line(text[: 4 * limit])
    if len(folded) <= limit and len(text) <= 4 * limit:
        return folded
    return folded[: limit - 1].rstrip() + "…"


def escape_markdown(text: str) -> str:
    """Text that shows as it is, on one line, in a cell or a paragraph."""
    return SPECIAL.sub(r"\\\1", one_line(text)).translate(HTML)


def to_markdown(table: Table, *, bare: bool = False) -> str:
    """A heading, the table with its best figures bold, and its notes.

    `bare` leaves out heading, marks and notes, but not the caveats.
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
        cells = []
        for cell in row:
            styled = (text(p, "bold" if isinstance(p, Strong) else "") for p in pieces(cell))
            cells.append(Text.assemble(*styled))
        rich.add_row(*cells)
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
