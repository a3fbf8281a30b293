"""The tables and sentences of `longtail stats`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from longtail.analysis.measures import LinkedPair
from longtail.analysis.statistics import DataStats, Drift, Duplicates, PartStats, TrainLabels
from longtail.report.table import Table, plural, shorten

NAME_LIMIT = 80


def stats_tables(stats: DataStats, name: str) -> list[Table]:
    """What `stats` measured, under the name of the corpus."""
    tables = [_parts_table(stats.parts, name), *_label_tables(stats.labels)]
    if stats.linked:
        tables.append(_linked_table(stats.linked))
    sentences: dict[str, list[str]] = {"Duplicates": [], "Training part and the others": []}
    duplicates, drift = sentences.values()
    for part, copies in stats.duplicates.items():
        duplicates += _duplicate_sentences(part, stats.parts[part].documents, copies)
    for part, changes in stats.drift.items():
        drift += _drift_sentences(part, changes)
    # One sentence per row, so that wrapped lines stay under their sentence.
    return tables + [Table(t, ("",), [(s,) for s in each]) for t, each in sentences.items() if each]


def _parts_table(parts: dict[str, PartStats], name: str) -> Table:
    lines: dict[str, Callable[[PartStats], Any]] = {
        "documents": lambda part: part.documents,
        "  without labels": lambda part: part.unlabelled,
        "  with one label": lambda part: part.single_label,
        "  with several labels": lambda part: part.multi_label,
        "  without text": lambda part: part.without_text,
        "labels that occur": lambda part: part.labels,
        "sets of labels that occur": lambda part: part.label_sets,
        "assignments (document, label)": lambda part: part.assignments,
        "  per document, mean": lambda part: _fixed(part.cardinality, 2),
        "  per document, most": lambda part: part.max_labels,
        "  density": lambda part: _fixed(part.density, 5),
        "words per document, mean": lambda part: _fixed(part.words.mean, 0),
        "  median": lambda part: _fixed(part.words.median, 0),
        "  95 % quantile": lambda part: _fixed(part.words.q95, 0),
        "  most": lambda part: _number(part.words.max),
    }
    rows = [(text, *(str(of(part)) for part in parts.values())) for text, of in lines.items()]
    return Table(f"{name}: documents", ("", *parts), rows)


def _label_tables(labels: TrainLabels) -> list[Table]:
    unseen = f", {labels.unseen} of them without a training document" if labels.unseen else ""
    quantiles = (f"q {quantile}" for quantile in labels.quantiles)
    counts = (labels.min, *labels.quantiles.values(), labels.max, labels.mean)
    low, high = map(_number, labels.cuts)
    bounds = {"head": f"more than {high}", "medium": f"{low} to {high}", "tail": f"below {low}"}
    groups = [
        (name, bounds[name], str(group.labels), str(group.assignments), _percent(group.share))
        for name, group in labels.groups.items()
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


def _duplicate_sentences(part: str, n_documents: int, duplicates: Duplicates) -> list[str]:
    def of(count: int, verb: str, singular: str | None = None) -> str:
        verb = verb if count != 1 else singular or verb + "s"
        return f"{count:,} of {n_documents:,} {part} documents {verb}"

    sentences = [f"No two {part} documents have the same text."]
    if duplicates.copies:
        sentences = [f"{of(duplicates.copies, 'repeat')} an earlier text."]
    if duplicates.in_train:
        example = duplicates.examples[0]
        both = (example.document, example.train_document)
        sentences.append(
            f"{of(duplicates.in_train, 'are', 'is')} also in the training part, "
            f"{duplicates.in_train_same_labels} with exactly the same labels; for example "
            f"{' is '.join(shorten(str(name), NAME_LIMIT) for name in both)} there."
        )
    elif duplicates.in_train == 0:
        sentences.append(f"No {part} document is also in the training part.")
    if duplicates.repeated_ids:
        sentences.append(f"{of(duplicates.repeated_ids, 'repeat')} an earlier id.")
    if duplicates.ids_in_train:
        verb = of(duplicates.ids_in_train, "carry", "carries")
        sentences.append(f"{verb} the id of a training document.")
    return sentences


def _drift_sentences(part: str, drift: Drift) -> list[str]:
    sentences = [f"Every label of {part} occurs in training."]
    if drift.new_labels:
        examples = [shorten(name, NAME_LIMIT) for name in drift.new_examples]
        examples += ["..."] * (drift.new_labels > len(examples))
        new = f"{plural(drift.new_labels, 'label')} of {part}"
        new += f" ({plural(drift.new_assignments, 'assignment')}) never occurred in training: "
        sentences = [new + "; ".join(examples)]
    if drift.absent_labels:
        sentences.append(f"{plural(drift.absent_labels, 'training label')} not found in {part}.")
    if drift.js_distance is not None:
        sentences.append(
            f"Labels of {part} against those of train: Jensen-Shannon distance "
            f"{drift.js_distance:.3f} (0 the same, 1 none in common; chance alone gives "
            f"{drift.js_by_chance:.3f})."
        )
    if not drift.changed:
        return [*sentences, f"No label's share of {part} differs significantly from train."]
    changes = "; ".join(
        f"{shorten(change.label, NAME_LIMIT)} {_percent(change.train_share)} -> "
        f"{_percent(change.share)}"
        for change in drift.changes[: drift.changed]
    )
    sentences.append(
        f"{plural(drift.changed, 'label')} with a significantly different share of documents "
        f"in {part} than in train; most of all {changes}."
    )
    return sentences


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
