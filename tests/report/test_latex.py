"""LaTeX: escaped, balanced, and compiled if LaTeX is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from longtail.report import Run, render
from longtail.report.latex import escape_latex

from .cases import EVIL, runs

NASTY = (
    *(name for name in EVIL if max(map(ord, name)) < 0x250),
    "".join(map(chr, range(32, 127))),
    "*star",  # \\* is a variant of \\
    "[2pt] length",
    "--- ,, `` '' ?` !` <<>>",
    "\\input{secret} \\\\ \\today",
    "}",
    "{",
    "Ünïcödé e\u0301",
    "\u2013\u2014\u2018\u2019\u201c\u201d…€",
)
PLAIN = "\\usepackage{booktabs,graphicx}\n"
T1 = "\\usepackage[T1]{fontenc}\n" + PLAIN


def compiled(text: str, folder: Path, packages: str, engine: str = "pdflatex") -> bytes:
    """Compile a document that includes the tables; return the PDF."""
    program = shutil.which(engine)
    if program is None:
        pytest.skip(f"{engine} is not installed: apt-get install texlive-latex-recommended")
    (folder / "tables.tex").write_text(text, "utf-8")
    (folder / "main.tex").write_text(
        f"\\documentclass{{article}}\n{packages}\\begin{{document}}\n\\listoftables\n"
        "\\input{tables}\n\\end{document}\n"
    )
    for _ in range(2):  # the list of tables is read back by the second
        done = subprocess.run(
            [program, "-interaction=nonstopmode", "-halt-on-error", "main.tex"],
            cwd=folder,
            capture_output=True,
            check=False,
        )
        log = done.stdout.decode("utf-8", "replace")
        assert done.returncode == 0, log[-2000:]
    return (folder / "main.pdf").read_bytes()


@cache
def nasty() -> str:
    """Nasty names of runs, in the title of differences and in notes on unknown labels."""
    evaluation = runs()["bce"].evaluation
    named = {name: Run(replace(evaluation, unknown_labels={name: 1})) for name in NASTY}
    return render(named, "latex", "pubmed")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("packages", "engine"), [(PLAIN, "pdflatex"), (T1, "pdflatex"), (PLAIN, "lualatex")]
)
def test_nasty_names_compile(tmp_path: Path, packages: str, engine: str) -> None:
    assert compiled(nasty(), tmp_path, packages, engine).startswith(b"%PDF")


def test_every_special_character_is_escaped() -> None:
    assert escape_latex(r"& % $ # _ { } ~ ^ \ ") == (
        r"\& \% \$ \# \_ \{ \} \textasciitilde{} \textasciicircum{} \textbackslash{}"
    )
    assert escape_latex('"a" [b] *') == r"\symbol{34}a\symbol{34} {[}b{]} {*}"
    assert escape_latex("--- ''") == "-{}-{}- '{}'"
    assert escape_latex("\u2013") == r"\textendash{}"
    assert escape_latex("e\u0301 é ł") == "é é ł"
    assert escape_latex("\x00\ud800") == "??"


def test_tables_are_balanced() -> None:
    text = nasty()
    body = re.sub(r"\\[&%$#_{}]", "", text)
    assert body.count("{") == body.count("}")
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 6
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 6
    assert all(rule in text for rule in (r"\toprule", r"\midrule", r"\bottomrule"))
    for line in text.splitlines():
        if not line.startswith("%"):
            assert not re.search(r"(?<!\\)[$_^~]", line), line
    assert text.startswith("%")
