"""The figure of a table of results: F1 of every row by group of labels, beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longtail.errors import InputError
from longtail.report.figures.drawing import GROUP_COLOURS, check_target, new_figure, save_figure
from longtail.report.table import Pair, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Figures = Mapping[str, Mapping[str, Pair | None]]
"""Row -> group of labels -> micro-F1 and macro-F1 in percent."""
COLOURS = {"all": "#444444", **GROUP_COLOURS}
PAPER: dict[str, Any] = dict(
    marker="D", markersize=5, markerfacecolor="none", linestyle="none", color="#888888"
)


def plot_results(
    ours: Figures,
    spread: Figures,
    paper: Figures,
    sizes: Mapping[str, int],
    path: str | Path,
    *,
    title: str = "",
) -> None:
    """Draw a panel for every group of labels and both averages, a line for every row, to a file.

    Args:
        ours: means over the seeds; a row without figures stays empty.
        spread: their standard deviations, where known.
        paper: the paper's figures of the same rows; empty if there are none.
        sizes: the number of labels of every group.
        path: a name that ends in .png, .svg or .pdf.
    """
    target = check_target(path)
    if not any(ours.values()):
        raise InputError("there are no results to draw yet.")
    height = 1.5 + 2 * (0.45 + 0.21 * len(ours))
    figure = new_figure(10.0, height)
    panels = figure.subplots(2, len(COLOURS), sharey=True, squeeze=False)
    margins = dict(left=0.1, right=0.985, hspace=0.28, wspace=0.1)
    figure.subplots_adjust(top=1 - 0.72 / height, bottom=0.62 / height, **margins)
    figure.text(0.012, 1 - 0.3 / height, shorten(title, 90), fontsize=13, parse_math=False)
    for measure, line in enumerate(panels):
        for (group, colour), axes in zip(COLOURS.items(), line, strict=True):
            _draw_panel(axes, group, measure, ours, spread, paper)
            if measure == 0:
                size = f" ({sizes[group]} labels)" if group in sizes else ""
                name = "total" if group == "all" else group
                axes.set_title(name + size, fontsize=10, color=colour, loc="left")
            axes.set_xlabel(("micro-F1", "macro-F1")[measure], fontsize=8.5, labelpad=2)
        # From top to bottom in the order of the table; the axis is shared by all panels.
        line[0].set_yticks(range(len(ours)), [shorten(row, 14) for row in ours], fontsize=8.5)
        line[0].set_ylim(len(ours) - 0.5, -0.5)
    _add_legend(figure, any(spread.values()), bool(paper), height)
    save_figure(figure, target)


def _draw_panel(
    axes: Axes, group: str, measure: int, ours: Figures, spread: Figures, paper: Figures
) -> None:
    drawn: list[float] = []
    for y, row in enumerate(ours):
        pair, deviation, reference = (
            figures.get(row, {}).get(group) for figures in (ours, spread, paper)
        )
        if reference is not None:
            axes.plot(reference[measure], y, **PAPER)
            drawn.append(reference[measure])
        if pair is not None:
            width = 0.0 if deviation is None else deviation[measure]
            axes.errorbar(
                pair[measure], y, xerr=width or None, fmt="o", color=COLOURS[group],
                markersize=5.5, elinewidth=1.3, capsize=2.5,
            )  # fmt: skip
            drawn += [pair[measure] - width, pair[measure] + width]
    if drawn:
        # Two points at least, so that the noise of one seed does not fill the panel.
        low, high = min(drawn), max(drawn)
        margin = max(0.08 * (high - low), 1 - (high - low) / 2, 0.3)
        axes.set_xlim(low - margin, high + margin)
    axes.grid(axis="x", color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
    axes.locator_params(axis="x", nbins=5)


def _add_legend(figure: Figure, spread: bool, paper: bool, height: float) -> None:
    from matplotlib.lines import Line2D

    name = "ours, mean ± standard deviation over seeds" if spread else "ours"
    style: dict[str, Any] = dict(color="#444444", marker="o", linestyle="-" if spread else "none")
    handles = [Line2D([], [], **style, label=name)]
    if paper:
        handles.append(Line2D([], [], **PAPER, label="the paper"))
    where: dict[str, Any] = dict(loc="upper right", bbox_to_anchor=(0.985, 1 - 0.1 / height))
    figure.legend(handles=handles, ncols=2, frameon=False, fontsize=9, **where)
