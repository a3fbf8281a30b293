"""The figures of the report's page: inline SVG in the colours of the page, light or dark."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from longtail.analysis.curves import mean_f1_by_count, precision_recall
from longtail.analysis.runs import Run
from longtail.report.figures.drawing import new_figure
from longtail.report.jinja import N_COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Panels: TypeAlias = "Sequence[Axes]"
Runs = list[tuple[int, Run]]
"""Runs with their positions, which determine their colours."""
# Placeholder colours; `_inline` replaces them by CSS variables of the page.
TEXT, GRID = "#000001", "#000002"
# Inches; the same font size at half and full width of the page.
HALF, FULL = 5.4, 11.4
UNIT = (-0.02, 1.02)
# More dots make the page larger but show no more.
MOST_DOTS = 500
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "longtail",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.linewidth": 0.6,
    "xtick.minor.size": 0,
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), TEXT
    ),
    **dict.fromkeys(("axes.edgecolor", "grid.color", "xtick.color", "ytick.color"), GRID),
}


def draw_figures(runs: Mapping[str, Run]) -> dict[str, str]:
    """Name -> SVG; figures that no run has data for are left out."""
    from matplotlib import rc_context

    figures = {}
    with rc_context(STYLE):
        for name, (draw, n_panels, width, has_data) in FIGURES.items():
            drawn = [(k, run) for k, run in enumerate(runs.values()) if has_data(run)]
            if drawn:
                figure = new_figure(width, 3.5)
                figure.set_layout_engine("constrained")
                figure.patch.set_alpha(0)
                draw(figure.subplots(1, n_panels, sharey=True, squeeze=False)[0], drawn)
                figures[name] = _inline(figure, name)
    return figures


def _f1_by_count(panels: Panels, runs: Runs) -> None:
    """F1 of each label over its training count, with the mean over similar counts as a line."""
    (axes,) = panels
    for k, run in runs:
        table = run.evaluation.labels
        dots = _thin(np.flatnonzero(table.actual > 0))
        counts = np.maximum(table.train_count[dots], 0.5)
        axes.plot(counts, table.f1[dots], "o", color=_colour(k), markersize=3, alpha=0.35, mew=0)
        axes.plot(*mean_f1_by_count(run.evaluation), **_line(k))
    _over_counts(axes)
    axes.set(ylabel="F1 of the label", ylim=(-0.03, 1.03))


def _thresholds(panels: Panels, runs: Runs) -> None:
    """The threshold of each label over its training count."""
    (axes,) = panels
    for k, run in runs:
        values = run.evaluation.thresholds.values
        counts = np.maximum(run.evaluation.labels.train_count, 0.5)
        finite = np.flatnonzero(np.isfinite(values))
        if len(np.unique(values[finite])) == 1:
            ends = counts.min(), counts.max() * 1.0001
            axes.plot(ends, values[finite[[0, 0]]], **_line(k))
        else:
            dots = _thin(finite[np.argsort(counts[finite], kind="stable")])
            axes.plot(counts[dots], values[dots], "o", color=_colour(k), ms=3.5, mew=0)
    _over_counts(axes)
    axes.set_ylabel("threshold of the score")


def _precision_recall(panels: Panels, runs: Runs) -> None:
    """One panel per group; dots mark the evaluated decisions."""
    for k, run in runs:
        for axes, (group, curve) in zip(panels, precision_recall(run).items(), strict=True):
            axes.plot(*curve, **_line(k))
            scores = run.evaluation.groups()[group]
            if run.evaluation.labels.predicted[run.evaluation.masks[group]].any():
                point = scores.micro_recall, scores.micro_precision
                axes.plot(*point, "o", color=_colour(k), markersize=6, clip_on=False, zorder=4)
            axes.set(title=group, xlabel="recall", xlim=UNIT, ylim=UNIT)
    panels[0].set_ylabel("precision")


def _reliability(panels: Panels, runs: Runs) -> None:
    """Observed frequency of labels over predicted probability."""
    (axes,) = panels
    axes.plot([0, 1], [0, 1], color=TEXT, linewidth=0.8, linestyle=":")
    for k, run in runs:
        bins = run.evaluation.calibration
        assert bins is not None  # see FIGURES
        points = np.array([bins.mean_probability, bins.share_that_applies], dtype=np.float64)
        known = points[:, ~np.isnan(points[0])]
        if known.size:
            axes.plot(*known, **_line(k), marker="o", markersize=3.5)
    axes.set(xlabel="probability given", ylabel="share that applies", xlim=UNIT, ylim=UNIT)


# Name -> function that draws it, number of panels, width, and whether a run has the data.
FIGURES: dict[str, tuple[Callable[[Panels, Runs], None], int, float, Callable[[Run], bool]]] = {
    "f1-by-count": (_f1_by_count, 1, HALF, lambda run: True),
    "thresholds": (_thresholds, 1, HALF, lambda run: True),
    "precision-recall": (_precision_recall, 3, FULL, lambda run: run.scores is not None),
    "reliability": (_reliability, 1, HALF, lambda run: run.evaluation.calibration is not None),
}


def _thin(labels: Any) -> Any:
    """Every n-th label, so that at most MOST_DOTS are left."""
    return labels[:: max(1, -(-len(labels) // MOST_DOTS))]


def _colour(position: int) -> str:
    """The placeholder for the colour of a run."""
    return f"#0001{position % N_COLOURS:02x}"


def _line(position: int) -> dict[str, Any]:
    return {"color": _colour(position), "linewidth": 1.8}


def _over_counts(axes: Axes) -> None:
    axes.set(xscale="log", xlabel="training documents of the label")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")


def _inline(figure: Figure, name: str) -> str:
    """The figure as SVG to embed: no header, no external references, ids prefixed with the name."""
    target = io.StringIO()
    empty = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(target, format="svg", transparent=True, metadata=empty)
    svg = target.getvalue()
    svg = svg[svg.index(">", svg.index("<svg")) + 1 :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg).replace("xlink:href=", "href=")
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = svg.replace(TEXT, "currentColor").replace(GRID, "var(--grid)")
    svg = re.sub(r"#0001([0-9a-f]{2})", lambda m: f"var(--run-{int(m[1], 16)})", svg)
    width, height = 72 * figure.get_figwidth(), 72 * figure.get_figheight()
    opening = f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{name}">'
    return opening + re.sub(r"\s*\n\s*", "\n", svg).strip()
