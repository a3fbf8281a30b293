"""Tables by hand, the paper's rows, and escaping in Markdown, LaTeX and JSON."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.errors import InputError, UnknownNameError
from longtail.report import FORMATS, Run, document_table, label_table, paper_rows, render
from longtail.report.latex import table_latex
from longtail.report.markdown import escape_markdown
from longtail.report.paper import paper_sizes
from longtail.report.runs import compare_runs
from longtail.report.tables import difference_table, one_line

from .made import EVIL, by_hand, judged, runs

SHARED = Path(os.environ.get("LONGTAIL_SHARED", Path(__file__).parents[3] / "shared"))
TABLES = SHARED / "paper" / "tables.json"
NAMES = ["svm", "bce", "fl", "cb", "r-fl", "ntr-fl", "db-0fl", "cb-ntr", "db"]


def test_label_table_by_hand() -> None:
    truth, scores = by_hand()
    found = {
        "good": judged(truth, scores, [90, 20, 2]),
        "none": judged(truth, scores, [90, 20, 2], at=9.0),
    }
    table = label_table(found)
    assert table.plain() == [
        ["", "all (3)", "head (1)", "medium (1)", "tail (1)"],
        ["good", "80.00 / 61.90", "85.71 / 85.71", "0.00 / 0.00", "100.00 / 100.00"],
        ["none", "0.00 / 0.00", "0.00 / 0.00", "0.00 / 0.00", "0.00 / 0.00"],
    ]
    strong = [[any(span.strong for span in cell) for cell in row] for row in table.rows]
    # Nothing is best where all are 0.
    assert strong == [[False, True, True, False, True], [False] * 5]
    assert re.fullmatch(
        r"80\.00 \[\d+\.\d, \d+\.\d\] / 61\.90 \[\d+\.\d, \d+\.\d\]",
        label_table(found, intervals=True).plain()[1][1],
    )


def test_micro_and_macro_are_marked_each_for_itself_and_a_single_run_is_not() -> None:
    truth, scores = by_hand()
    often = scores.copy()
    often[0, 0] = often[3, 0] = -1  # worse at the head
    often[1, 1] = 1  # better at a rare label
    found = {"a": judged(truth, scores, [90, 20, 2]), "b": judged(truth, often, [90, 20, 2])}
    rows = label_table(found).rows
    assert [[span.strong for span in row[1]] for row in rows] == [
        [True, False, False],
        [False, False, True],
    ]
    alone = label_table({"a": found["a"]}).rows
    assert not any(span.strong for row in alone for cell in row for span in cell)


def test_document_table_by_hand() -> None:
    truth, scores = by_hand()
    table = document_table({"run": judged(truth, scores, [90, 20, 2])})
    assert table.plain() == [
        ["", "all (4)", "single-label (3)", "multi-label (1)"],
        # Single: three hits, one wrong; F1 of the labels 0.8, 0, 1.
        ["run", "80.00 / 61.90", "85.71 / 60.00", "66.67 / 33.33"],
    ]


def test_documents_are_cut_where_the_paper_cuts_those_of_pubmed() -> None:
    truth = np.zeros((6, 20))
    for row, size in enumerate((1, 9, 10, 14, 15, 20)):
        truth[row, :size] = 1
    scores = truth * 2 - 1
    scores[0] = -1
    found = judged(truth, scores, [9] * 20)
    table = document_table({"run": found}, "pubmed")
    assert table.header[1:] == (
        "all (6)", "up to 9 labels (2)", "10 to 14 labels (2)", "15 or more labels (2)"
    )  # fmt: skip
    assert table.plain()[1][2] == "94.74 / 43.33"  # labels: 2/3, eight times 1, eleven times 0
    assert any("other numbers of documents: all 5000 (here 6)" in note for note in table.notes)


@pytest.mark.parametrize(
    ("corpus", "layout", "columns"),
    [
        ("reuters", "labels", ["all (90)", "head (30)", "medium (31)", "tail (29)"]),
        ("pubmed", "labels", ["all (18211)", "head (6018)", "medium (5581)", "tail (6612)"]),
        ("reuters", "documents", ["all (3019)", "single-label (2583)", "multi-label (436)"]),
        (
            "pubmed",
            "documents",
            ["all (5000)", "up to 9 labels", "10 to 14 labels", "15 or more labels"],
        ),
    ],
)
def test_the_nine_rows_of_the_paper_render_by_themselves(
    corpus: str, layout: str, columns: list[str]
) -> None:
    table = (label_table if layout == "labels" else document_table)({}, corpus)
    assert list(table.header) == ["", *columns]
    assert [row[0] for row in table.plain()[1:]] == [f"{n.upper()} (paper)" for n in NAMES]
    assert "DB" in table_latex(table) and table.rules == ()


@pytest.mark.skipif(
    not TABLES.exists(), reason=f"{TABLES} is not there: set LONGTAIL_SHARED to a folder with it"
)
def test_the_papers_figures_are_those_of_the_shared_tables() -> None:
    tables = json.loads(TABLES.read_text("utf-8"))
    keys = {
        "labels": {"total": "all"},
        "documents": {
            "total": "all",
            "le_9": "up to 9 labels",
            "10_14": "10 to 14 labels",
            "ge_15": "15 or more labels",
        },
    }
    sources = {"labels": "table_by_label_group", "documents": "table_by_labels_per_instance"}
    seen = 0
    for layout, source in sources.items():
        for row, cells in tables[source].items():
            for name, values in cells.items():
                corpus, column = name.split(".")
                found = paper_rows(corpus, layout)[row.lower()]
                assert found[keys[layout].get(column, column)] == tuple(values)
                seen += 1
    assert seen == 9 * 8 + 8 * 7
    facts = tables["datasets"]["reuters"]
    sizes = paper_sizes("reuters", "documents")
    assert [sizes[k] for k in ("all", "single_label", "multi_label")] == [
        facts["test"], facts["test_single_label"], facts["test_multi_label"]
    ]  # fmt: skip


def test_the_paper_stands_below_our_runs() -> None:
    truth, scores = by_hand()
    table = label_table({"ours": judged(truth, scores, [90, 20, 2])}, "reuters")
    assert len(table.rows) == 10 and table.rules == (1,)
    assert table.plain()[-1] == [
        "DB (paper)", "90.62 / 64.47", "92.14 / 83.48", "80.25 / 77.01", "48.89 / 31.39"
    ]  # fmt: skip
    assert any("head 30 (here 1)" in note for note in table.notes)
    assert paper_rows("reuters", "documents")["svm"] == {
        "all": (87.6, 51.63), "single_label": None, "multi_label": None
    }  # fmt: skip
    with pytest.raises(UnknownNameError, match="reuters"):
        paper_rows("reuter", "labels")
    with pytest.raises(UnknownNameError, match="documents"):
        paper_rows("reuters", "document")


def test_differences_to_the_first_run() -> None:
    found = {name: run.evaluation for name, run in runs().items()}
    compared = compare_runs(found)
    table = difference_table(compared, "bce")
    assert list(compared) == list(found)[1:] and len(table.rows) == 4
    difference = compared["third|run"]["all"]["micro_f1"]  # type: ignore[index]
    first, last = found["bce"].overall.micro_f1, found["third|run"].overall.micro_f1
    assert difference.value == pytest.approx(last - first)
    assert table.plain()[3][2].startswith(f"{100 * (last - first):+.2f} [")
    truth, scores = by_hand()
    other = {"one": found["bce"], "two": judged(truth, scores, [90, 20, 2])}
    table = difference_table(compare_runs(other), "one")
    assert table.rows == () and "two: not compared" in table.notes[-1]


def test_markdown_shows_names_as_they_are() -> None:
    text = render(runs(), "markdown", "reuters")
    assert "<script>" not in text and "<i>" not in text and "third\\|run" in text
    for line in text.splitlines():
        if line.startswith("|"):
            bars = len(re.findall(r"(?<!\\)\|", line))
            assert bars in (5, 6, 7, 8, 9), line
    assert escape_markdown("a_b _c_ *d* `e` [f](g) <h> & \\") == (
        "a_b \\_c\\_ \\*d\\* \\`e\\` \\[f\\](g) &lt;h&gt; &amp; \\\\"
    )


def test_json_holds_everything() -> None:
    plain = json.loads(render(runs(), "json", "reuters"))
    assert list(plain["runs"]) == list(runs())
    first = plain["runs"]["bce"]
    assert [row["name"] for row in first["labels"]] == list(EVIL)
    assert first["overall"]["micro_f1"] == runs()["bce"].evaluation.overall.micro_f1
    assert set(plain["comparisons"]["third|run"]["tail"]["macro_f1"]) == {
        "value",
        "low",
        "high",
        "p",
    }
    assert plain["paper"]["labels"]["db"]["all"] == [90.62, 64.47]
    assert plain["compared_with"] == "bce"


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_every_format_takes_edge_cases(name: str) -> None:
    truth, scores = by_hand()
    nothing = judged(sp.csr_matrix((0, 2)), np.zeros((0, 2)), [3, 1])
    one = judged([[1], [0]], [[1.0], [-1.0]], [1])
    for evaluation in (nothing, one, judged(truth, scores, [90, 20, 2])):
        assert len(render({"only": Run(evaluation)}, name)) > 100
        assert len(render({"a": Run(evaluation), "b": Run(evaluation)}, name)) > 100
    with pytest.raises(InputError, match="at least one run"):
        render({}, name)
    with pytest.raises(UnknownNameError):
        render({"only": Run(one)}, name, "reuter")
    with pytest.raises(UnknownNameError, match="markdown"):
        render({"only": Run(one)}, "markdwn")


def test_one_line() -> None:
    assert one_line(" a\n\tb\x00\ud800 👩\u200d🔬 ") == "a b\ufffd\ufffd 👩\u200d🔬"
