"""The output of `longtail stats`: names are shown literally, and output is bounded."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from longtail.analysis import stats
from longtail.data.textdata import TextData
from longtail.report import stats_tables, to_terminal

from .cases import from_labels


def printed(parts: dict[str, TextData], width: int = 80, name: str = "corpus") -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=False)
    for table in stats_tables(stats(parts), name):
        console.print(to_terminal(table))
    return out.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_names_are_shown_as_they_are(width: int) -> None:
    odd = ["[bold]gold[/bold]", "[/red]", "tin\x1b[31m", ":smile:"]
    parts = {"train": from_labels([odd] * 3 + [[]]), "test [x]": from_labels([["[new]"]] * 2)}
    text = printed(parts, width, "[corpus]")
    names = ("[corpus]", "[new]", "[bold]gold[/bold]", "[/red]", ":smile:")
    # On narrow terminals, names in the table of pairs wrap.
    for name in names if width > 100 else names[:2]:
        assert name in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= width


def test_a_label_of_10_mb_is_not_printed_in_full() -> None:
    huge, other = "x" * 10**7, "y " * 10**6
    train = from_labels([[huge, other]] * 20 + [["b"]] * 20)
    test = from_labels([[huge]] * 40 + [["z" * 10**6]] * 5)
    text = printed({"train": train, "test": test}, name="c" * 10**6)
    assert len(text) < 20_000 and "xxx" in text and "zzz" in text


def test_the_tables_of_a_tiny_corpus() -> None:
    data = TextData.from_lists(["a b c", "d"], [["x", "y"], ["x"]], ["x", "y", "never"])
    text = " ".join(printed({"train": data}, 120).split())
    assert "documents 2 " in text and "with several labels 1" in text
    assert "per document, mean 1.50" in text and "density 0.50000" in text
    assert "words per document, mean 2 median 2" in text and "most 3" in text
    assert "3 labels, 1 of them without a training document: training documents per label" in text
    assert "least q 0.25 q 0.33 q 0.5 q 0.66 q 0.75 most mean" in text
    assert "0 0.5 0.66 1 1.32 1.5 2 1 " in text
    assert "head more than 1.333 1 2 66.7 %" in text and "tail below 0.6667 1 0 0.0 %" in text
    assert "1.5 2 0.4714 " in text and "Most linked" not in text
    empty = printed({"train": TextData.from_lists(["\ud800"], [[]], ["never"]), "test": data[:0]})
    assert "- -" in " ".join(empty.split())


def test_duplicates_and_drift_have_a_line_each() -> None:
    texts, labels = ["a", "A", "b"], [["x"], ["x"], ["y"]]
    train = TextData.from_lists(texts, labels, ids=["1", "2", "3"])
    test = TextData.from_lists(["b", "c"], [["y"], ["x"]], ids=["3", "9"])
    text = " ".join(printed({"train": train, "test": test}, 120).split())
    for line in (
        "documents with the text of an earlier one 1 0",
        "also in the training part - 1 with exactly the same labels - 1 for example - 3 is 3",
        "documents with the id of an earlier one 0 0 with the id of a training document - 1",
        "labels that never occurred in training 0 assignments of them 0 for example -",
        "labels whose frequency differs significantly 0 most of all -",
    ):
        assert line in text
    train = from_labels([["a", "c"]] * 100 + [["b"]] * 100)
    test = from_labels([["a", "c"]] * 50 + [["a"]] * 45 + [["[n]"]] * 5)
    text = " ".join(printed({"train": train, "test": test}).split())
    for line in (
        "never occurred in training 1 assignments of them 5 for example [n]",
        "training labels that do not occur 1 Jensen-Shannon distance 0.",
        "differs significantly 2 most of all b 50.0 % to 0.0 %",
    ):
        assert line in text
