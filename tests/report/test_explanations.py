"""Explanations on a page and a terminal: text is never markup, and no word is lost."""

from __future__ import annotations

import html
import io
import re

import numpy as np
from rich.console import Console

from longtail.models.explanation import Explanation
from longtail.models.words import word_spans
from longtail.report.explanations import (
    TERMINAL_LIMIT,
    explanation_lines,
    explanations_page,
    highlighted,
    strongest,
)


def explanation(text: str, values: list[float], label: str = "wheat") -> Explanation:
    words = [(int(start), int(stop)) for start, stop in word_spans(text)]
    row = np.array([values[k % len(values)] for k in range(len(words))])[None]
    return Explanation(text, words, [label], row.sum(axis=1) - 2.0, row, np.array([-2.0]))


HOSTILE = "<script>x</script> [red]rise[/] \u202egnol\x07 & 铜\n\n\U0001f44d wheat"


def test_a_page_holds_the_text_and_nothing_of_it_as_markup() -> None:
    one = explanation(HOSTILE, [1.0, -0.5, 0.01], "<label>")
    page = explanations_page([("<id>", one)], {"<label>": 0.5}, "run & son")
    assert "<script" not in page and "<label>" not in page and "<id>" not in page
    assert "\u202e" not in page and "above the threshold 0.50" in page
    marked = str(highlighted(one, 0))
    shown = html.unescape(re.sub("<[^>]*>", "", marked))
    assert shown == HOSTILE.replace("\u202e", r"\u202e").replace("\x07", r"\x07")
    assert marked.count("<mark") == sum(abs(one.values[0]) >= 0.05)
    assert 'class="against" style="--v:50%" title="-0.5"' in marked


def test_the_terminal_shows_the_text_as_it_is() -> None:
    console = Console(width=200, file=io.StringIO(), record=True)
    for line in explanation_lines("7", explanation(HOSTILE, [1.0, -0.5]), {}):
        console.print(line)
    text = console.export_text()
    assert "7: wheat" in text and "[red]rise[/]" in text and "\x07" not in text
    long = explanation("wheat " * TERMINAL_LIMIT, [1.0])
    lines = [line.plain for line in explanation_lines("1", long, {})]
    assert len(lines[1]) < TERMINAL_LIMIT + 50 and lines[1].endswith("24,000 characters in all)")


def test_the_strongest_words_count_all_their_occurrences() -> None:
    one = explanation("Wheat fell wheat rose", [1.0, -0.5, 2.0, 0.01])
    assert strongest(one, 0) == (["wheat +3.00"], ["fell -0.50"])
    assert strongest(explanation("", [1.0]), 0) == ([], [])
    assert strongest(explanation("a b", [0.0]), 0) == ([], [])
