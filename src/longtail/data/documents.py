"""What a reader gives, one record at a time: a document, a problem, or a record passed over.

A reader never decides what a problem means; `collect.py` raises it or counts it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from longtail.errors import InputError

OnError = Literal["raise", "skip"]
MAX_EXAMPLES = 5


class Document(NamedTuple):
    """One text with its labels; `at` is the line, row or item it came from."""

    text: str
    labels: Sequence[str]
    id: str | None = None
    date: str | None = None
    """ISO 8601 as far as it is known: 1987, 1987-02 or 1987-02-26. Later dates sort later."""
    part: str | None = None
    """`train` or `test` where the source itself says so."""
    at: int | str = ""


class Problem(NamedTuple):
    """Something that cannot be read as a document, and where."""

    at: int | str
    message: str


class PassedOver(NamedTuple):
    """A record that is sound but no document of this kind: a citation without abstract, say."""

    reason: str


class LabelNames(NamedTuple):
    """All labels of the source, in its order, those without documents included."""

    names: tuple[str, ...]


Record = Document | Problem | PassedOver | LabelNames
Records = Generator[Record, None, None]
"""What a reader gives; closing it closes the file."""


def _option(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class ReadOptions:
    """How to read documents; the same names in Python and, with dashes, as flags."""

    text_field: str = _option(
        "text",
        "Field or column of the text; several, as in `title,abstract`, are joined by a newline.",
    )
    labels_field: str = _option("labels", "Field or column of the labels.")
    id_field: str = _option("id", "Field or column of the id; it may be absent.")
    date_field: str = _option("date", "Field or column of the date; it may be absent.")
    label_separator: str | None = _option(
        None, "Between the labels of one cell or string, such as `;`."
    )
    label_columns: str | None = _option(
        None,
        "One column per label, holding 0 and 1: their names with commas, or `*` for all others.",
    )
    delimiter: str | None = _option(
        None, "Between the cells of CSV; default a comma, in .tsv files a tab."
    )
    quote: str = _option(
        "double", "CSV and TSV: `double` quotes enclose cells, or `none`: quotes are text."
    )
    encoding: str | None = _option(
        None, "Of the file's text; default UTF-8, for Reuters and NLTK files Latin-1."
    )
    on_error: OnError = _option(  # noqa: RUF009
        "raise", "`raise` stops at the first bad record; `skip` leaves it out and counts it."
    )
    keep_unlabelled: bool = _option(
        False,
        "Keep documents without labels, as examples of no label, instead of calling them bad.",
    )
    years: str | None = _option(
        None, "Only documents dated in these years, as `2020` or `2020-2021`."
    )
    major_topics: bool = _option(
        False, "MEDLINE: only the headings that are a major topic of the article."
    )

    def __post_init__(self) -> None:
        if self.on_error not in ("raise", "skip"):
            raise InputError(f"on_error must be 'raise' or 'skip', got {self.on_error!r}.")
        if self.label_separator == "":
            raise InputError(
                "label_separator must not be empty. Leave it out, or give one like ';'."
            )
        if self.quote not in ("double", "none"):
            raise InputError(f"quote must be 'double' or 'none', got {self.quote!r}.")
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise InputError(
                "delimiter must be one character, neither a quote nor a newline, got "
                f"{self.delimiter!r}."
            )
        if self.label_separator is not None and self.label_columns is not None:
            raise InputError(
                "label_separator and label_columns exclude each other: the labels are in one "
                "column, or in one column each."
            )
        if self.years is not None:
            object.__setattr__(self, "years", str(self.years))
            parse_range(str(self.years), "years", "2020 or 2020-2021")
        if self.encoding is not None:
            try:
                "".encode(self.encoding)
            except (LookupError, ValueError) as error:
                raise InputError(
                    f"unknown encoding {self.encoding!r}. Try utf-8, latin-1 or cp1252."
                ) from error


@dataclass
class ReadReport:
    """What was read, what was left out, and why: fill one by passing it to `read_data`."""

    documents: int = 0
    skipped: int = 0
    examples: list[str] = field(default_factory=list)
    """The first few of the skipped, each with its file and line."""
    passed_over: Counter[str] = field(default_factory=Counter)
    """Reason -> number of records that are no documents of this kind."""
    notes: list[str] = field(default_factory=list)
    """What a corpus did after reading, such as leaving out rare labels."""

    def add(self, other: ReadReport) -> None:
        self.documents += other.documents
        self.skipped += other.skipped
        self.examples = (self.examples + other.examples)[:MAX_EXAMPLES]
        self.passed_over.update(other.passed_over)
        self.notes += other.notes

    def lines(self) -> list[str]:
        """What a person should know, one sentence per line; nothing if all was read."""
        said = []
        if self.skipped:
            count = "1 bad record was" if self.skipped == 1 else f"{self.skipped} bad records were"
            said.append(f"{count} skipped; the first of them:")
            said += [f"  {example}" for example in self.examples]
        for why, n in self.passed_over.items():
            said.append(f"{n} record{'' if n == 1 else 's'} passed over: {why}.")
        return said + self.notes


def parse_range(text: str, name: str, example: str) -> tuple[int, int]:
    """The first and last of a range such as 3-7, or of a single number."""
    first, dash, last = text.partition("-")
    if not dash:
        last = first
    if not (first.strip().isdecimal() and last.strip().isdecimal()):
        raise InputError(f"{name} must look like {example}, got {text!r}.")
    low, high = int(first), int(last)
    if low > high:
        raise InputError(f"{name} must go upwards, got {text!r}.")
    return low, high
