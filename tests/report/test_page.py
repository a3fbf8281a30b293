"""The HTML page: parsed, escaped, self-contained, with the right numbers."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.report import Run, build_page
from longtail.report import page as page_module
from longtail.report.jinja import N_COLOURS
from longtail.report.table import NONE, one_line

from .cases import EVIL, by_hand, empty_groups, evaluated, runs

VOID = {"meta", "input", "br", "img", "link", "hr"}


class Parsed(HTMLParser):
    """Check that tags are balanced, and collect what the tests need."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.scripts: dict[str, str] = {}
        self.policy = ""
        self.rows: list[list[str]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        attributes = {name: value or "" for name, value in attrs}
        self.attributes += [(tag, name, value) for name, value in attributes.items()]
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.now = attributes.get("type", "")
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[self.now] = data
        elif self.open and self.open[-1] != "style":
            self.text.append(data)
            if "tr" in self.open:
                self.rows[-1][-1] += data


@cache
def page() -> str:
    return build_page(runs(), "reuters", title="</title><script>alert(3)</script>")


@cache
def parsed() -> Parsed:
    return Parsed(page())


def test_no_name_or_text_becomes_a_tag() -> None:
    result = parsed()
    assert "img" not in result.tags and "i" not in result.tags and "b" not in result.tags
    assert result.tags.count("script") == 2 and result.tags.count("title") == 1
    assert not any(name.startswith("on") for _, name, _ in result.attributes)
    shown = "".join(result.text)
    for name in EVIL:
        assert one_line(name) in shown
    assert "<b>text" in shown and "<id " in shown
    page().encode("utf-8")


def test_nothing_is_loaded_from_anywhere() -> None:
    result = parsed()
    assert not re.search(r"https?:|//www|@import|\burl\((?!#)", page())
    for _, name, value in result.attributes:
        if name in ("src", "href", "srcset", "action", "data", "xlink:href"):
            assert value.startswith("#"), (name, value)
    assert not {"link", "iframe", "object", "embed", "base"} & set(result.tags)


def test_the_policy_allows_our_script_alone() -> None:
    script = parsed().scripts[""]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in parsed().policy
    assert parsed().policy.startswith("default-src 'none'")


def test_ids_are_unique_and_references_meet_them() -> None:
    ids = [value for _, name, value in parsed().attributes if name == "id"]
    assert len(ids) == len(set(ids))
    wanted = set(re.findall(r'(?:href="|url\()#([^")]+)', page()))
    assert wanted <= set(ids)


def test_label_rows_hold_the_evaluations_numbers() -> None:
    result = {name: run.evaluation for name, run in runs().items()}
    rows = [row for row in parsed().rows if len(row) == 7 and row[1] in ("head", "medium", "tail")]
    assert len(rows) == 9
    for k, row in enumerate(rows):
        table = result["bce"].labels
        place = [one_line(name) for name in table.names].index(row[0])
        assert place == k  # by training counts, which fall
        assert row[2:4] == [str(int(table.train_count[k])), str(int(table.actual[k]))]
        assert row[4:] == [f"{100 * e.labels.f1[k]:.1f}" for e in result.values()]
    data = json.loads(parsed().scripts["application/json"])
    for measure in ("f1", "precision", "recall", "predicted"):
        expected = np.array([getattr(e.labels, measure) for e in result.values()]).T
        np.testing.assert_allclose(np.array(data[measure]), expected, atol=1e-4)


def test_figures_are_inline_and_take_the_pages_colours() -> None:
    pictures = re.findall(r"<svg.*?</svg>", page(), flags=re.DOTALL)
    assert len(pictures) == 4
    for picture in pictures:
        assert "currentColor" in picture and "<metadata" not in picture and "<style" not in picture
        assert set(re.findall(r"#[0-9a-f]{6}\b", picture)) <= {"#ffffff"}, picture[:80]
    light, dark = page().split("prefers-color-scheme: dark")
    for k in range(N_COLOURS):
        assert f"--run-{k}: #" in light and f"--run-{k}: #" in dark


def test_dashes_caveats_and_whose_groups_are_shown() -> None:
    dashes = build_page({"run": Run(empty_groups())})
    assert dashes.count(f"<bdi>{NONE}<") == 6 and "0.00 / 0.00" not in dashes.replace("100.00", "")
    one, two = by_hand(), replace(by_hand(cuts=(30, 40)), unknown_labels={"z": 1})
    page = " ".join(build_page({"one": Run(one), "two": Run(two)}).split())
    assert page.count("two was not trained on it: 1 assignment of 1 label, such as z.") == 4
    assert "hold other labels than those of one" in page and "knows the label" in page
    assert "knows the label" not in dashes


def test_the_same_runs_give_the_same_page() -> None:
    assert build_page(runs(), "reuters", title="</title><script>alert(3)</script>") == page()


def test_many_labels_are_cut_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "MOST_ROWS", 4)
    short = Parsed(build_page({"bce": runs()["bce"]}))
    assert "4 of 9 labels with the most training documents" in "".join(short.text)
    assert [len(v) for v in json.loads(short.scripts["application/json"]).values()] == [4] * 4


@pytest.mark.parametrize("n_runs", [1, 19])
def test_any_number_of_runs(n_runs: int) -> None:
    truth = sp.csr_matrix([[1.0, 0], [0, 1], [1, 1]])
    scores = truth.toarray() - 0.5
    result = evaluated(truth, scores, [0, 1], ["</script>", "<!--&"])
    page = build_page({f"run {k}": Run(result, scores=scores) for k in range(n_runs)})
    Parsed(page)
    assert f"run {n_runs - 1}<" in page and f"run {n_runs}<" not in page
