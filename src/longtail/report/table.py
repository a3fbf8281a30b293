"""One table for all renderers, and the renderers for Markdown and the terminal.

Text from the data is always escaped.
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
# An underscore inside a word is not markup, and paths read better without backslashes.
SPECIAL = re.compile(r"([\\`*\[\]|~$#!]|(?<!\w)_|_(?!\w))")
HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
# Maximum characters of a cell on the terminal: a label may have 10 MB.
CELL_LIMIT = 600
# Control characters and unpaired surrogates, which no output format accepts.
_UNFIT = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


class Strong(str):
    """A bold piece of a cell: the best of its column, or a significant difference."""


Cell = str | tuple[str, ...]
"""Unescaped text, or pieces of it."""


@dataclass(frozen=True)
class Table:
    """A table of unescaped text; the renderers escape it."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()
    rules: Sequence[int] = ()
    """Rows with a line above them, such as the first row of the paper."""
    n_names: int = 1
    """Number of left-aligned columns that name a row; the others are right-aligned."""
    caveats: Sequence[str] = ()
    """Notes that even a bare table keeps, as its numbers would be misread without them."""

    def plain(self) -> list[list[str]]:
        """Header and rows as strings without bold."""
        return [list(self.header), *(["".join(pieces(cell)) for cell in row] for row in self.rows)]


def pieces(cell: Cell) -> Sequence[str]:
    """The pieces of a cell, some of them `Strong`."""
    return (cell,) if isinstance(cell, str) else cell


def best_pair(pairs: Iterable[Pair | None]) -> Pair | None:
    """The highest micro- and macro-F1, rounded as shown; None for fewer than two rows."""
    known = [pair for pair in pairs if pair is not None]
    if len(known) < 2:
        return None
    return max(round(micro, 2) for micro, _ in known), max(round(macro, 2) for _, macro in known)


def pair_cell(
    pair: Pair | None, best: Pair | None = None, suffixes: Sequence[str] = ("", "")
) -> Cell:
    """`micro / macro`, each with its suffix, in bold where it equals `best`."""
    if pair is None:
        return NONE
    cell: list[str] = []
    for k, value in enumerate(pair):
        is_best = best is not None and round(value, 2) == best[k] > 0
        cell += [Strong(f"{value:.2f}") if is_best else f"{value:.2f}", suffixes[k], " / "]
    has_bold = any(isinstance(piece, Strong) for piece in cell)
    return tuple(filter(None, cell[:-1])) if has_bold else "".join(cell[:-1])


def heading(group: str) -> str:
    """single_label -> single-label, micro_f1 -> micro-F1."""
    return group.replace("_f1", "-F1").replace("_", "-")


def plural(count: int, noun: str) -> str:
    """1 label, 2 labels, 1,000 labels."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """Join names as in `a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def by_text(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Group pairs of a text and the row or run that it is about: text -> names."""
    names: dict[str, list[str]] = {}
    for text, name in pairs:
        names.setdefault(text, []).append(name)
    return names


def one_line(text: str) -> str:
    """Replace white space by single spaces, and characters that no output format accepts."""
    return " ".join(_UNFIT.sub("\N{REPLACEMENT CHARACTER}", text).split())


def shorten(text: str, limit: int) -> str:
    """Truncate a text to one line of at most `limit` characters."""
    # Four times the limit, as white space is folded; a text of 10 MB is not read in full.
    folded = one_line(text[: 4 * limit])
    if len(folded) <= limit and len(text) <= 4 * limit:
        return folded
    return folded[: limit - 1].rstrip() + "…"


def escape_markdown(text: str) -> str:
    """Escape text so that it shows literally, on one line, in a cell or a paragraph."""
    return SPECIAL.sub(r"\\\1", one_line(text)).translate(HTML)


def to_markdown(table: Table, *, bare: bool = False) -> str:
    """Heading, table and notes; `bare` keeps only the table, without bold, and the caveats."""
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
    """The table for `rich.console.Console.print`; long cells are cut in the middle."""
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
    """Escape a cell; `strong` is a format for bold such as `**{}**`."""
    # `escape` strips white space; keep one space between pieces.
    return "".join(
        " " * piece.startswith(" ")
        + (strong if isinstance(piece, Strong) else "{}").format(escape(piece))
        + " " * piece.endswith(" ")
        for piece in pieces(cell)
    )
