"""The tables of `longtail stats`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from longtail.analysis.measures import LinkedPair
from longtail.analysis.statistics import DataStats, Drift, Duplicates, TrainLabels
from longtail.report.table import Table, shorten

NAME_LIMIT, SHORT = 80, 30
Lines = dict[str, Callable[[Any], str]]


def stats_tables(stats: DataStats, name: str) -> list[Table]:
    """What `stats` measured, under the name of the corpus."""
    tables = [_by_part(f"{name}: documents", PARTS, stats.parts), *_label_tables(stats.labels)]
    if stats.linked:
        tables.append(_linked_table(stats.linked))
    tables.append(_by_part("Duplicates", DUPLICATES, stats.duplicates))
    if stats.drift:
        tables.append(_by_part("Against the labels of the training part", DRIFT, stats.drift))
    return tables


def _by_part(title: str, lines: Lines, parts: Mapping[str, Any]) -> Table:
    """A line for every measure, a column for every part."""
    rows = [(text, *(of(part) for part in parts.values())) for text, of in lines.items()]
    return Table(title, ("", *parts), rows)


def _label_tables(labels: TrainLabels) -> list[Table]:
    unseen = f", {labels.unseen} of them without a training document" if labels.unseen else ""
    quantiles = (f"q {quantile}" for quantile in labels.quantiles)
    counts = (labels.min, *labels.quantiles.values(), labels.max, labels.mean)
    low, high = map(_number, labels.cuts)
    bounds = {"head": f"more than {high}", "medium": f"{low} to {high}", "tail": f"below {low}"}
    groups = [
        (name, bounds[name], str(g["labels"]), str(g["assignments"]), _percent(g["share"]))
        for name, g in labels.groups.items()
    ]
    measures = (labels.mean_ir, labels.max_ir, labels.cvir, labels.scumble, labels.gini)
    mu = _number(labels.mu) + ("" if labels.mu_source == "pairs" else " (from counts)")
    return [
        Table(
            f"{labels.labels} labels{unseen}: training documents per label",
            ("least", *quantiles, "most", "mean"),
            [[*map(_number, counts)]],
            n_names=0,
        ),
        Table("Groups", ("", "documents per label", "labels", "assignments", "share"), groups),
        Table(
            "Imbalance (Charte et al. 2015)",
            ("MeanIR", "MaxIR", "CVIR", "SCUMBLE", "Gini", "suggested mu"),
            [[*map(_number, measures), mu]],
            n_names=0,
        ),
    ]


def _linked_table(linked: tuple[LinkedPair, ...]) -> Table:
    rows = [
        (
            *(shorten(name, NAME_LIMIT) for name in (pair.a, pair.b)),
            *map(str, (pair.count_a, pair.count_b, pair.shared)),
            *(f"{p:.2f}" for p in (pair.p_a_given_b, pair.p_b_given_a)),
        )
        for pair in linked
    ]
    title = "Most linked labels (training documents; by log-likelihood ratio)"
    header = ("a", "b", "with a", "with b", "both", "p(a|b)", "p(b|a)")
    return Table(title, header, rows, n_names=2)


def _leak(copies: Duplicates) -> str:
    """The first document that is also in the training part, and which one it is there."""
    names = [(leak["document"], leak["train_document"]) for leak in copies.examples[:1]]
    return " is ".join(shorten(str(name), SHORT) for pair in names for name in pair) or "-"


def _most_changed(drift: Drift) -> str:
    if not drift.changed:
        return "-"
    change = drift.changes[0]
    shares = f"{_percent(change['train_share'])} to {_percent(change['share'])}"
    return f"{shorten(change['label'], SHORT)} {shares}"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if value == int(value):
        return str(int(value))
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.4g}"


def _fixed(value: float | None, digits: int) -> str:
    """As many digits as its neighbours in the row."""
    return "-" if value is None else f"{value:.{digits}f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


PARTS: Lines = {
    "documents": lambda part: str(part.documents),
    "  without labels": lambda part: str(part.unlabelled),
    "  with one label": lambda part: str(part.single_label),
    "  with several labels": lambda part: str(part.multi_label),
    "  without text": lambda part: str(part.without_text),
    "labels that occur": lambda part: str(part.labels),
    "sets of labels that occur": lambda part: str(part.label_sets),
    "assignments (document, label)": lambda part: str(part.assignments),
    "  per document, mean": lambda part: _fixed(part.cardinality, 2),
    "  per document, most": lambda part: str(part.max_labels),
    "  density": lambda part: _fixed(part.density, 5),
    "words per document, mean": lambda part: _fixed(part.words["mean"], 0),
    "  median": lambda part: _fixed(part.words["median"], 0),
    "  95 % quantile": lambda part: _fixed(part.words["q95"], 0),
    "  most": lambda part: _number(part.words["max"]),
}
DUPLICATES: Lines = {
    "documents with the text of an earlier one": lambda copies: str(copies.copies),
    "also in the training part": lambda copies: _number(copies.in_train),
    "  with exactly the same labels": lambda copies: _number(copies.in_train_same_labels),
    "  for example": _leak,
    "documents with the id of an earlier one": lambda copies: _number(copies.repeated_ids),
    "with the id of a training document": lambda copies: _number(copies.ids_in_train),
}
DRIFT: Lines = {
    "labels that never occurred in training": lambda drift: str(drift.new_labels),
    "  assignments of them": lambda drift: str(drift.new_assignments),
    "  for example": lambda drift: shorten("; ".join(drift.new_examples), SHORT) or "-",
    "training labels that do not occur": lambda drift: str(drift.absent_labels),
    "Jensen-Shannon distance": lambda drift: _fixed(drift.js_distance, 3),
    "  by chance alone": lambda drift: _fixed(drift.js_by_chance, 3),
    "labels with a significantly other share": lambda drift: str(drift.changed),
    "  most of all": _most_changed,
}
