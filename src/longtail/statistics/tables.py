"""The tables and sentences that `longtail stats` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from longtail.statistics.facts import DataStats, LinkedPair, PartStats, TrainLabels

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


def render(stats: DataStats, name: str) -> list[RenderableType]:
    """Tables and sentences for the terminal: `for item in render(...): console.print(item)`."""
    shown = [_parts_table(stats.parts, name), *_label_tables(stats.labels)]
    if stats.linked:
        shown.append(_linked_table(stats.linked))
    for title, sentences in (
        ("Duplicates", _duplicate_sentences(stats)),
        ("Training part and the others", _drift_sentences(stats)),
    ):
        if sentences:
            shown.append(_sentences_table(title, sentences))
    return list(shown)


def _parts_table(parts: dict[str, PartStats], name: str) -> Table:
    table = _table(f"{name}: documents", ["", *parts])
    for said, value_of in (
        ("documents", lambda part: part.documents),
        ("  without labels", lambda part: part.unlabelled),
        ("  with one label", lambda part: part.single_label),
        ("  with several labels", lambda part: part.multi_label),
        ("  without text", lambda part: part.without_text),
        ("labels that occur", lambda part: part.labels),
        ("sets of labels that occur", lambda part: part.label_sets),
        ("assignments (document, label)", lambda part: part.assignments),
        ("  per document, mean", lambda part: _fixed(part.cardinality, 2)),
        ("  per document, most", lambda part: part.max_labels),
        ("  density", lambda part: _fixed(part.density, 5)),
        ("words per document, mean", lambda part: _fixed(part.words.mean, 0)),
        ("  median", lambda part: _fixed(part.words.median, 0)),
        ("  95 % quantile", lambda part: _fixed(part.words.q95, 0)),
        ("  most", lambda part: part.words.max),
    ):
        _add(table, said, *map(value_of, parts.values()))
    return table


def _label_tables(labels: TrainLabels) -> list[Table]:
    said = f"{labels.labels} labels"
    if labels.unseen:
        said += f", {labels.unseen} of them without a training document"
    counts = _table(
        f"{said}: training documents per label",
        ["least", *(f"q {quantile}" for quantile in labels.quantiles), "most", "mean"],
        names=0,
    )
    _add(counts, labels.min, *labels.quantiles.values(), labels.max, labels.mean)
    low, high = map(_number, labels.cuts)
    groups = _table("Groups", ["", "documents per label", "labels", "assignments", "share"])
    bounds = {"head": f"more than {high}", "medium": f"{low} to {high}", "tail": f"below {low}"}
    for name, group in labels.groups.items():
        _add(groups, name, bounds[name], group.labels, group.assignments, _percent(group.share))
    imbalance = _table(
        "Imbalance (Charte et al. 2015)",
        ["MeanIR", "MaxIR", "CVIR", "SCUMBLE", "Gini", "suggested mu"],
        names=0,
    )
    mu = _number(labels.mu) + ("" if labels.mu_source == "pairs" else " (from counts)")
    measures = (labels.mean_ir, labels.max_ir, labels.cvir, labels.scumble, labels.gini)
    _add(imbalance, *measures, mu)
    return [counts, groups, imbalance]


def _linked_table(linked: tuple[LinkedPair, ...]) -> Table:
    table = _table(
        "Most linked labels (training documents; by log-likelihood ratio)",
        ["a", "b", "with a", "with b", "both", "p(a|b)", "p(b|a)"],
        names=2,
    )
    for pair in linked:
        shares = f"{pair.p_a_given_b:.2f}", f"{pair.p_b_given_a:.2f}"
        _add(table, pair.a, pair.b, pair.count_a, pair.count_b, pair.shared, *shares)
    return table


def _duplicate_sentences(stats: DataStats) -> list[str]:
    said = []
    for part, found in stats.duplicates.items():
        of = f"of {stats.parts[part].documents} {part} documents"
        if found.copies:
            said.append(f"{found.copies} {of} {_verb(found.copies, 'repeat')} an earlier text.")
        else:
            said.append(f"No two {part} documents have the same text.")
        if found.in_train:
            example = found.examples[0]
            said.append(
                f"{found.in_train} {of} also {_verb(found.in_train, 'stand')} in the training "
                f"part, {found.in_train_same_labels} with the very same labels; for example "
                f"{example.document} is {example.train_document} there."
            )
        elif found.in_train == 0:
            said.append(f"No {part} document also stands in the training part.")
        if found.repeated_ids:
            verb = _verb(found.repeated_ids, "repeat")
            said.append(f"{found.repeated_ids} {of} {verb} an earlier id.")
        if found.ids_in_train:
            verb = _verb(found.ids_in_train, "carry", "carries")
            said.append(f"{found.ids_in_train} {of} {verb} the id of a training document.")
    return said


def _drift_sentences(stats: DataStats) -> list[str]:
    said = []
    for part, drift in stats.drift.items():
        if drift.new_labels:
            examples = [*drift.new_examples, *["..."][: drift.new_labels - len(drift.new_examples)]]
            said.append(
                f"{_count(drift.new_labels, 'label')} of {part} "
                f"({_count(drift.new_assignments, 'assignment')}) never occurred in training: "
                f"{'; '.join(examples)}"
            )
        else:
            said.append(f"Every label of {part} occurs in training.")
        if drift.absent_labels:
            said.append(f"{_count(drift.absent_labels, 'training label')} not found in {part}.")
        if drift.js_distance is not None:
            said.append(
                f"Labels of {part} against those of train: Jensen-Shannon distance "
                f"{drift.js_distance:.3f} (0 the same, 1 none in common; chance alone gives "
                f"{drift.js_by_chance:.3f})."
            )
        shown = "; ".join(
            f"{change.label} {_percent(change.train_share)} -> {_percent(change.share)}"
            for change in drift.changes[: drift.changed]
        )
        if drift.changed:
            said.append(
                f"{_count(drift.changed, 'label')} with another share of documents in {part} than "
                f"in train, beyond chance; most of all {shown}."
            )
        else:
            said.append(f"No label's share of {part} differs from train beyond chance.")
    return said


def _table(title: str, columns: list[str], names: int = 1) -> Table:
    """An empty table; the first `names` columns hold words, the others numbers."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(_clean(title), "bold"), box=box.SIMPLE_HEAD, title_justify="left")
    for position, column in enumerate(columns):
        side: Literal["left", "right"] = "left" if position < names else "right"
        table.add_column(Text(_clean(column)), justify=side, overflow="fold")
    return table


def _sentences_table(title: str, sentences: list[str]) -> Table:
    """One sentence per row, so that wrapped lines stay under their own sentence."""
    table = _table(title, [""], names=1)
    table.show_header = False
    for sentence in sentences:
        _add(table, sentence)
    return table


def _add(table: Table, *cells: Any) -> None:
    """A row of plain text: brackets in a label's name are not markup."""
    from rich.text import Text

    table.add_row(
        *(Text(_clean(cell) if isinstance(cell, str) else _number(cell)) for cell in cells)
    )


def _clean(text: str) -> str:
    """Without what would move the cursor or colour the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


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


def _verb(count: int, verb: str, singular: str | None = None) -> str:
    return singular or verb + "s" if count == 1 else verb


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
