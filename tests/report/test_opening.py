"""The opening of a report: verdict, data, settings of the runs; and the CSV of labels."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

from longtail.analysis import compare_runs
from longtail.report import Run, render, summarize
from longtail.report.opening import Opening, opening

from .cases import EVIL, by_hand, empty_groups, evaluated, runs

RNG = np.random.RandomState(0)
TRUTH = (RNG.rand(200, 6) < 0.3).astype(float)
COUNTS = [60, 50, 40, 30, 2, 1]


def labelled(wrong: dict[int, float]) -> Run:
    """A run with wrong decisions on a share of the documents, given per label."""
    scores = 2 * TRUTH - 1
    for label, share in wrong.items():
        scores[: int(200 * share), label] *= -1
    return Run(evaluated(TRUTH, scores, COUNTS))


def begin(runs: dict[str, Run], source: str | None = None) -> Opening:
    return opening(runs, compare_runs({k: run.evaluation for k, run in runs.items()}), source)


def test_the_verdict_of_two_runs() -> None:
    bad, good = labelled({4: 0.5, 5: 0.5}), labelled({5: 0.1})
    for pair in ({"bad": bad, "good": good}, {"good": good, "bad": bad}):
        headline, micro, macro = begin(pair).verdict
        assert headline == "good is significantly better than bad in micro-F1 and macro-F1."
        ahead = 100 * (good.evaluation.overall.macro_f1 - bad.evaluation.overall.macro_f1)
        assert f"{ahead:.2f} points ahead of bad (significant, p 0.049)" in macro
        assert "the tail labels decide (+" in macro and "the tail labels decide" in micro
    third = {"zero": labelled(dict.fromkeys(range(6), 0.9)), "bad": bad, "good": good}
    assert begin(third).verdict[0] == headline


def test_runs_that_do_not_differ_or_cannot_be_compared() -> None:
    same = begin({"a": labelled({}), "b": labelled({})}).verdict
    assert same[0] == "No run is significantly better over all labels."
    assert same[1] == "a and b have the same micro-F1, 100.00."
    different = {"a": Run(by_hand()), "b": labelled({0: 0.5})}
    headline, micro, _ = begin(different).verdict
    assert headline == "b and a cannot be compared: they know different labels."
    assert micro.endswith(", of b.") and "Difference to" not in render(different)


def test_the_verdict_of_one_run() -> None:
    first, weak = begin({"run": labelled({4: 1.0, 5: 0.2})}).verdict
    assert first.startswith("run reaches micro-F1 ") and "(precision " in first
    assert weak.startswith("It is weakest on the tail labels: macro-F1 ") and "head: 100" in weak
    silent = evaluated(TRUTH, np.full(TRUTH.shape, -1.0), COUNTS, ["a", "b", "c", "d", "e", "f"])
    counts = sorted(zip(-TRUTH.sum(axis=0).astype(int), "abcdef", strict=True))[:3]
    named = ", ".join(f"{name} ({-count})" for count, name in counts)
    assert begin({"run": Run(silent)}).verdict[2] == (
        f"Of the 6 labels in these documents, 6 are never predicted, such as {named}."
    )
    one = evaluated(TRUTH, np.where(np.arange(6) == 0, -1.0, 1.0) + 0 * TRUTH, COUNTS)
    assert "1 is never predicted: " in begin({"run": Run(one)}).verdict[-1]
    # With only one group of labels, none is the weakest.
    assert len(begin({"run": Run(empty_groups())}).verdict) == 1
    nothing = evaluated(np.zeros((0, 6)), np.zeros((0, 6)), COUNTS)
    assert begin({"run": Run(nothing)}).verdict == ["run: there is nothing to evaluate."]


def test_settings_that_all_share_stand_above_and_the_others_in_columns() -> None:
    one = Run(by_hand(), settings={"model": "bag", "loss": "db", "C": "3"})
    two = Run(by_hand(), settings={"model": "bag", "loss": "bce"})
    result = begin({"one": one, "two": two}, "tickets.csv, test part")
    assert result.facts == [
        "Data: tickets.csv, test part. 4 evaluated documents, 3 labels: 1 head, 1 medium, 1 tail.",
        "All runs: model: bag.",
    ]
    (table,) = result.settings
    assert table.plain() == [["", "loss", "C"], ["one", "db", "3"], ["two", "bce", "default"]]
    assert begin({"one": one}).facts[1] == "Settings: model: bag; loss: db; C: 3."
    assert begin({"one": one}).settings == []
    # Runs of different sizes have one line each.
    assert begin({"one": one, "less": Run(by_hand(rows=3))}).facts[1].startswith("less: 3 eval")


@pytest.mark.slow  # each page draws its figures
def test_every_format_begins_with_the_verdict() -> None:
    expected = begin(runs()).verdict[0]
    page = render(runs(), "html", source="<b>wire</b>, test part")
    assert "significantly better" in expected
    for text in (render(runs()), page, summarize(runs())):
        assert "significantly better" in text.replace("\\", "").split("By frequency")[0]
    assert json.loads(render(runs(), "json"))["verdict"][0] == expected
    assert "Data: &lt;b&gt;wire" in page and page.index("Data:") < page.index('id="tables"')


def test_the_csv_has_every_label_and_run() -> None:
    rows = list(csv.DictReader(io.StringIO(render(runs(), "csv"))))
    assert [row["label"] for row in rows] == list(EVIL)
    for name, run in runs().items():
        table = run.evaluation.labels
        for measure in ("precision", "recall", "f1", "predicted"):
            values = [float(row[f"{name} {measure}"]) for row in rows]
            np.testing.assert_allclose(values, getattr(table, measure), atol=1e-6)
    assert [int(row["train_count"]) for row in rows] == table.train_count.tolist()
    (first, *_) = csv.DictReader(io.StringIO(render({"run": Run(by_hand(at=0.5))}, "csv")))
    assert (first["label"], first["threshold"], first["recall"]) == ("a", "0.5", "1")
