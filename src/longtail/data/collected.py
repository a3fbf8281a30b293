"""The documents of one or several files as they come, and the report of what did not come.

A collector takes records from a reader, checks what every format must keep, and raises or counts
what is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from longtail.data.documents import (
    MAX_EXAMPLES,
    Document,
    LabelNames,
    LeftOut,
    PassedOver,
    Problem,
    ReadOptions,
    ReadReport,
    Record,
    parse_range,
)
from longtail.data.limits import shown
from longtail.data.textdata import TextData
from longtail.errors import DataError, LongtailError
from longtail.labels import LabelEncoder


@dataclass
class Collected:
    """Documents as they come, labels already encoded; `data` makes TextData of them."""

    options: ReadOptions
    texts: list[str] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)
    dates: list[str | None] = field(default_factory=list)
    parts: list[str | None] = field(default_factory=list)
    labels: LabelEncoder = field(default_factory=LabelEncoder)
    report: ReadReport = field(default_factory=ReadReport)
    known_ids: set[str] = field(default_factory=set)
    places: list[int | str] | None = None
    """Where each document stood; kept by a process that reads one of several files."""
    example_rows: list[int] = field(default_factory=list)
    """How many documents came before each of the report's examples."""
    failure: tuple[type[LongtailError], str] | None = None
    """The error that ended the reading in another process."""

    def __post_init__(self) -> None:
        years = self.options.years
        self.years = None if years is None else parse_range(years, "years", "2020-2021")

    def add(self, record: Record, source: str, unit: str) -> None:
        """Take one record; what is wrong with it is raised or counted."""
        if isinstance(record, Document) and self.years is not None:
            record = self._of_these_years(record, *self.years)
        if isinstance(record, Document):
            why = self._wrong(record)
            if why is None:
                if self.places is not None:
                    self.places.append(record.at)
                self._take(record)
                return
            record = Problem(record.at, why)
        if isinstance(record, Problem):
            self._trouble(f"{_place(record.at, source, unit)}: {record.message}")
        elif isinstance(record, PassedOver):
            self.report.passed_over[record.reason] += 1
        elif isinstance(record, LeftOut):
            self.report.left_out[record.what] += record.times
        elif isinstance(record, LabelNames):
            self.labels.declare(record.names)

    def extend(self, other: Collected, source: str, unit: str) -> None:
        """Take the documents of another file, as if one had read it oneself after one's own."""
        places = other.places or []
        twice = [k for k, name in enumerate(other.ids) if name in self.known_ids]
        found = [
            (k, f"{_place(places[k], source, unit)}: {_duplicate(other.ids[k])}") for k in twice
        ]
        if found and self.options.on_error == "raise":
            raise DataError(found[0][1])
        if other.failure is not None:
            kind, message = other.failure
            # Not kind(message): some errors make their message of several arguments.
            raise kind.__new__(kind, message)
        # Of the same number of documents, an example was met before the document that follows.
        found = [*zip(other.example_rows, other.report.examples, strict=True), *found]
        found.sort(key=lambda row_and_message: row_and_message[0])
        other.report.examples = [message for _, message in found]
        other.report.skipped += len(twice)
        if twice:
            other = other.without(set(twice))
        self.report.add(other.report)
        self.known_ids |= other.known_ids
        self.texts += other.texts
        self.ids += other.ids
        self.dates += other.dates
        self.parts += other.parts
        self.labels.extend(other.labels)

    def without(self, rows: set[int]) -> Collected:
        """The same documents but for some rows."""
        kept = Collected(self.options, report=self.report)
        kept.report.documents = 0
        kept.labels.declare(self.labels.declared)
        names = list(self.labels.index)
        starts, columns = self.labels.row_starts, self.labels.columns
        for row, text in enumerate(self.texts):
            if row not in rows:
                labels = [names[k] for k in columns[starts[row] : starts[row + 1]]]
                kept._take(Document(text, labels, self.ids[row], self.dates[row], self.parts[row]))
        return kept

    def data(self) -> TextData:
        """The documents; ids and dates only where the source has them for some."""
        matrix, names = self.labels.finish()
        ids = dates = None
        if self.known_ids:
            ids = tuple(self._made_up(k) if n is None else n for k, n in enumerate(self.ids))
        if any(date is not None for date in self.dates):
            dates = tuple("" if date is None else date for date in self.dates)
        return TextData(self.texts, matrix, names, ids, dates)

    def _made_up(self, row: int) -> str:
        identity = f"#{row}"
        while identity in self.known_ids:
            identity = f"#{identity}"
        return identity

    def _take(self, document: Document) -> None:
        if document.id is not None:
            self.known_ids.add(document.id)
        self.labels.add(document.labels)
        if document.n_empty_labels:
            self.report.left_out["empty label between separators"] += document.n_empty_labels
        self.texts.append(document.text)
        self.ids.append(document.id)
        self.dates.append(document.date)
        self.parts.append(document.part)
        self.report.documents += 1

    def _of_these_years(self, document: Document, first: int, last: int) -> Document | PassedOver:
        year = (document.date or "")[:4]
        if not (len(year) == 4 and year.isdecimal()):
            return PassedOver("no date")
        inside = first <= int(year) <= last
        return document if inside else PassedOver(f"not of the years {first}-{last}")

    def _wrong(self, document: Document) -> str | None:
        if not document.text.strip():
            return "the text is empty."
        if not document.labels and not self.options.keep_unlabelled:
            return (
                "the document has no labels. Skip such documents with on_error='skip' (--on-error "
                "skip), or keep them as examples of no label with keep_unlabelled=True "
                "(--keep-unlabelled)."
            )
        if any(not name.strip() for name in document.labels):
            return f"a label is empty: {shown(list(document.labels))}."
        if document.id in self.known_ids:
            return _duplicate(document.id)
        return None

    def _trouble(self, message: str) -> None:
        if self.options.on_error == "raise":
            raise DataError(message)
        self.report.skipped += 1
        if len(self.report.examples) < MAX_EXAMPLES:
            self.report.examples.append(message)
            self.example_rows.append(len(self.texts))


def _place(at: int | str, source: str, unit: str) -> str:
    return f"{source}, {unit} {at}" if isinstance(at, int) else f"{source}, {at}"


def _duplicate(identity: str | None) -> str:
    return f"the id {shown(identity)} is already taken by another document."
