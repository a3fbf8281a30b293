"""One table for all renderers: header, rows, alignment, marks of the best figures, notes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

NONE = "\N{EN DASH}"
Pair = tuple[float, float]
"""Micro-F1 and macro-F1 in percent."""
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
        """Header and rows as strings."""
        return [list(self.header), *([plain(cell) for cell in row] for row in self.rows)]


def plain(cell: Cell) -> str:
    """The cell without marks."""
    return cell if isinstance(cell, str) else "".join(cell)


def pieces(cell: Cell) -> Sequence[str]:
    """The pieces of a cell, some of them `Strong`."""
    return (cell,) if isinstance(cell, str) else cell


def best_pair(pairs: Iterable[Pair | None]) -> Pair | None:
    """The highest micro- and macro-F1 as written; None for fewer than two rows."""
    known = [pair for pair in pairs if pair is not None]
    if len(known) < 2:
        return None
    micro, macro = (max(round(value, 2) for value in column) for column in zip(*known, strict=True))
    return micro, macro


def pair_cell(
    pair: Pair | None, best: Pair | None = None, after: tuple[str, str] = ("", "")
) -> Cell:
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
