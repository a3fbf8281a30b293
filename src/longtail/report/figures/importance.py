"""The figure of a search: which settings mattered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from longtail.report.figures.drawing import GROUP_COLOURS, check_target, new_figure, save_figure
from longtail.report.table import shorten

# Inches: width of the figure, height of a bar, and of the rest.
WIDTH, BAR, REST = 7.5, 0.32, 1.2
MAX_NAME = 32


def plot_importances(importances: Mapping[str, float], path: str | Path, *, title: str) -> None:
    """Draw a bar for the share of each setting, the largest first.

    Args:
        importances: shares that add up to 1, by setting.
        path: file name ending in .png, .svg or .pdf.
    """
    target = check_target(path)
    ordered = sorted(importances.items(), key=lambda item: (-item[1], item[0]))
    names = [shorten(name, MAX_NAME) for name, _ in ordered]
    shares = [100 * share for _, share in ordered]
    figure = new_figure(WIDTH, REST + BAR * max(2, len(names)))
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    rows = range(len(names))
    bars = axes.barh(rows, shares, color=GROUP_COLOURS["head"], height=0.7)
    axes.bar_label(bars, [f"{share:.0f} %" for share in shares], padding=3, fontsize=9)
    axes.set_yticks(rows, names, parse_math=False)
    axes.invert_yaxis()
    axes.set(xlabel="share of the importance, %", xlim=(0, 1.12 * max([*shares, 1.0])))
    axes.set_title(shorten(title, 90), fontsize=11, loc="left", parse_math=False)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right"]].set_visible(False)
    save_figure(figure, target)
