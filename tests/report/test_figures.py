"""Figures: files from ordinary and odd data, and which figures a page has."""

from __future__ import annotations

import struct
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.corpora.newswire import load
from longtail.data.textdata import TextData
from longtail.errors import InputError
from longtail.evaluation import evaluate
from longtail.labels import LabelStats
from longtail.report import Run, plot_documents, plot_labels
from longtail.report.figures.corpus import _draw_colour_bar, _draw_map, bin_edges
from longtail.report.figures.drawing import new_figure
from longtail.report.figures.evaluation import draw_figures
from longtail.thresholds import Thresholds

from .cases import from_labels, runs

NAMES = tuple("abcdefg")


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    return width, height


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=30))
def test_no_document_falls_between_the_bins(numbers: list[int]) -> None:
    values = np.array(numbers)
    edges = bin_edges(values)
    assert np.histogram(values, edges)[0].sum() == len(numbers)
    # Each bin contains an integer, and no integer lies on an edge.
    assert (np.diff(edges) >= 1).all() and (edges % 1 == 0.5).all() and len(edges) <= 52


@pytest.mark.parametrize(("n_labels", "mean_labels"), [(90, 1.5), (300, 3.0), (700, 5.0)])
def test_label_figures_of_all_sizes(tmp_path: Path, n_labels: int, mean_labels: float) -> None:
    data = load(1000, n_labels, mean_labels)["train"]
    plot_labels(data, tmp_path / "labels.png", title="a newswire")
    width, height = png_size(tmp_path / "labels.png")
    assert width == 1500 and 1400 < height < 1700
    assert (tmp_path / "labels.png").stat().st_size > 20_000


@pytest.mark.parametrize("binned", [False, True])
@pytest.mark.parametrize("strongest", [1.0, 0.1, 1e-3])
def test_ticks_of_the_colour_bar_do_not_overlap(binned: bool, strongest: float) -> None:
    figure = new_figure(2, 4)
    heat, bar = figure.subplots(1, 2)
    _draw_map(heat, np.array([[strongest, 0.0]] * 2), np.array([1, 2, 3]), binned)
    _draw_colour_bar(bar, heat, binned)
    places = np.sort(heat.collections[0].norm(bar.get_yticks()))
    assert len(places) > 1 and np.diff(places).min() > 0.08 and places[-1] == 1


@pytest.mark.parametrize("suffix", [".svg", ".pdf", ".PNG"])
def test_the_suffix_chooses_the_format_and_the_same_data_gives_the_same_bytes(
    tmp_path: Path, suffix: str
) -> None:
    data, path = load(150, 20, 2.0)["train"], tmp_path / ("figure" + suffix)
    starts = {".svg": b"<?xml", ".pdf": b"%PDF", ".PNG": b"\x89PNG"}
    for plot in (partial(plot_labels, data), partial(plot_documents, {"train": data})):
        plot(path)
        first = path.read_bytes()
        plot(path)
        assert first.startswith(starts[suffix]) and first == path.read_bytes()


ODD = {
    "one label": from_labels([["a"], ["a"]], ("a",)),
    "one document": from_labels([["a", "b"]], ("a", "b")),
    "labels without documents": from_labels([["a"], ["b"]], NAMES),
    "documents without labels": from_labels([[], [], ["a", "b"]], ("a", "b")),
    "no label is used": from_labels([[], []], NAMES),
    "no document": from_labels([], NAMES),
    "nobody shares": from_labels([[name] for name in NAMES], NAMES),
    "nobody of many shares": from_labels([[f"l{k}"] for k in range(450)]),
    "many and none is used": from_labels([[]], tuple(f"l{k}" for k in range(450))),
    "odd names": from_labels(
        [["$x_{$", "[b]", "a\nb\tc"]] * 3 + [["日本語", "\\frac", "%"], ["x" * 300, "", "😀"]]
    ),
    "no text": TextData.from_lists(["", " "], [["a"], []]),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_data_is_drawn_without_a_warning(tmp_path: Path, name: str) -> None:
    data = ODD[name]
    plot_labels(data, tmp_path / "labels.png", title="$\\frac{$ [x]\n" + "long " * 50)
    assert png_size(tmp_path / "labels.png")[0] == 1500
    if len(data):
        parts = {"train": data, "$test_{$": data[:1], "empty": data[:0]}
        plot_documents(parts, tmp_path / "documents.png", title="$x_{$")
        assert png_size(tmp_path / "documents.png") == (1500, 630)


@pytest.mark.parametrize("name", ["figure", "figure.gif", "figure.png.gz", ".png"])
def test_an_unknown_format_is_refused_before_any_work(tmp_path: Path, name: str) -> None:
    data = from_labels([["a"]])
    for plot in (partial(plot_labels, data), partial(plot_documents, {"train": data})):
        with pytest.raises(InputError, match=r"ends in \.png, \.svg, \.pdf"):
            plot(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_or_drawn_is_refused(tmp_path: Path) -> None:
    data = from_labels([["a"]])
    with pytest.raises(InputError, match="no labels to draw"):
        plot_labels(from_labels([[]]), tmp_path / "x.png")
    with pytest.raises(InputError, match="in ascending order"):
        plot_labels(data, tmp_path / "x.png", cuts=(9, 3))
    with pytest.raises(InputError, match="no documents to draw"):
        plot_documents({"train": data[:0]}, tmp_path / "x.png")


def test_figures_of_the_page_leave_out_what_is_not_known() -> None:
    always = {"f1-by-count", "thresholds"}
    assert set(draw_figures(runs())) == always | {"precision-recall", "reliability"}
    truth = np.eye(3)
    stats = LabelStats.from_counts([5, 3, 1], 10)
    at = Thresholds(np.array([0.5, np.inf, 0.5]), scale="margin")
    evaluation = evaluate(truth, truth, at, stats, n_resamples=5)
    assert set(draw_figures({"margins": Run(evaluation)})) == always
