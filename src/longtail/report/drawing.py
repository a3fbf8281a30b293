"""The figures of the page as inline SVG whose colours are the page's own, light or dark."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from longtail.evaluation import Evaluation
from longtail.report.curves import f1_by_shift, mean_f1_by_count, precision_recall
from longtail.report.runs import Run
from longtail.report.tables import GROUPS, MEASURES, NONE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Stand-ins that no figure would use; `_inline` puts the page's variables in their places.
TEXT, GRID = "#000001", "#000002"
N_COLOURS = 9
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)))
# Inches, so that letters come out alike in half and in the whole width of the page.
HALF, WHOLE = (5.4, 3.5), (11.4, 3.5)
# More dots than this make the page large and show no more.
MOST_DOTS = 500
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "longtail",
    "font.size": 9,
    "text.color": TEXT,
    "axes.edgecolor": GRID,
    "axes.labelcolor": TEXT,
    "axes.titlesize": 10,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": TEXT,
    "ytick.labelcolor": TEXT,
    "xtick.minor.size": 0,
}


def colour_of(position: int) -> str:
    """The stand-in for the colour of a run."""
    return f"#0001{position % N_COLOURS:02x}"


def draw_figures(runs: Mapping[str, Run]) -> dict[str, str]:
    """Name -> SVG; a figure for which nothing is known is left out."""
    from matplotlib import rc_context

    makers = {
        "f1-by-count": _f1_by_count,
        "f1-by-group": _f1_by_group,
        "thresholds": _thresholds,
        "f1-by-shift": _f1_by_shift,
        "precision-recall": _precision_recall,
        "reliability": _reliability,
    }
    found = {}
    with rc_context(STYLE):
        for name, make in makers.items():
            figure = make(list(runs.values()))
            if figure is not None:
                found[name] = _inline(figure, name)
    return found


def _f1_by_count(runs: list[Run]) -> Figure | None:
    """F1 of every label over its training count, and the mean of labels of like counts."""
    figure, (axes,) = _panels(1, *HALF)
    for k, run in enumerate(runs):
        table = run.evaluation.labels
        judged = np.flatnonzero(table.actual > 0)
        dots = judged[:: max(1, -(-len(judged) // MOST_DOTS))]
        counts = np.maximum(table.train_count[dots], 0.5)
        axes.plot(counts, table.f1[dots], "o", color=colour_of(k), markersize=3, alpha=0.35, mew=0)
        axes.plot(*mean_f1_by_count(run.evaluation), **_line(k))
    _over_counts(axes)
    axes.set_ylabel("F1 of the label")
    axes.set_ylim(-0.03, 1.03)
    return figure


def _f1_by_group(runs: list[Run]) -> Figure | None:
    """Bars of every group and run with their intervals."""
    figure, panels = _panels(2, *HALF, sharey=True)
    width = 0.8 / len(runs)
    for axes, measure in zip(panels, MEASURES, strict=True):
        for k, run in enumerate(runs):
            for place, (group, scores) in enumerate(run.evaluation.groups().items()):
                middle = place + (k - (len(runs) - 1) / 2) * width
                if scores.is_empty:
                    axes.text(middle, 1, NONE, ha="center", va="bottom", color=colour_of(k))
                    continue
                value = 100 * getattr(scores, measure)
                axes.bar(middle, value, 0.92 * width, color=colour_of(k))
                limits = _limits(run.evaluation, group, measure, value)
                if limits is not None:
                    axes.errorbar(middle, value, limits, fmt="none", ecolor=TEXT, elinewidth=0.9)
        axes.set_xticks(range(len(GROUPS)), GROUPS)
        axes.set_title(f"{measure.split('_')[0]}-F1, %")
        axes.grid(axis="x", visible=False)
        axes.set_ylim(0, 100)
    return figure


def _limits(evaluation: Evaluation, group: str, measure: str, value: float) -> Any:
    """Lengths below and above the bar; a percentile interval may leave out the value itself."""
    if group not in evaluation.intervals:
        return None
    low, high = evaluation.intervals[group][measure]
    return np.maximum(0, [[value - 100 * low], [100 * high - value]])


def _thresholds(runs: list[Run]) -> Figure | None:
    """What the score of a label must reach, over its training count."""
    figure, (axes,) = _panels(1, *HALF)
    for k, run in enumerate(runs):
        values = run.evaluation.rule.values
        counts = np.maximum(run.evaluation.labels.train_count, 0.5)
        finite = np.flatnonzero(np.isfinite(values))
        if not len(finite):
            continue
        ordered = finite[np.argsort(counts[finite], kind="stable")]
        ordered = ordered[:: max(1, -(-len(ordered) // MOST_DOTS))]
        if len(np.unique(values[finite])) == 1:
            ends = counts.min(), counts.max() * 1.0001
            axes.plot(ends, values[finite[[0, 0]]], **_line(k))
        else:
            axes.plot(counts[ordered], values[ordered], "o", color=colour_of(k), ms=3.5, mew=0)
    _over_counts(axes)
    axes.set_ylabel("threshold of the score")
    return figure


def _f1_by_shift(runs: list[Run]) -> Figure | None:
    """Micro- and macro-F1 as all thresholds are moved by the same amount."""
    if not any(_has_scores(run) for run in runs):
        return None
    figure, panels = _panels(2, *WHOLE, sharey=True)
    for k, run in enumerate(runs):
        if _has_scores(run):
            curves = f1_by_shift(run.evaluation, run.logits, "logit")
            for axes, curve in zip(panels, curves, strict=True):
                axes.plot(curve.x, 100 * curve.y, **_line(k))
    for axes, measure in zip(panels, MEASURES, strict=True):
        axes.axvline(0, color=TEXT, linewidth=0.8, linestyle=":")
        axes.set_title(f"{measure.split('_')[0]}-F1, %")
        axes.set_xlabel("all thresholds moved by")
        axes.set_ylim(0, 100)
    return figure


def _precision_recall(runs: list[Run]) -> Figure | None:
    """One panel per group; dots are the decisions that the report judges."""
    if not any(_has_scores(run) for run in runs):
        return None
    figure, panels = _panels(3, *WHOLE, sharey=True)
    for k, run in enumerate(runs):
        if not _has_scores(run):
            continue
        curves = precision_recall(run.evaluation, run.logits, scale="logit")
        for axes, group in zip(panels, GROUPS[1:], strict=True):
            axes.plot(*curves[group], **_line(k))
            scores = run.evaluation.groups()[group]
            if run.evaluation.labels.predicted[run.evaluation.masks[group]].any():
                point = scores.micro_recall, scores.micro_precision
                axes.plot(*point, "o", color=colour_of(k), markersize=6, clip_on=False, zorder=4)
    for axes, group in zip(panels, GROUPS[1:], strict=True):
        axes.set_title(group)
        axes.set_xlabel("recall")
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.02, 1.02)
    panels[0].set_ylabel("precision")
    return figure


def _reliability(runs: list[Run]) -> Figure | None:
    """How often a label applies, over the probability that it got."""
    known = {k: c for k, run in enumerate(runs) if (c := run.evaluation.calibration) is not None}
    if not known:
        return None
    figure, (axes,) = _panels(1, *HALF)
    axes.plot([0, 1], [0, 1], color=TEXT, linewidth=0.8, linestyle=":")
    for k, found in known.items():
        points = [
            (mean, share)
            for mean, share in zip(found.mean_probability, found.share_that_applies, strict=True)
            if mean is not None and share is not None
        ]
        if points:
            x, y = np.array(points).T
            axes.plot(x, y, **_line(k), marker="o", markersize=3.5)
    axes.set_xlabel("probability given")
    axes.set_ylabel("share that applies")
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)
    return figure


def _has_scores(run: Run) -> bool:
    evaluation = run.evaluation
    return run.scores is not None and evaluation.y_true is not None and len(evaluation.masks) > 0


def _line(position: int) -> dict[str, Any]:
    dash = DASHES[position // N_COLOURS % len(DASHES)]
    return {"color": colour_of(position), "linewidth": 1.8, "linestyle": dash}


def _over_counts(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.set_xlabel("training documents of the label")


def _panels(
    n: int, width: float, height: float, sharey: bool = False
) -> tuple[Figure, tuple[Axes, ...]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0)
    return figure, tuple(figure.subplots(1, n, sharey=sharey, squeeze=False)[0])


def _inline(figure: Figure, name: str) -> str:
    """SVG for the middle of a page: no header, no addresses, ids that are its own."""
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
