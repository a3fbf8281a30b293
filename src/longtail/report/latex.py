r"""Tables as LaTeX for the packages booktabs and graphicx, with everything of the data escaped.

For pdflatex, with \usepackage[T1]{fontenc} for some letters, and for lualatex, which names in
other scripts than the Latin one need.
"""

from __future__ import annotations

import re
import unicodedata

from longtail.report.table import NONE, Table, one_line, render_cell

ESCAPES = str.maketrans(
    {letter: f"\\{letter}" for letter in "&%$#_{}"}
    | {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\symbol{34}",  # \textquotedbl is not in every encoding
        "[": "{[}",  # behind \\ it would be taken for a length
        "]": "{]}",
        "*": "{*}",  # behind \\ it would be taken for a variant of that
        NONE: r"\textendash{}",
    }
)
# Two of these in a row would become one character, such as a dash or a quotation mark.
LIGATURE = re.compile(r"([-'`,?!])(?=[-'`,])")
# A table wider than the lines is made smaller.
NO_WIDER = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{"


def escape_latex(text: str) -> str:
    """Text that prints as it is, on one line."""
    # lualatex takes the replacement character for broken UTF-8.
    folded = unicodedata.normalize("NFC", one_line(text)).replace("\N{REPLACEMENT CHARACTER}", "?")
    return LIGATURE.sub(r"\1{}", folded.translate(ESCAPES))


def to_latex(table: Table) -> str:
    r"""A `table` environment; needs \usepackage{booktabs,graphicx}."""
    caption = " ".join([table.title + ".", *table.notes, *table.caveats])
    kinds = "l" * table.n_names + "r" * (len(table.header) - table.n_names)
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption[{{{escape_latex(table.title)}}}]{{{escape_latex(caption)}}}",
        rf"  {NO_WIDER}\begin{{tabular}}{{{kinds}}}",
        r"    \toprule",
        "    " + " & ".join(map(escape_latex, table.header)) + r" \\",
        r"    \midrule",
    ]
    for k, row in enumerate(table.rows):
        lines += [r"    \midrule"] if k in table.rules else []
        cells = (render_cell(cell, escape_latex, r"\textbf{{{}}}") for cell in row)
        lines.append("    " + " & ".join(cells) + r" \\")
    lines += [r"    \bottomrule", r"  \end{tabular}}", r"\end{table}"]
    return "\n".join(lines) + "\n"
