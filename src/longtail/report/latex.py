r"""Tables as LaTeX for the packages booktabs and graphicx, with everything of the data escaped.

Compiles with pdflatex and lualatex. The former wants \usepackage[T1]{fontenc} for some
letters of the Latin script; scripts that it cannot print become the numbers of their characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

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
# What pdflatex cannot print with T1: all but ASCII, most of Latin-1 and Latin Extended-A, and this.
OTHER = re.compile(
    "([\u0126\u0127\u0138\u013f\u0140\u0149\u0166\u0167\u017f]+|"
    "[^\x20-\x7e\u00a1-\u017eȘșȚț†‡•…‰€™\u2013\u2014\u2018-\u201a\u201c-\u201e\u2039\u203a]+)"
)
NEEDS = (
    r"% Needs \usepackage{booktabs,graphicx}; with pdflatex also \usepackage[T1]{fontenc} if names",
    r"% hold letters that the old fonts lack.",
)
# Its first argument where the engine prints all scripts, else the second.
OTHER_COMMAND = r"""\DeclareRobustCommand{\longtailother}[2]{%
  \ifdefined\directlua#1\else\ifdefined\XeTeXversion#1\else#2\fi\fi}"""
# A table wider than the lines is made smaller.
NO_WIDER = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{"


def escape_latex(text: str) -> str:
    """Text that prints as it is, on one line."""
    # lualatex takes the replacement character for broken UTF-8.
    folded = unicodedata.normalize("NFC", one_line(text)).replace("\N{REPLACEMENT CHARACTER}", "?")
    parts = OTHER.split(folded)
    for k, part in enumerate(parts):
        if k % 2:  # every second part is what OTHER matched
            numbers = " ".join(f"U+{ord(letter):04X}" for letter in part)
            parts[k] = rf"\longtailother{{{part}}}{{{numbers}}}"
        else:
            parts[k] = LIGATURE.sub(r"\1{}", part.translate(ESCAPES))
    return "".join(parts)


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


def to_latex_document(title: str, tables: Sequence[Table]) -> str:
    """All tables, to be read with \\input into a document that loads the packages."""
    body = "\n".join(map(to_latex, tables))
    opening = [f"% {one_line(title)}", *NEEDS]
    if r"\longtailother" in body:
        opening.append(OTHER_COMMAND)
    return "\n".join([*opening, "", body])
