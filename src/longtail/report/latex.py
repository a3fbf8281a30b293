r"""Tables as LaTeX, with all text from the data escaped; needs booktabs and graphicx.

For pdflatex (some letters need \usepackage[T1]{fontenc}), or lualatex for non-Latin scripts.
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
        "[": "{[}",  # after \\ it would start an optional argument
        "]": "{]}",
        "*": "{*}",  # \\* is another command
        NONE: r"\textendash{}",
    }
)
# Two of these in a row would become a ligature, such as a dash or a quotation mark.
LIGATURE = re.compile(r"([-'`,?!])(?=[-'`,])")
# Shrink tables that are wider than the text.
NO_WIDER = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{"


def escape_latex(text: str) -> str:
    """Escape text so that it prints literally, on one line."""
    # lualatex rejects the replacement character as invalid UTF-8.
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
