"""Tables by hand, the paper's rows, notes, and all renderers."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from rich.console import Console

from longtail.analysis import compare_runs
from longtail.errors import InputError, UnknownNameError
from longtail.evaluation import Difference, Evaluation
from longtail.report import (
    FORMATS,
    Run,
    Table,
    document_table,
    label_table,
    paper_rows,
    render,
    to_html,
    to_latex,
    to_markdown,
    to_terminal,
)
from longtail.report.evaluation_tables import difference_table, not_evaluated, other_groups
from longtail.report.table import (
    NONE,
    Cell,
    Strong,
    escape_markdown,
    one_line,
    pieces,
    shorten,
)

from .cases import EVIL, by_hand, empty_groups, evaluated, runs

NAMES = ["svm", "bce", "fl", "cb", "r-fl", "ntr-fl", "db-0fl", "cb-ntr", "db"]


def strong(cell: Cell) -> list[str]:
    return [piece for piece in pieces(cell) if isinstance(piece, Strong)]


def terminal(table: Table, width: int = 100) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False).print(to_terminal(table))
    return out.getvalue()


def test_label_table_by_hand() -> None:
    evaluations = {name: by_hand(at=at) for name, at in (("good", 0.0), ("none", 9.0))}
    table = label_table(evaluations)
    assert table.plain() == [
        ["", "all (3)", "head (1)", "medium (1)", "tail (1)"],
        ["good", "80.00 / 61.90", "85.71 / 85.71", "0.00 / 0.00", "100.00 / 100.00"],
        ["none", "0.00 / 0.00", "0.00 / 0.00", "0.00 / 0.00", "0.00 / 0.00"],
    ]
    # A best value of 0 is not marked.
    assert [[len(strong(cell)) for cell in row] for row in table.rows] == [[0, 2, 2, 0, 2], [0] * 5]
    assert re.fullmatch(
        r"80\.00 \[\d+\.\d, \d+\.\d\] / 61\.90 \[\d+\.\d, \d+\.\d\]",
        label_table(evaluations, intervals=True).plain()[1][1],
    )


def test_micro_and_macro_are_marked_separately_and_a_single_run_is_not() -> None:
    one = by_hand()
    # Worse on the head label, better on a rare one.
    two = by_hand([[-1.0, -1, -1], [1, 1, -1], [1, -2, 3], [-1, -3, -3]])
    first, second = label_table({"a": one, "b": two}).rows
    assert pieces(first[1])[:1] == tuple(strong(first[1])) and len(pieces(first[1])) == 3
    assert pieces(second[1])[-1:] == tuple(strong(second[1])) and len(pieces(second[1])) == 3
    assert not any(strong(cell) for cell in label_table({"a": one}).rows[0])


def test_document_table_by_hand() -> None:
    table = document_table({"run": by_hand()})
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
    table = document_table({"run": evaluated(truth, scores, [9] * 20)}, "pubmed")
    expected = "all (6), up to 9 labels (2), 10 to 14 labels (2), 15 or more labels (2)"
    assert ", ".join(table.header[1:]) == expected
    assert table.plain()[1][2] == "94.74 / 43.33"  # labels: 2/3, eight times 1, eleven times 0
    assert any("other numbers of documents: all 5000 (here 6)" in note for note in table.notes)


PUBMED_DOCUMENTS = "all (5000), up to 9 labels, 10 to 14 labels, 15 or more labels"


@pytest.mark.parametrize(
    ("corpus", "make", "columns"),
    [
        ("reuters", label_table, "all (90), head (30), medium (31), tail (29)"),
        ("pubmed", label_table, "all (18211), head (6018), medium (5581), tail (6612)"),
        ("reuters", document_table, "all (3019), single-label (2583), multi-label (436)"),
        ("pubmed", document_table, PUBMED_DOCUMENTS),
    ],
)
def test_the_nine_rows_of_the_paper_alone(corpus: str, make: type, columns: str) -> None:
    table = make({}, corpus)
    assert ", ".join(table.header[1:]) == columns
    assert [row[0] for row in table.plain()[1:]] == [f"{n.upper()} (paper)" for n in NAMES]
    assert "DB" in to_latex(table) and table.rules == ()


def test_the_paper_stands_below_our_runs() -> None:
    table = label_table({"ours": by_hand()}, "reuters")
    assert len(table.rows) == 10 and table.rules == (1,)
    cells = "DB (paper), 90.62 / 64.47, 92.14 / 83.48, 80.25 / 77.01, 48.89 / 31.39"
    assert ", ".join(table.plain()[-1]) == cells
    assert any("head 30 (here 1)" in note for note in table.notes)
    svm = {"all": (87.6, 51.63), "single_label": None, "multi_label": None}
    assert paper_rows("reuters", "documents")["svm"] == svm
    with pytest.raises(UnknownNameError, match="reuters"):
        paper_rows("reuter", "labels")
    with pytest.raises(UnknownNameError, match="documents"):
        paper_rows("reuters", "document")


def test_differences_to_the_first_run() -> None:
    evaluations = {name: run.evaluation for name, run in runs().items()}
    compared = compare_runs(evaluations)
    for layout, column, group in (("labels", 2, "overall"), ("documents", 4, "multi_label")):
        table = difference_table(compared, "bce", layout)
        assert len(table.rows) == 4 and table.n_names == 2 and list(table.rules) == [2]
        last, first = (
            ({"overall": e.overall} | e.by_labels_per_document)[group].micro_f1
            for e in (evaluations["third|run"], evaluations["bce"])
        )
        assert table.plain()[3][column].startswith(f"{100 * (last - first):+.2f} [")
    assert tuple(table.header[2:5]) == ("all", "single-label", "multi-label")
    table = difference_table(compare_runs({"one": evaluations["bce"], "two": by_hand()}), "one")
    assert not table.rows and "two: not compared" in table.notes[-1]


@pytest.mark.parametrize(
    ("value", "low", "high", "p", "cell", "bold"),
    [
        (0.02, 0.01, 0.03, 0.0004, "+2.00 [+1.00, +3.00] p <0.001", True),
        (-0.02, -0.03, -0.01, 0.02, "-2.00 [-3.00, -1.00] p 0.020", True),
        (0.01, -0.01, 0.03, 0.3, "+1.00 [-1.00, +3.00] p 0.300", False),
        (-1e-9, -1e-9, 0.0, 1.0, "+0.00 [+0.00, +0.00] p 1.000", False),
    ],
)
def test_a_difference_is_bold_where_its_interval_leaves_out_0(
    value: float, low: float, high: float, p: float, cell: str, bold: bool
) -> None:
    evaluations = {"all": {"micro_f1": Difference(value, low, high, p)}}
    row = difference_table({"run": evaluations}, "first").rows[0]
    assert "".join(pieces(row[2])) == cell and bool(strong(row[2])) is bold


def with_unknown(**unknown: int) -> Evaluation:
    return replace(runs()["bce"].evaluation, unknown_labels=unknown)


def test_unknown_labels_are_listed() -> None:
    evaluations = {"a": with_unknown(y=1, x=2), "c": with_unknown(z=1), "d": with_unknown()}
    assert not_evaluated(evaluations) == [
        "Not evaluated, as a was not trained on them: 3 assignments of 2 labels, such as x.",
        "Not evaluated, as c was not trained on it: 1 assignment of 1 label, such as z.",
    ]
    sentence = "c was not trained on it: 1 assignment of 1 label, such as z."
    for name in ("markdown", "latex"):
        text = " ".join(render({n: Run(e) for n, e in evaluations.items()}, name).split())
        # With labels and with documents, each with and without intervals.
        assert text.count(sentence) == 4
    # Even a bare table has it.
    evil = "<b>|x*"
    bare = to_markdown(label_table({"run": with_unknown(**{evil: 3})}), bare=True)
    assert bare.splitlines()[-1].startswith("Not evaluated, as run was")
    assert escape_markdown(evil) in bare and evil not in bare and "**" not in bare
    assert to_markdown(label_table({"run": with_unknown()}), bare=True).count("\n") == 3


def test_precision_and_recall_stand_in_the_first_table() -> None:
    evaluations = {name: by_hand(at=at) for name, at in (("good", 0.0), ("none", 9.0))}
    table = label_table(evaluations, "reuters", precision_recall=True)
    assert table.header[-2:] == ["precision", "recall"]
    # Six pairs are predicted or apply, four are both; labels: 3/4 and 1, 0 and 0, 1 and 1.
    assert table.plain()[1][-2:] == ["80.00 / 58.33", "80.00 / 66.67"]
    assert table.plain()[-1][-2:] == [NONE, NONE] and len(table.rows) == 11
    text = render({name: Run(each) for name, each in evaluations.items()})
    assert "| precision | recall |" in text.split("## ")[1]


def test_sizes_that_differ_between_runs_are_not_those_of_the_first() -> None:
    evaluations = {"one": by_hand(), **dict.fromkeys(("two", "three"), by_hand(cuts=(30, 40)))}
    table = label_table(evaluations)
    assert list(table.header) == ["", "all (3)", "head (1)", "medium", "tail"]
    (groups,) = table.caveats
    assert groups.endswith("those of two, three hold other labels than those of one.")
    assert label_table({"two": evaluations["two"], "three": evaluations["three"]}).caveats == ()
    # Nor the paper's sizes.
    beside = label_table(evaluations, "reuters")
    assert list(beside.header[3:]) == ["medium", "tail"]
    notes = " ".join(beside.notes)
    assert "head 30 (here 1)" in notes and "tail 29" not in notes
    for text in (to_markdown(table, bare=True), to_latex(table), to_html(table)):
        assert "hold other labels than those of one" in " ".join(text.split())
    table = document_table({"one": by_hand(), "two": by_hand(rows=3)})
    assert list(table.header) == ["", "all", "single-label", "multi-label (1)"]
    assert other_groups({}) == []


def test_empty_groups_have_a_dash() -> None:
    evaluations = {"run": empty_groups(), "same": empty_groups()}
    full, limits = "100.00 / 100.00", "100.00 [100.0, 100.0] / 100.00 [100.0, 100.0]"
    for intervals, cell in ((False, full), (True, limits)):
        row = label_table(evaluations, intervals=intervals).plain()[1]
        assert row == ["run", cell, NONE, cell, NONE]
        assert document_table(evaluations, intervals=intervals).plain()[1] == [
            "run",
            cell,
            cell,
            NONE,
        ]
    # A value next to dashes only is not marked as the best of its column.
    beside = label_table({"run": evaluations["run"], "other": by_hand()})
    assert not any(strong(row[2]) for row in beside.rows)
    assert any(strong(row[1]) for row in beside.rows)
    zero = "+0.00 [+0.00, +0.00] p 1.000"
    table = difference_table(compare_runs(evaluations), "run")
    assert table.plain()[1] == ["same", "micro-F1", zero, NONE, zero, NONE]
    plain = json.loads(render({"run": Run(evaluations["run"])}, "json"))["runs"]["run"]
    assert plain["head"]["macro_f1"] is None and "head" not in plain["intervals"]
    for name, dash in (("markdown", NONE), ("latex", r"\textendash{}")):
        text = render({"run": Run(evaluations["run"])}, name)
        assert text.count(dash) == 6 and "0.00 / 0.00" not in text.replace("100.00", "")


TABLE = Table(
    "A *title*",
    ("", "<b>", "c|d"),
    [("x\ny", (Strong("1.0"), " ± 0.1"), "2"), (Strong("_z_"), "3", "[red]\x1b")],
    ("A note & more.",),
    (1,),
    caveats=("A caveat.",),
)


def test_every_renderer_shows_the_same_table() -> None:
    assert to_markdown(TABLE) == (
        "## A \\*title\\*\n\n|  | &lt;b&gt; | c\\|d |\n|---|---|---|\n"
        "| x y | **1.0** ± 0.1 | 2 |\n| **\\_z\\_** | 3 | \\[red\\]\ufffd |\n\n"
        "A note &amp; more.\nA caveat.\n"
    )
    html = re.sub(r"</?bdi>", "", to_html(TABLE, swatches=1))
    assert '<th scope="row"><span class="swatch"' in html and "x y</th>" in html
    assert "<td><strong>1.0</strong> ± 0.1</td><td>2</td>" in html
    assert '<tr class="rule quiet"><th scope="row"><strong>_z_</strong></th>' in html
    assert "A note &amp; more." in html and "A caveat." in html and "&lt;b&gt;" in html
    latex = to_latex(TABLE)
    assert r"\begin{tabular}{lrr}" in latex and r"x y & \textbf{1.0} ± 0.1 & 2 \\" in latex
    assert latex.index("x y") < latex.rindex(r"\midrule") < latex.index(r"\_z\_")
    lines = [line.split() for line in terminal(TABLE).splitlines() if line.strip()]
    assert ["x", "y", "1.0", "±", "0.1", "2"] in lines and ["_z_", "3", "[red]\\x1b"] in lines


def test_markdown_shows_names_as_they_are() -> None:
    text = render(runs(), "markdown", "reuters")
    assert "<script>" not in text and "<i>" not in text and "third\\|run" in text
    widths = [len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line[:1] == "|"]
    assert set(widths) <= {5, 6, 7, 8, 9}
    assert escape_markdown("a_b _c_ *d* `e` [f](g) <h> & \\") == (
        "a_b \\_c\\_ \\*d\\* \\`e\\` \\[f\\](g) &lt;h&gt; &amp; \\\\"
    )


def test_json_holds_everything() -> None:
    plain = json.loads(render(runs(), "json", "reuters"))
    assert list(plain["runs"]) == list(runs())
    first = plain["runs"]["bce"]
    assert [row["name"] for row in first["labels"]] == list(EVIL)
    assert first["overall"]["micro_f1"] == runs()["bce"].evaluation.overall.micro_f1
    difference = plain["comparisons"]["third|run"]["tail"]["macro_f1"]
    assert set(difference) == {"value", "low", "high", "p"}
    assert plain["paper"]["labels"]["db"]["all"] == [90.62, 64.47]
    assert plain["compared_with"] == "bce"


# HTML draws figures for each page.
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n == "html" else ()) for n in FORMATS]
)
def test_every_format_takes_edge_cases(name: str) -> None:
    nothing = evaluated(sp.csr_matrix((0, 2)), np.zeros((0, 2)), [3, 1])
    one = evaluated([[1], [0]], [[1.0], [-1.0]], [1])
    for evaluation in (nothing, one, by_hand()):
        assert len(render({"only": Run(evaluation)}, name)) > 70
        assert len(render({"a": Run(evaluation), "b": Run(evaluation)}, name)) > 100
    with pytest.raises(InputError, match="at least one run"):
        render({}, name)
    with pytest.raises(UnknownNameError):
        render({"only": Run(one)}, name, "reuter")
    with pytest.raises(UnknownNameError, match="markdown"):
        render({"only": Run(one)}, "markdwn")


def test_one_line_and_shorten() -> None:
    assert one_line(" a\n\tb\x00\ud800 👩\u200d🔬 ") == "a b\ufffd\ufffd 👩\u200d🔬"
    assert shorten("abc  def", 7) == "abc def" and shorten("abc  defg", 7) == "abc de…"
    assert shorten("abc " * 10**6, 5) == "abc…" and shorten(" " * 100 + "a", 5) == "…"
