"""What readers yield (a document, a problem, an omitted record), and how to read: ReadOptions.

Readers only yield problems; `collect.py` raises or counts them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

from longtail.checks import check_choice, check_number
from longtail.errors import InputError, printable, shown
from longtail.settings import setting

OnError = Literal["raise", "skip"]
MAX_EXAMPLES = 5
MEGABYTE = 1_000_000
MAX_RECORD_MB = 64.0
SAVED_FIELDS: dict[str, Any] = {"known_field": "known", "weight_field": "weight"}
"""The names of these fields in files that longtail writes."""
# Quoted text and numbers differ between records with the same problem.
VARIABLE = re.compile(r"'[^']*'|\"[^\"]*\"|\d+")
PARTS = ("train", "validation", "test")
PART_NAMES = {part: part for part in PARTS} | {"training": "train"}
PART_NAMES |= dict.fromkeys(("valid", "val", "dev"), "validation")


class Document(NamedTuple):
    """A text with its labels; `at` is its line, row or item in the file."""

    text: str
    labels: Sequence[str]
    id: str | None = None
    date: str | None = None
    """ISO 8601 as far as known: 1987, 1987-02 or 1987-02-26. Dates sort as strings."""
    part: str | None = None
    """`train`, `validation` or `test` if the source is divided into parts."""
    at: int | str = ""
    known: Sequence[str] | None = None
    """The labels that were checked; those in `labels` always count as checked. None: all."""
    weight: float | None = None
    """Weight in training; None: 1."""


class RecordError(ValueError):
    """A record that cannot be read as a document, and its place; readers yield or raise it."""

    def __init__(self, message: str, at: int | str = "") -> None:
        super().__init__(message)
        self.at = at


class Omitted(NamedTuple):
    """A record that is not a document, and the counter of ReadReport that counts it."""

    what: str
    counter: Literal["passed_over", "left_out"] = "passed_over"


class LabelNames(NamedTuple):
    """All labels of the source in its order, including those without documents."""

    names: tuple[str, ...]


class FieldNames(NamedTuple):
    """Fields of the records, those that the options name among them if a record has them."""

    names: Collection[str]


Record = Document | RecordError | Omitted | LabelNames | FieldNames
Records = Generator[Record, None, None]
"""What a reader returns; closing it closes the file."""


def attempt(parse: Callable[..., Record], at: int | str, *args: Any) -> Record:
    """Return the parsed record, or the error of `parse` with the record's place."""
    try:
        return parse(at, *args)
    except ValueError as error:
        # A new error: the traceback would keep the record in memory.
        return RecordError(str(error), at)


@dataclass(frozen=True)
class ReadOptions:
    """Reading options; the same names in Python and, with dashes, as flags."""

    text_field: str = setting(
        "text",
        "Field or column of the text; several, as in `title,abstract`, are joined by a newline.",
        common=True,
    )
    labels_field: str | None = setting("labels", "Field or column of the labels.", common=True)
    id_field: str = setting("id", "Field or column of the id; optional in the data.", common=True)
    date_field: str = setting(
        "date", "Field or column of the date; optional in the data.", common=True
    )
    known_field: str | None = setting(
        None,
        "Field or column of the labels that were checked; the others are unknown. A document "
        "without it has all labels checked.",
    )
    weight_field: str | None = setting(
        None, "Field or column of a document's weight in training; a document without it has 1."
    )
    label_separator: str | None = setting(
        None, "Separator of the labels in one string, such as `;`.", common=True
    )
    label_columns: str | None = setting(
        None,
        "Columns that hold 0 or 1 for one label each (unknown: -1, NA, nan, ?): names separated by "
        "commas, or `*` for all other columns.",
        common=True,
    )
    delimiter: str | None = setting(
        None, "Separator of cells; default: a comma, in .tsv files a tab.", common=True
    )
    quote: str = setting(
        "double", "CSV and TSV: `double` if quotes enclose cells, `none` if they are plain text."
    )
    encoding: str | None = setting(
        None, "Text encoding; default: UTF-8, for Reuters and NLTK files Latin-1.", common=True
    )
    on_error: OnError = setting(  # noqa: RUF009
        "raise",
        "`raise` stops at the first bad record; `skip` skips and counts bad records.",
        common=True,
    )
    keep_unlabelled: bool = setting(
        False, "Keep documents without labels as examples of no label; else they are bad records."
    )
    years: str | None = setting(None, "Only documents of these years: `2020` or `2020-2021`.")
    major_topics: bool = setting(False, "MEDLINE: only the major topics of an article.")
    max_record_mb: float = setting(
        MAX_RECORD_MB,
        "Maximum size of a document, line or archive member in MB; a larger one is a bad record, "
        "so that a small file cannot unpack to more than the memory.",
    )

    @cached_property
    def max_record(self) -> int:
        """`max_record_mb` in bytes, or in characters where text is read."""
        return int(self.max_record_mb * MEGABYTE)

    @cached_property
    def other_fields(self) -> list[str]:
        """The names of the optional fields of a document."""
        names = (self.id_field, self.date_field, self.known_field, self.weight_field)
        return [name for name in names if name is not None]

    @cached_property
    def text_fields(self) -> list[str]:
        """The fields whose values are joined to the text."""
        return [field.strip() for field in self.text_field.split(",")]

    @cached_property
    def year_range(self) -> tuple[int, int] | None:
        """The first and last year, or None."""
        if self.years is None:
            return None
        match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", str(self.years))
        first, last = map(int, (match[1], match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise InputError(
                f"years must look like 2020 or, ascending, 2020-2021, got {shown(self.years)}."
            )
        return first, last

    def __post_init__(self) -> None:
        for name, kind in self.__annotations__.items():
            value = getattr(self, name)
            if kind.startswith("str") and name != "years" and not isinstance(value, str | None):
                write = ""
                if name in ("text_field", "label_columns") and isinstance(value, list | tuple):
                    write = f" Write {','.join(map(str, value))!r:.60}."
                raise InputError(f"{name} must be a string, got {value!r:.60}.{write}")
        check_choice("on_error", self.on_error, ("raise", "skip"))
        check_choice("quote", self.quote, ("double", "none"))
        if self.label_separator == "":
            raise InputError("label_separator must not be empty.")
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            what = "one character, neither a quote nor a newline"
            raise InputError(f"delimiter must be {what}, got {self.delimiter!r}.")
        if self.label_separator is not None and self.label_columns is not None:
            raise InputError("label_separator and label_columns cannot be combined.")
        if self.known_field is not None and self.label_columns is not None:
            raise InputError(
                "known_field and label_columns cannot be combined: write ? where it is unknown "
                "whether the label of a column applies."
            )
        _ = self.year_range  # raises for a wrong one
        # Python's strings have at most 2^63 - 1 characters.
        check_number("max_record_mb", self.max_record_mb, 0.001, 1_000_000)
        try:
            "".encode(self.encoding or "utf-8")
        except (LookupError, ValueError) as error:
            message = f"{self.encoding!r:.60} is not a text encoding. Try utf-8 or latin-1."
            raise InputError(message) from error


@dataclass
class ReadReport:
    """Counts of records read, skipped and omitted, with reasons; filled by `read_data`."""

    documents: int = 0
    skipped: int = 0
    examples: list[str] = field(default_factory=list)
    """The first skipped record of each kind, with its file and line; at most five."""
    kinds: Counter[str] = field(default_factory=Counter)
    """Kind of problem -> number of records skipped."""
    passed_over: Counter[str] = field(default_factory=Counter)
    """Reason -> number of records that the format expects not to be documents."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Description -> number of omissions that a user would not expect."""
    fields: dict[str, None] = field(default_factory=dict)
    """Fields of the records, in order."""
    remembered: Collection[str] = ()
    """Reading options that come from a run: if no document has their field, it is no error."""
    notes: list[str] = field(default_factory=list)
    """Notes on the documents as a whole, such as rare labels that were left out."""

    def skip(self, place: str, reason: str) -> None:
        """Count a bad record."""
        kind = VARIABLE.sub("", reason.partition(". ")[0])
        if kind not in self.kinds and len(self.examples) < MAX_EXAMPLES:
            self.examples.append(f"{place}: {reason}")
        self.kinds[kind] += 1
        self.skipped += 1

    def add(self, later: ReadReport) -> None:
        """Add the report of a later file."""
        for kind, example in zip(later.kinds, later.examples, strict=False):
            if kind not in self.kinds and len(self.examples) < MAX_EXAMPLES:
                self.examples.append(example)
        for name in ("kinds", "passed_over", "left_out"):
            getattr(self, name).update(getattr(later, name))
        self.documents += later.documents
        self.skipped += later.skipped
        self.fields |= later.fields
        self.notes += later.notes

    def lines(self) -> list[str]:
        """Return the report as text, one sentence per line; empty if everything was read."""
        lines = []
        if self.skipped:
            were = "1 bad record was" if self.skipped == 1 else f"{self.skipped:,} bad records were"
            lines.append(
                f"{were} skipped of {self.documents + self.skipped:,}; the first of each kind:"
            )
            counts = list(self.kinds.values())
            lines += [f"  {n:,}: {first}" for n, first in zip(counts, self.examples, strict=False)]
            if rest := counts[len(self.examples) :]:
                lines.append(f"  {sum(rest):,}: other kinds")
        for reason, n in self.passed_over.items():
            lines.append(f"{n:,} record{'s' * (n != 1)} passed over: {reason}.")
        lines += [f"{n:,} left out: {what}." for what, n in self.left_out.items()]
        # File names may hold control characters.
        return [printable(line).replace("\n", "\\n") for line in lines + self.notes]
