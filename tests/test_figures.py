"""Figures: what they show against plain loops, and real files for ordinary and odd data."""

from __future__ import annotations

import itertools
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.corpora.newswire import Newswire
from longtail.data.textdata import TextData
from longtail.errors import InputError
from longtail.figures import plot_documents, plot_labels
from longtail.figures.drawing import label_edges, word_edges
from longtail.figures.label_map import (
    MAX_CELLS,
    binned_matrix,
    conditional_matrix,
    label_map,
    marked_pairs,
    rank_bins,
)
from longtail.statistics import linked_pairs

NAMES = tuple("abcdefg")
label_lists = st.lists(st.lists(st.sampled_from(NAMES), unique=True), min_size=1, max_size=20)


def from_labels(lists: list[list[str]], names: tuple[str, ...] | None = NAMES) -> TextData:
    return TextData.from_lists([f"text {k}" for k in range(len(lists))], lists, names)


def newswire(n_documents: int, n_labels: int, mean_labels: float) -> TextData:
    stories = Newswire(n_documents, n_labels, mean_labels)
    return TextData.from_lists(
        [story.text for story in stories], [story.labels for story in stories]
    )


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def p_given(lists: list[list[str]], i: str, j: str) -> float:
    """p(i|j) by counting documents; NaN for a label with itself or without documents."""
    with_j = [own for own in lists if j in own]
    return sum(i in own for own in with_j) / len(with_j) if with_j and i != j else float("nan")


@settings(deadline=None)
@given(label_lists)
def test_cells_hold_the_share_of_row_documents_that_carry_the_column(
    lists: list[list[str]],
) -> None:
    expected = [[p_given(lists, i, j) for i in NAMES] for j in NAMES]
    np.testing.assert_allclose(conditional_matrix(from_labels(lists).Y), expected)


@settings(deadline=None)
@given(label_lists, st.sets(st.integers(1, len(NAMES) - 1)))
def test_bins_hold_the_mean_of_their_cells(lists: list[list[str]], inner: set[int]) -> None:
    edges = np.array([0, *sorted(inner), len(NAMES)])
    bins = [NAMES[start:stop] for start, stop in itertools.pairwise(edges)]
    expected = np.full((len(bins), len(bins)), np.nan)
    for row, column in itertools.product(range(len(bins)), repeat=2):
        cells = [p_given(lists, i, j) for j in bins[row] for i in bins[column]]
        cells = [cell for cell in cells if not np.isnan(cell)]
        if cells:
            expected[row, column] = np.mean(cells)
    found = binned_matrix(from_labels(lists).Y.astype(np.float64), edges)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("n", [3, 6, 10, 49, 98])
def test_what_rounding_leaves_of_zero_is_zero(n: int) -> None:
    # n times 1 / n is not 1 in binary; under a fourth root even 1e-16 would show.
    data = from_labels([["a"], ["b"], ["c"]] * n, ("a", "b", "c"))
    assert binned_matrix(data.Y.astype(np.float64), np.array([0, 2, 3])).tolist()[0] == [0, 0]


@settings(deadline=None)
@given(label_lists)
def test_labels_are_ranked_by_count_whether_binned_or_not(lists: list[list[str]]) -> None:
    data = from_labels(lists)
    counts = np.asarray(data.Y.sum(axis=0)).ravel()
    single = label_map(data)
    assert single.counts.tolist() == sorted(counts, reverse=True)
    assert counts[single.order].tolist() == single.counts.tolist()
    assert not single.binned and single.p.shape == (7, 7)
    names = [NAMES[k] for k in single.order]
    expected = [[p_given(lists, i, j) for i in names] for j in names]
    np.testing.assert_allclose(single.p, expected)
    binned = label_map(data, max_cells=3, n_bins=3)
    assert binned.binned and binned.order.tolist() == single.order.tolist()
    assert binned.p.shape == (len(binned.edges) - 1,) * 2


@settings(deadline=None)
@given(st.integers(1, 2_000_000), st.integers(1, 100))
def test_bins_of_ranks_widen_and_leave_no_label_out(n_labels: int, n_bins: int) -> None:
    edges = rank_bins(n_labels, n_bins)
    assert (edges[0], edges[-1]) == (0, n_labels)
    assert len(edges) <= n_bins + 1
    widths = np.diff(edges)
    assert widths.min() >= 1
    # Rounding to whole ranks may take one back.
    assert (np.diff(widths) >= -1).all()


def test_the_large_map_agrees_with_the_small_one() -> None:
    data = newswire(1500, 450, 4.0)
    found = label_map(data)
    assert found.binned and len(data.label_names) > MAX_CELLS
    cells = label_map(data, max_cells=10_000)
    for (row, (a, b)), (column, (c, d)) in itertools.product(
        enumerate(itertools.pairwise(found.edges)), repeat=2
    ):
        block = cells.p[a:b, c:d]
        block = block[~np.isnan(block)]
        if block.size:
            assert found.p[row, column] == pytest.approx(block.mean(), abs=1e-12)
        else:
            assert np.isnan(found.p[row, column])


def test_the_tail_has_its_share_of_the_marked_pairs() -> None:
    lists = [["big", "large"]] * 50 + [["big"]] * 50 + [["metal", "nickel"]] * 2 + [["metal"]] * 8
    # A second link of large is not told.
    lists[:20] = [["big", "large", "third"]] * 20
    lists += [["third"]] * 40
    lists += [["rare", "once"]] + [[]] * 100
    data = from_labels(lists, None)
    found = [(group, pair.b, pair.a) for group, pair in marked_pairs(data, (5, 40))]
    assert found == [("head", "large", "big"), ("tail", "nickel", "metal")]
    assert ("third", "large") in {
        (pair.a, pair.b) for pair in linked_pairs(data.Y, data.label_names)
    }


@settings(deadline=None)
@given(st.lists(st.integers(0, 3000), min_size=1, max_size=30))
def test_no_document_falls_between_the_bins(numbers: list[int]) -> None:
    values = np.array(numbers)
    assert np.histogram(values, label_edges(values))[0].sum() == len(numbers)
    edges = word_edges(values)
    assert np.histogram(values, edges)[0].sum() == sum(number > 0 for number in numbers)
    # Every bin holds a whole number, and none lies on an edge.
    assert (np.diff(edges) >= 1).all() and (edges % 1 == 0.5).all()


@pytest.mark.parametrize(
    ("n_documents", "n_labels", "mean_labels"), [(800, 90, 1.5), (800, 300, 3.0), (800, 700, 5.0)]
)
def test_label_figures_of_all_sizes(
    tmp_path: Path, n_documents: int, n_labels: int, mean_labels: float
) -> None:
    data = newswire(n_documents, n_labels, mean_labels)
    plot_labels(data, tmp_path / "labels.png", title="a newswire")
    width, height = png_size(tmp_path / "labels.png")
    assert width == 1500 and 1400 < height < 1700
    assert (tmp_path / "labels.png").stat().st_size > 20_000


@pytest.mark.parametrize("suffix", [".svg", ".pdf", ".PNG"])
def test_the_suffix_chooses_the_format_and_the_same_data_gives_the_same_bytes(
    tmp_path: Path, suffix: str
) -> None:
    data = newswire(300, 40, 2.0)
    starts = {".svg": b"<?xml", ".pdf": b"%PDF", ".PNG": b"\x89PNG"}
    for plot, given_ in ((plot_labels, data), (plot_documents, {"train": data})):
        found = []
        for name in ("one", "two"):
            plot(given_, tmp_path / (name + suffix))  # type: ignore[arg-type]
            found.append((tmp_path / (name + suffix)).read_bytes())
        assert found[0].startswith(starts[suffix])
        assert found[0] == found[1]


ODD = {
    "one label": from_labels([["a"], ["a"]], ("a",)),
    "one document": from_labels([["a", "b"]], ("a", "b")),
    "labels without documents": from_labels([["a"], ["b"]]),
    "documents without labels": from_labels([[], [], ["a", "b"]], ("a", "b")),
    "no label is used": from_labels([[], []]),
    "no document": from_labels([]),
    "nobody shares": from_labels([[name] for name in NAMES]),
    "nobody of many shares": from_labels([[f"l{k}"] for k in range(450)], None),
    "many and none is used": from_labels([[]], tuple(f"l{k}" for k in range(450))),
    "odd names": from_labels(
        [["$x_{$", "[b]", "a\nb\tc"]] * 3 + [["日本語", "\\frac", "%"], ["x" * 300, "", "😀"]], None
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


def test_cuts_are_drawn_as_given(tmp_path: Path) -> None:
    data = newswire(300, 40, 2.0)
    plot_labels(data, tmp_path / "labels.svg", cuts=(3, 50))
    plot_labels(data, tmp_path / "default.svg")
    assert (tmp_path / "labels.svg").read_bytes() != (tmp_path / "default.svg").read_bytes()
    with pytest.raises(InputError, match="must not exceed"):
        plot_labels(data, tmp_path / "x.png", cuts=(9, 3))


@pytest.mark.parametrize("name", ["figure", "figure.gif", "figure.png.gz", ".png"])
def test_an_unknown_format_is_refused_before_any_work(tmp_path: Path, name: str) -> None:
    data = from_labels([["a"]])
    with pytest.raises(InputError, match=r"ends in \.png, \.svg, \.pdf"):
        plot_labels(data, tmp_path / name)
    with pytest.raises(InputError, match=r"ends in \.png, \.svg, \.pdf"):
        plot_documents({"train": data}, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_or_drawn_is_refused(tmp_path: Path) -> None:
    data = from_labels([["a"]])
    (tmp_path / "taken.png").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write.*\.png, \.svg, \.pdf"):
        plot_labels(data, tmp_path / "file" / "folder" / "x.png")
    with pytest.raises(InputError, match="is a folder"):
        plot_documents({"train": data}, tmp_path / "taken.png")
    with pytest.raises(InputError, match="no labels to draw"):
        plot_labels(from_labels([[]], None), tmp_path / "x.png")
    with pytest.raises(InputError, match="no documents to draw"):
        plot_documents({"train": data[:0]}, tmp_path / "x.png")


def test_drawing_leaves_pyplot_alone(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "import longtail.figures as figures\n"
        "assert 'matplotlib' not in sys.modules\n"
        "from longtail.data.textdata import TextData\n"
        "data = TextData.from_lists(['x'], [['a']])\n"
        f"figures.plot_labels(data, {str(tmp_path / 'x.png')!r})\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
