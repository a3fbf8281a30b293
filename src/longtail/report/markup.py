"""Pieces of HTML. Everything that comes from data passes `escape`; nothing else makes tags."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

from longtail.report.tables import Table, one_line, render_cell


def escape(text: str) -> str:
    """Text for the middle of an element or a quoted attribute."""
    return html.escape(one_line(text), quote=True)


def foreign(text: str) -> str:
    """Text of the data, whose writing direction must not turn its surroundings."""
    return f"<bdi>{escape(text)}</bdi>"


def shortened(text: str, limit: int) -> str:
    """The beginning of a text, on one line, not escaped yet."""
    folded = one_line(text)
    return folded if len(folded) <= limit else folded[: limit - 1].rstrip() + "…"


def table_html(table: Table, swatches: int = 0, kind: str = "figures") -> str:
    """A table with its notes; the first `swatches` rows begin with the colour of their run."""
    head = "".join(f'<th scope="col">{foreign(cell)}</th>' for cell in table.header)
    lines = [f'<div class="scroll"><table class="{kind}"><thead><tr>{head}</tr></thead><tbody>']
    for k, row in enumerate(table.rows):
        first, *cells = (render_cell(cell, foreign, "<strong>{}</strong>") for cell in row)
        mark = swatch(k) if k < swatches else ""
        kinds = " ".join(["rule"] * (k in table.rules) + ["quiet"] * (0 < swatches <= k))
        rule = f' class="{kinds}"' if kinds else ""
        others = "".join(f"<td>{cell}</td>" for cell in cells)
        lines.append(f'<tr{rule}><th scope="row">{mark}{first}</th>{others}</tr>')
    lines.append("</tbody></table></div>")
    notes = " ".join(escape(note) for note in (*table.notes, *table.caveats))
    return "\n".join([*lines, f'<p class="note">{notes}</p>' if notes else ""])


def plain_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A small table of text of the data."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{foreign(cell)}</td>" for cell in row) + "</tr>\n" for row in rows
    )
    return (
        f'<div class="scroll"><table class="plain"><thead><tr>{head}</tr></thead>'
        f"<tbody>\n{body}</tbody></table></div>"
    )


def swatch(position: int) -> str:
    """The colour of a run, as its lines have it: whole, then dashed, then dotted."""
    from longtail.report.drawing import DASHES, N_COLOURS

    style = ("solid", "dashed", "dotted")[position // N_COLOURS % len(DASHES)]
    return (
        f'<span class="swatch" style="border-top:4px {style} var(--run-{position % N_COLOURS})">'
        "</span>"
    )


def legend(names: Sequence[str], said: Mapping[str, str] | None = None) -> str:
    """The runs and their colours; with `said` only those in it, and that behind their names."""
    items = []
    for k, name in enumerate(names):
        if said is None or name in said:
            more = f" <span>{escape(said[name])}</span>" if said else ""
            items.append(f"<li>{swatch(k)}{foreign(name)}{more}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


def chips(names: Sequence[str], kind: str, most: int = 40) -> str:
    """Label names one behind the other."""
    shown = "".join(f'<span class="chip {kind}">{foreign(name)}</span>' for name in names[:most])
    left = len(names) - most
    return shown + (f' <span class="note">and {left} more</span>' if left > 0 else "")
