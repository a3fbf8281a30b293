"""Tables as LaTeX for the package booktabs, with everything of the data escaped."""

from __future__ import annotations

from collections.abc import Sequence

from longtail.report.tables import NONE, Cell, Table, one_line, render_cell

ESCAPES = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
        "[": "{[}",  # behind \\ it would be taken for a length
        "]": "{]}",
        NONE: "--",
    }
)


def escape_latex(text: str) -> str:
    """Text that prints as it is, on one line."""
    return one_line(text).translate(ESCAPES)


def table_latex(table: Table) -> str:
    r"""A `table` environment; needs \usepackage{booktabs}."""
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{escape_latex(' '.join([table.title + '.', *table.notes]))}}}",
        rf"  \begin{{tabular}}{{{'l' + 'r' * (len(table.header) - 1)}}}",
        r"    \toprule",
        "    " + " & ".join(escape_latex(cell) for cell in table.header) + r" \\",
        r"    \midrule",
    ]
    for k, row in enumerate(table.rows):
        lines += [r"    \midrule"] if k in table.rules else []
        lines.append("    " + " & ".join(_cell(cell) for cell in row) + r" \\")
    lines += [r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def tables_latex(title: str, tables: Sequence[Table]) -> str:
    """All tables, to be read with \\input into a document that loads booktabs."""
    opening = f"% {one_line(title)}\n% Needs \\usepackage{{booktabs}}.\n"
    return "\n".join([opening, *map(table_latex, tables)])


def _cell(cell: Cell) -> str:
    return render_cell(cell, escape_latex, r"\textbf{{{}}}")
