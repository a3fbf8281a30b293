"""The figure of a results page: F1 of each row by group of labels, next to the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longtail.evaluation.bootstrap import MEASURES
from longtail.report.figures.drawing import GROUP_COLOURS, new_figure, save_figure
from longtail.report.paper import CORPORA
from longtail.report.table import heading, shorten
from longtail.reproduce.claims import row_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"all": "#444444", **GROUP_COLOURS}
PAPER: dict[str, Any] = dict(
    marker="D", markersize=5, markerfacecolor="none", linestyle="none", color="#888888"
)


def plot_results(results: Mapping[str, Any], path: Path) -> None:
    """Draw F1 to a file: one panel per group of labels and average, one line per row.

    `results` comes from `Results.to_dict`; rows without figures stay empty.
    """
    from matplotlib.lines import Line2D

    rows, name = results["rows"], results["corpus"]["name"]
    paper = results["paper"]["labels"] if results["paper"] else {}
    sizes = results["corpus"]["sizes"]["labels"]
    height = 1.5 + 2 * (0.45 + 0.21 * len(rows))
    figure = new_figure(10.0, height)
    panels = figure.subplots(2, len(COLOURS), sharey=True, squeeze=False)
    margins = dict(left=0.1, right=0.985, hspace=0.28, wspace=0.1)
    figure.subplots_adjust(top=1 - 0.72 / height, bottom=0.62 / height, **margins)
    title = shorten(f"{CORPORA.get(name, name)}: F1 on the test part", 90)
    figure.text(0.012, 1 - 0.3 / height, title, fontsize=13, parse_math=False)
    for k, (line, measure) in enumerate(zip(panels, MEASURES, strict=True)):
        for (group, colour), axes in zip(COLOURS.items(), line, strict=True):
            _draw_panel(axes, group, measure, rows, {r: paper[r][group][k] for r in paper})
            if k == 0:
                size = f" ({sizes[group]} labels)" if group in sizes else ""
                name = "total" if group == "all" else group
                axes.set_title(name + size, fontsize=10, color=colour, loc="left")
            axes.set_xlabel(heading(measure), fontsize=8.5, labelpad=2)
        # In the order of the table, from top to bottom; all panels share the axis.
        names = [shorten(row_name(row), 14) for row in rows]
        line[0].set_yticks(range(len(rows)), names, fontsize=8.5)
        line[0].set_ylim(len(rows) - 0.5, -0.5)
    spread = any(row["std"] for row in rows.values())
    name = "ours, mean ± standard deviation over seeds" if spread else "ours"
    style: dict[str, Any] = dict(color="#444444", marker="o", linestyle="-" if spread else "none")
    handles = [Line2D([], [], **style, label=name)]
    handles += [Line2D([], [], **PAPER, label="the paper")] if paper else []
    where: dict[str, Any] = dict(loc="upper right", bbox_to_anchor=(0.985, 1 - 0.1 / height))
    figure.legend(handles=handles, ncols=2, frameon=False, fontsize=9, **where)
    save_figure(figure, path)


def _draw_panel(
    axes: Axes, group: str, measure: str, rows: Mapping[str, Any], paper: Mapping[str, float]
) -> None:
    drawn: list[float] = []
    for y, (name, row) in enumerate(rows.items()):
        if name in paper:
            axes.plot(paper[name], y, **PAPER)
            drawn.append(paper[name])
        if group in row["mean"]:
            mean, width = row["mean"][group][measure], row["std"].get(group, {}).get(measure, 0.0)
            axes.errorbar(
                mean, y, xerr=width or None, fmt="o", color=COLOURS[group],
                markersize=5.5, elinewidth=1.3, capsize=2.5,
            )  # fmt: skip
            drawn += [mean - width, mean + width]
    if drawn:
        # At least two points wide, so that the noise of one seed does not fill the panel.
        low, high = min(drawn), max(drawn)
        margin = max(0.08 * (high - low), 1 - (high - low) / 2, 0.3)
        axes.set_xlim(low - margin, high + margin)
    axes.grid(axis="x", color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
    axes.locator_params(axis="x", nbins=5)
