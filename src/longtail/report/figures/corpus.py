"""Figures of a corpus: the long tail and which labels co-occur; labels and words per document."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from longtail.analysis.measures import (
    IntArray,
    LinkedPair,
    conditional_means,
    count_labels,
    linked_pairs,
    rank_bins,
)
from longtail.data.textdata import TextData
from longtail.errors import InputError
from longtail.labels import FloatArray, group_cuts, label_groups
from longtail.report.figures.drawing import GROUP_COLOURS, check_target, new_figure, save_figure
from longtail.report.table import plural, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PART_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
NEUTRAL = "#d9d9d9"
MOST_BINS, N_PAIRS = 50, 12
# Beyond MAX_CELLS, a cell per label would be smaller than a dot of the printed figure.
MAX_CELLS, N_BINS = 400, 80
Cuts = tuple[float, float]
# Inches: width of the figure, side of the map, margin on its left, panel above it, gap.
WIDTH, MAP, LEFT, PANEL, GAP = 10.0, 7.0, 1.25, 2.0, 0.15
RIGHT = LEFT + MAP + GAP


def plot_labels(
    data: TextData, path: str | Path, *, title: str | None = None, cuts: Cuts | None = None
) -> None:
    """Draw documents per label and a map of co-occurring labels to a file.

    Up to 400 labels have a cell each; more are binned by rank, in bins that widen towards the tail.
    Names in a script that matplotlib's font lacks need another `rcParams["font.family"]`.

    Args:
        data: the documents, usually the training part.
        path: file name ending in .png, .svg or .pdf.
        title: default: the numbers of documents and labels.
        cuts: tail below the first count, head above the second; default: terciles.
    """
    target = check_target(path)
    if not data.label_names:
        raise InputError("there are no labels to draw. Check that the documents have labels.")
    counts = count_labels(data.Y)
    order = np.argsort(-counts, kind="stable")
    binned = counts.size > MAX_CELLS
    bins = rank_bins(counts.size, N_BINS) if binned else np.arange(counts.size + 1)
    bottom = 0.65 if binned else 1.25
    height = bottom + MAP + GAP + PANEL + 0.5
    figure = new_figure(WIDTH, height)

    def axes_at(x: float, y: float, width: float, tall: float) -> Axes:
        return figure.add_axes((x / WIDTH, y / height, width / WIDTH, tall / height))

    sizes = f"{plural(len(data), 'document')}, {plural(len(data.label_names), 'label')}"
    heading = shorten(title or sizes, 70)
    figure.text(LEFT / WIDTH, 1 - 0.3 / height, heading, fontsize=13, parse_math=False)
    heat, top = axes_at(LEFT, bottom, MAP, MAP), axes_at(LEFT, bottom + MAP + GAP, MAP, PANEL)
    _draw_counts(top, counts[order], cuts)
    _draw_map(heat, conditional_means(data.Y[:, order], bins), bins + 0.5, binned)
    top.set_xscale(heat.get_xscale())
    top.set_xlim(heat.get_xlim())
    _name_labels(heat, [shorten(data.label_names[k], 16) for k in order], binned)
    # Fixed positions, as long names would push them off the page.
    heat.xaxis.set_label_coords(0.5, -(bottom - 0.2) / MAP)
    heat.yaxis.set_label_coords(-(LEFT - 0.2) / MAP, 0.5)
    _draw_colour_bar(axes_at(RIGHT, bottom + MAP - 1.8, 0.18, 1.8), heat, binned)
    pairs = linked_pairs(data.Y, data.label_names, N_PAIRS)
    _list_pairs(figure, pairs, bottom + MAP - 2.15)
    save_figure(figure, target)


def _draw_counts(axes: Axes, counts: FloatArray, cuts: Cuts | None) -> None:
    """Draw the sorted counts as filled steps coloured by group, with a legend of the groups."""
    from matplotlib.patches import Patch

    low, high = group_cuts(counts) if cuts is None else cuts
    bounds = (f"more than {high:.4g}", f"{low:.4g} to {high:.4g}", f"fewer than {low:.4g}")
    edges, legend = np.arange(counts.size + 1) + 0.5, []
    groups = label_groups(counts, (low, high))
    for (group, mask), bound in zip(groups.items(), bounds, strict=True):
        colour, size = GROUP_COLOURS[group], plural(int(mask.sum()), "label")
        legend.append(Patch(color=colour, label=f"{group}: {size}\n{bound}\ndocuments"))
        if mask.any():
            # Counts are sorted, so the ranks of a group are contiguous.
            first, last = np.flatnonzero(mask)[[0, -1]]
            steps = np.maximum(counts[first : last + 1], 0.5), edges[first : last + 2]
            axes.stairs(*steps, baseline=0.5, fill=True, color=colour)
    axes.set(yscale="log", ylim=(0.5, max(10.0, 1.5 * float(counts.max()))), ylabel="documents")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")
    axes.tick_params(axis="x", which="both", length=0, labelbottom=False)
    axes.spines[["top", "right"]].set_visible(False)
    style = dict(frameon=False, fontsize=8, handlelength=1.2, labelspacing=0.8)
    axes.legend(handles=legend, loc="upper left", bbox_to_anchor=(1, 1.03), **style)


def _draw_map(axes: Axes, p: FloatArray, edges: Any, binned: bool) -> None:
    """Draw the cells of p(i|j): white for 0, grey where undefined."""
    from matplotlib import colormaps
    from matplotlib.colors import PowerNorm

    strongest = float(np.nan_to_num(p).max()) if binned else 1.0
    # Most values are small; the paper also takes the fourth root for its large corpus.
    norm = PowerNorm(0.25 if binned else 0.5, 1e-12, strongest or 1.0)
    colours = colormaps["magma_r"].with_extremes(bad=NEUTRAL, under="white")
    cells = np.ma.masked_invalid(p)
    axes.pcolormesh(edges, edges, cells, cmap=colours, norm=norm, rasterized=True)
    if binned:
        axes.set(xscale="log", yscale="log")
    axes.set(xlim=(edges[0], edges[-1]), ylim=(edges[-1], edges[0]))


def _name_labels(axes: Axes, names: list[str], binned: bool) -> None:
    """Name as many labels as fit: all, every n-th, or the first of the head if binned."""
    if binned:
        powers = [10**k for k in range(1, 8) if 10**k <= len(names)]
        axes.set_xticks([1, *powers], [str(rank) for rank in (1, *powers)])
        shown = [*names[:6], *map(str, powers)]
        axes.set_yticks([*range(1, 7), *powers], shown, fontsize=7.5, parse_math=False)
        axes.tick_params(which="minor", length=0)
        axes.set(xlabel="label i, by rank (bins widen towards the tail)", ylabel="label j, by rank")
        return
    cell = MAP * 72 / len(names)
    # 5 points is the smallest legible size; for smaller cells, skip names.
    every = 1 if cell >= 5 else int(np.ceil(7 / cell))
    size = float(np.clip(0.93 * cell * every, 4.7, 7))
    ranks, shown = range(1, len(names) + 1, every), names[::every]
    axes.set_xticks(ranks, shown, rotation=90, fontsize=size, parse_math=False)
    axes.set_yticks(ranks, shown, fontsize=size, parse_math=False)
    axes.set(xlabel="label i", ylabel="label j")


def _draw_colour_bar(axes: Axes, heat: Axes, binned: bool) -> None:
    mesh = heat.collections[0]
    strongest = float(mesh.get_clim()[1] or 1)
    # Leave out ticks that would overlap with a higher one: the labels are 6 % of the bar high.
    ticks = [strongest]
    for tick in (0.5, 0.1, 0.01, 1e-3, 1e-4):
        higher, lower = np.asarray(mesh.norm(np.array([ticks[-1], tick])))
        if higher - lower > 0.08:
            ticks.append(tick)
    bar = heat.figure.colorbar(mesh, cax=axes)
    bar.set_ticks(ticks, labels=[f"{tick:.2g}" for tick in ticks], fontsize=8)
    bar.ax.minorticks_off()
    scale = "mean p(i | j) of a bin" if binned else "p(i | j)"
    bar.set_label(f"{scale}\n(root scale; white: none)", fontsize=8.5)


def _list_pairs(figure: Figure, pairs: tuple[LinkedPair, ...], top: float) -> None:
    """List the most linked pairs beside the map, from `top` inches downwards."""

    def write(text: str, y: float, **style: Any) -> None:
        settings: dict[str, Any] = {"fontsize": 7.5, "va": "top", "parse_math": False} | style
        figure.text(RIGHT / WIDTH, y / figure.get_figheight(), text, **settings)

    if not pairs:
        write("No two labels share\ndocuments more than by chance.", top)
        return
    write("Most linked labels", top, fontsize=9, weight="bold")
    write("j → i, and p(i | j)", top - 0.18)
    for k, pair in enumerate(pairs):
        a, b = shorten(pair.a, 16), shorten(pair.b, 20)
        write(f"{b}\n→ {a}  {pair.p_a_given_b:.2f}", top - 0.42 - 0.34 * k)


def plot_documents(
    parts: Mapping[str, TextData], path: str | Path, *, title: str | None = None
) -> None:
    """Draw labels per document and words per document to a file, one line per part."""
    target = check_target(path)
    filled = {part: data for part, data in parts.items() if len(data)}
    if not filled:
        raise InputError("there are no documents to draw: every part is empty.")
    figure = new_figure(WIDTH, 4.2)
    panels = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.08, right=0.98, top=0.86, bottom=0.14, wspace=0.22)
    if title:
        figure.suptitle(shorten(title, 70), x=0.08, ha="left", fontsize=13, parse_math=False)
    labels = [np.diff(data.Y.indptr) for data in filled.values()]
    words = [np.array([len(text.split()) for text in data.texts]) for data in filled.values()]
    for axes, values, unit in zip(panels, (labels, words), ("labels", "words"), strict=True):
        edges = bin_edges(np.concatenate(values))
        for part, sizes, colour in zip(filled, values, cycle(PART_COLOURS), strict=False):
            share = 100 * np.histogram(sizes, edges)[0] / sizes.size
            label = shorten(f"{part}: {plural(sizes.size, 'document')}", 50).replace("$", r"\$")
            axes.stairs(share, edges, color=colour, linewidth=1.6, label=label)
        if edges[-1] > MOST_BINS:
            axes.set_xscale("symlog", linthresh=1)
            axes.xaxis.set_major_formatter("{x:g}")
        axes.set(xlabel=f"{unit} per document", ylabel="% of documents")
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False, fontsize=9)
    save_figure(figure, target)


def bin_edges(numbers: IntArray) -> FloatArray:
    """Edges of bins for non-negative integers: one bin each, or growing widths if many."""
    most = int(numbers.max())
    if most < MOST_BINS:
        return np.arange(most + 2, dtype=np.float64) - 0.5
    edges: FloatArray = np.unique(np.round(np.geomspace(1, most + 2, MOST_BINS + 1)))
    return edges - 1.5
