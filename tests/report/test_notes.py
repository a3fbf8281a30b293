"""What must be said with the figures: labels not judged, groups that differ, empty groups."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.evaluation import Evaluation, evaluate
from longtail.labels import LabelStats
from longtail.report import Run, document_table, label_table, render, to_markdown
from longtail.report.drawing import draw_figures
from longtail.report.markdown import escape_markdown
from longtail.report.markup import escape
from longtail.report.notes import not_judged, other_groups
from longtail.report.runs import compare_runs
from longtail.report.tables import NONE, difference_table
from longtail.thresholds import Thresholds

from .made import by_hand, judged, runs

FORMATS = ("markdown", "latex", "html")


def with_unknown(**unknown: int) -> Evaluation:
    return replace(runs()["bce"].evaluation, unknown_labels=unknown)


def test_labels_that_are_not_judged_are_told_once_for_runs_alike() -> None:
    found = {
        "a": with_unknown(x=2, y=1),
        "b": with_unknown(y=1, x=2),
        "c": with_unknown(z=1),
        "d": with_unknown(),
    }
    assert not_judged(found) == [
        "Not judged, as a, b were not trained on them: 3 assignments of 2 labels, such as x.",
        "Not judged, as c was not trained on it: 1 assignment of 1 label, such as z.",
    ]
    assert not_judged({"d": found["d"]}) == []


@pytest.mark.parametrize("name", FORMATS)
def test_labels_that_are_not_judged_stand_in_every_format(name: str) -> None:
    found = {"run": Run(with_unknown(gold=3, silver=2)), "other": Run(with_unknown())}
    sentence = "run was not trained on them: 5 assignments of 2 labels, such as gold."
    text = " ".join(render(found, name).split())
    # With labels and with documents, each with and without intervals.
    assert text.count(sentence) == 4
    assert sentence not in render({"other": found["other"]}, name)


def test_labels_that_are_not_judged_in_json_and_in_the_bare_table() -> None:
    evil = "<b>|x*"
    found = {"run": with_unknown(**{evil: 3})}
    plain = json.loads(render({name: Run(each) for name, each in found.items()}, "json"))
    assert plain["runs"]["run"]["unknown_labels"] == {evil: 3}
    bare = to_markdown(found)
    assert bare.splitlines()[-1].startswith("Not judged, as run was")
    assert escape_markdown(evil) in bare and evil not in bare
    assert to_markdown({"run": with_unknown()}).count("\n") == 3
    page = render({"run": Run(found["run"])}, "html")
    assert escape(evil) in page and evil not in page


def cut(cuts: tuple[float, float] | None = None, rows: slice = slice(None)) -> Evaluation:
    truth, scores = by_hand()
    stats = LabelStats.from_counts([90, 20, 2], 100, ["a", "b", "c"])
    at = Thresholds(np.zeros(3))
    return evaluate(truth[rows], scores[rows], at, stats, n_resamples=5, cuts=cuts)


def test_sizes_that_differ_between_runs_are_not_those_of_the_first() -> None:
    found = {"one": cut(), "two": cut((30, 40)), "three": cut((30, 40))}
    table = label_table(found)
    assert table.header == ("", "all (3)", "head (1)", "medium", "tail")
    sizes, groups = table.caveats
    assert sizes.startswith("Numbers of labels that differ between runs: medium 1 in one, 0 in two")
    assert sizes.endswith("and three; tail 1 in one, 2 in two and three.")
    assert groups.startswith("Head, medium and tail are by the counts of each run's training part")
    assert groups.endswith("those of two, three hold other labels than those of one.")
    assert label_table({"two": found["two"], "three": found["three"]}).caveats == ()
    # The paper's sizes must not stand there either.
    beside = label_table(found, "reuters")
    assert beside.header[3:] == ("medium", "tail")
    notes = " ".join(beside.notes)
    assert "head 30 (here 1)" in notes and "tail 29" not in notes
    for name in FORMATS:
        text = " ".join(render({n: Run(e) for n, e in found.items()}, name).split())
        assert "medium 1 in one, 0 in two and three" in text
    assert "medium 1 in one" in to_markdown(found)


def test_documents_that_differ_between_runs() -> None:
    found = {"one": cut(), "two": cut(rows=slice(3))}
    table = document_table(found)
    assert table.header == ("", "all", "single-label", "multi-label (1)")
    (sizes,) = table.caveats
    assert sizes.startswith("Numbers of documents that differ between runs: all 4 in one, 3 in two")
    assert sizes.endswith("; single-label 3 in one, 2 in two.")
    page = render({n: Run(e) for n, e in found.items()}, "html")
    assert "one</bdi>: 4 judged documents, 3 labels" in page
    assert "two</bdi>: 3 judged documents, 3 labels" in page


def test_groups_of_one_size_that_hold_other_labels() -> None:
    truth, scores = by_hand()
    one, two = (judged(truth, scores, c, ["a", "b", "c"]) for c in ([90, 20, 2], [2, 20, 90]))
    three = judged(truth[:, ::-1], scores[:, ::-1], [2, 20, 90], ["c", "b", "a"])
    assert label_table({"one": one, "two": two}).header[2] == "head (1)"
    assert "those of two hold other labels" in other_groups({"one": one, "two": two})[0]
    # Columns in another order are the same labels.
    assert other_groups({"one": one, "three": three}) == []
    assert other_groups({}) == other_groups({"one": one}) == []
    page = render({"one": Run(one), "two": Run(two)}, "html")
    assert "those of the first run that knows the label" in page
    assert "knows the label" not in render({"one": Run(one)}, "html")


def empty_groups() -> Evaluation:
    """All labels are medium, and no document has two labels."""
    truth = sp.csr_matrix(np.eye(3)[[0, 1, 2, 0]])
    stats = LabelStats.from_counts([5, 5, 5], 10)
    return evaluate(truth, truth.toarray() - 0.5, Thresholds(np.zeros(3)), stats, n_resamples=5)


def test_empty_groups_have_a_dash() -> None:
    found = {"run": empty_groups(), "same": empty_groups()}
    whole = "100.00 / 100.00"
    assert label_table(found).plain()[1] == ["run", whole, NONE, whole, NONE]
    assert document_table(found).plain()[1] == ["run", whole, whole, NONE]
    limits = "100.00 [100.0, 100.0] / 100.00 [100.0, 100.0]"
    assert label_table(found, intervals=True).plain()[1] == ["run", limits, NONE, limits, NONE]
    assert document_table(found, intervals=True).plain()[1] == ["run", limits, limits, NONE]
    # A figure beside dashes is not the best of its column: there is nothing to be better than.
    beside = label_table({"run": found["run"], "other": cut()})
    assert not any(span.strong for row in beside.rows for span in row[2])
    assert any(span.strong for row in beside.rows for span in row[1])
    compared = compare_runs(found)
    zero = "+0.00 [+0.00, +0.00] p 1.000"
    table = difference_table(compared, "run")
    assert table.plain()[1] == ["same", "micro-F1", zero, NONE, zero, NONE]
    table = difference_table(compared, "run", "documents")
    assert table.header == ("run", "measure", "all", "single-label")
    assert table.title == "Difference to run, by labels per document"


@pytest.mark.parametrize(("name", "dash"), [("markdown", NONE), ("latex", r"\textendash{}")])
def test_empty_groups_in_text(name: str, dash: str) -> None:
    text = render({"run": Run(empty_groups())}, name)
    assert text.count(dash) == 6 and "0.00 / 0.00 " not in text.replace("100.00", "")


def test_empty_groups_in_json_page_and_figures() -> None:
    found = {"run": Run(empty_groups(), scores=np.eye(3)[[0, 1, 2, 0]] - 0.5)}
    plain = json.loads(render(found, "json"))["runs"]["run"]
    assert plain["head"]["macro_f1"] is None and plain["head"]["n_labels"] == 0
    assert plain["by_labels_per_document"]["multi_label"]["micro_f1"] is None
    assert "head" not in plain["intervals"]
    page = render(found, "html")
    assert f"<td><bdi>{NONE}</bdi></td>" in page and "0.00 / 0.00" not in page.replace("100", "")
    bars: Any = draw_figures(found)["f1-by-group"]
    # Head and tail, in the panel of micro- and of macro-F1.
    assert bars.count(f">{NONE}<") == 4


def test_differences_of_documents_stand_in_every_format() -> None:
    found = {name: run.evaluation for name, run in runs().items()}
    table = difference_table(compare_runs(found), "bce", "documents")
    assert table.header[2:5] == ("all", "single-label", "multi-label") and len(table.rows) == 4
    value = found["third|run"].multi_label.micro_f1 - found["bce"].multi_label.micro_f1
    assert table.plain()[3][4].startswith(f"{100 * value:+.2f} [")
    for name in FORMATS:
        assert ", by labels per document" in render(runs(), name)
    compared = json.loads(render(runs(), "json"))["comparisons"]["third|run"]
    assert compared["multi_label"]["micro_f1"]["value"] == pytest.approx(value)
