"""The tables of `longtail stats`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from longtail.report.table import Table, shorten

NAME_LIMIT, SHORT = 80, 30
Stats = Mapping[str, Any]
Lines = Mapping[str, str | tuple[str, int] | Callable[[Any], str]]
"""Row name -> its value: a key, a key and a number of digits, or a function."""


def stats_tables(stats: Stats, name: str) -> list[Table]:
    """The results of `stats` as tables; `name` is that of the corpus."""
    tables = [_by_part(f"{name}: documents", PARTS, stats["parts"])]
    tables += _label_tables(**stats["labels"])
    if stats["linked"]:
        tables.append(_linked_table(stats["linked"]))
    tables.append(_by_part("Duplicates", DUPLICATES, stats["duplicates"]))
    if stats["drift"]:
        tables.append(_by_part("Against the labels of the training part", DRIFT, stats["drift"]))
    return tables


def _by_part(title: str, lines: Lines, parts: Stats) -> Table:
    """One row per measure, one column per part."""

    def cell(part: Any, value: Any) -> str:
        if callable(value):
            return str(value(part))
        return _number(part[value]) if isinstance(value, str) else _fixed(part[value[0]], value[1])

    rows = [(text, *(cell(part, v) for part in parts.values())) for text, v in lines.items()]
    return Table(title, ("", *parts), rows)


def _label_tables(
    labels: int, unseen: int, quantiles: Stats, groups: Stats, cuts: Any, mu: float, **more: Any
) -> list[Table]:
    never = f", {unseen} of them without a training document" if unseen else ""
    counts = (more["min"], *quantiles.values(), more["max"], more["mean"])
    low, high = map(_number, cuts)
    bounds = {"head": f"more than {high}", "medium": f"{low} to {high}", "tail": f"below {low}"}
    rows = [
        (name, bounds[name], str(g["labels"]), str(g["assignments"]), _percent(g["share"]))
        for name, g in groups.items()
    ]
    measures = [_number(more[key]) for key in ("mean_ir", "max_ir", "cvir", "scumble", "gini")]
    suggested = _number(mu) + ("" if more["mu_source"] == "pairs" else " (from counts)")
    return [
        Table(
            f"{labels} labels{never}: training documents per label",
            ("least", *(f"q {quantile}" for quantile in quantiles), "most", "mean"),
            [[*map(_number, counts)]],
            n_names=0,
        ),
        Table("Groups", ("", "documents per label", "labels", "assignments", "share"), rows),
        Table(
            "Imbalance (Charte et al. 2015)",
            ("MeanIR", "MaxIR", "CVIR", "SCUMBLE", "Gini", "suggested mu"),
            [[*measures, suggested]],
            n_names=0,
        ),
    ]


def _linked_table(linked: Sequence[Stats]) -> Table:
    rows = [
        (
            *(shorten(name, NAME_LIMIT) for name in (pair["a"], pair["b"])),
            *map(str, (pair["count_a"], pair["count_b"], pair["shared"])),
            *(f"{p:.2f}" for p in (pair["p_a_given_b"], pair["p_b_given_a"])),
        )
        for pair in linked
    ]
    title = "Most linked labels (training documents; by log-likelihood ratio)"
    header = ("a", "b", "with a", "with b", "both", "p(a|b)", "p(b|a)")
    return Table(title, header, rows, n_names=2)


def _leak(copies: Stats) -> str:
    """The first document that is also in the training part, and its name there."""
    names = [(leak["document"], leak["train_document"]) for leak in copies["examples"][:1]]
    return " is ".join(shorten(str(name), SHORT) for pair in names for name in pair) or "-"


def _most_changed(drift: Stats) -> str:
    if not drift["changed"]:
        return "-"
    change = drift["changes"][0]
    shares = f"{_percent(change['train_share'])} to {_percent(change['share'])}"
    return f"{shorten(change['label'], SHORT)} {shares}"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if value == int(value):
        return str(int(value))
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.4g}"


def _fixed(value: float | None, digits: int) -> str:
    """A number with this many decimals; a dash for None."""
    return "-" if value is None else f"{value:.{digits}f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


PARTS: Lines = {
    "documents": "documents",
    "  without labels": "unlabelled",
    "  with one label": "single_label",
    "  with several labels": "multi_label",
    "  without text": "without_text",
    "labels that occur": "labels",
    "sets of labels that occur": "label_sets",
    "assignments (document, label)": "assignments",
    "  per document, mean": ("cardinality", 2),
    "  per document, most": "max_labels",
    "  density": ("density", 5),
    "words per document, mean": lambda part: _fixed(part["words"]["mean"], 0),
    "  median": lambda part: _fixed(part["words"]["median"], 0),
    "  95 % quantile": lambda part: _fixed(part["words"]["q95"], 0),
    "  most": lambda part: _number(part["words"]["max"]),
}
DUPLICATES: Lines = {
    "documents with the text of an earlier one": "copies",
    "also in the training part": "in_train",
    "  with exactly the same labels": "in_train_same_labels",
    "  for example": _leak,
    "documents with the id of an earlier one": "repeated_ids",
    "with the id of a training document": "ids_in_train",
}
DRIFT: Lines = {
    "labels that never occurred in training": "new_labels",
    "  assignments of them": "new_assignments",
    "  for example": lambda drift: shorten("; ".join(drift["new_examples"]), SHORT) or "-",
    "training labels that do not occur": "absent_labels",
    "Jensen-Shannon distance": ("js_distance", 3),
    "  by chance alone": ("js_by_chance", 3),
    "labels whose frequency differs significantly": "changed",
    "  most of all": _most_changed,
}
