"""The table of formats: which suffix or folder is read by which reader, and who can write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longtail.data.bioasq import read_bioasq
from longtail.data.documents import ReadOptions, Records
from longtail.data.files import Tick, Written
from longtail.data.hugging_face import read_hugging_face
from longtail.data.jsonl import read_jsonl, write_jsonl
from longtail.data.medline import read_medline
from longtail.data.nltk import read_nltk
from longtail.data.parquet import read_parquet, write_parquet
from longtail.data.reuters_sgml import read_reuters
from longtail.data.tables import (
    read_csv,
    read_libmultilabel,
    read_tsv,
    write_csv,
    write_libmultilabel,
    write_tsv,
)
from longtail.data.textdata import TextData
from longtail.errors import DataError, UnknownNameError


@dataclass(frozen=True)
class Format:
    """One way in which documents with labels are kept."""

    name: str
    summary: str
    read: Callable[[Any, ReadOptions, Tick], Records]
    suffixes: tuple[str, ...] = ()
    write: Callable[[TextData, str | Path, Written | None], None] | None = None
    unit: str = "line"
    """What a number in a problem counts."""
    folder_marks: tuple[str, ...] = ()
    """Patterns of files that make a whole folder one source of this format."""
    folder_suffix: str | None = None
    """How the files end that are read in such a folder, if its other data files are to be told."""
    slow: bool = False
    """Whether parsing takes much longer than handing the texts to another process."""
    has_parts: bool = False
    """Whether the source itself says which documents are for training and which for testing."""


def _packed(*suffixes: str) -> tuple[str, ...]:
    return suffixes + tuple(suffix + ".gz" for suffix in suffixes)


_TABLE = (
    Format(
        "jsonl",
        'one {"text": ..., "labels": [...]} per line',
        read_jsonl,
        _packed(".jsonl", ".ndjson"),
        write_jsonl,
    ),
    Format(
        "csv",
        "a header; labels in one cell, or one column per label",
        read_csv,
        _packed(".csv"),
        write_csv,
    ),
    Format("tsv", "the same with tabs", read_tsv, _packed(".tsv"), write_tsv),
    Format(
        "parquet",
        "columns text and labels",
        read_parquet,
        (".parquet",),
        write_parquet,
        unit="row",
    ),
    Format(
        "huggingface",
        "a folder of save_to_disk, or hf:owner/name; needs the extra hf",
        read_hugging_face,
        folder_marks=("dataset_dict.json", "dataset_info.json"),
        has_parts=True,
    ),
    Format(
        "libmultilabel",
        "lines of id, labels and text separated by tabs",
        read_libmultilabel,
        _packed(".txt"),
        write_libmultilabel,
    ),
    Format(
        "bioasq",
        '{"articles": [...]} of BioASQ Task A',
        read_bioasq,
        _packed(".json"),
        unit="article",
    ),
    Format(
        "medline",
        "MEDLINE/PubMed XML, one file or a folder",
        read_medline,
        _packed(".xml"),
        unit="citation",
        slow=True,
    ),
    Format(
        "reuters",
        "Reuters-21578 SGML: a folder, a tar.gz, or one file",
        read_reuters,
        (".tar.gz", ".tgz", ".tar", ".sgm"),
        folder_marks=("reut2-*.sgm",),
        folder_suffix=".sgm",
        has_parts=True,
    ),
    Format(
        "nltk",
        "an NLTK corpus with cats.txt: a folder or a zip",
        read_nltk,
        (".zip",),
        folder_marks=("cats.txt",),
        has_parts=True,
    ),
)
FORMATS = {entry.name: entry for entry in _TABLE}


def list_formats() -> list[str]:
    """The names that `format` (--format) takes."""
    return list(FORMATS)


def get_format(name: str) -> Format:
    if name not in FORMATS:
        raise UnknownNameError("format", name, FORMATS)
    return FORMATS[name]


def format_of_file(path: Path) -> Format | None:
    """The format that a file's suffix names."""
    name = path.name.lower()
    for entry in FORMATS.values():
        if name.endswith(entry.suffixes):
            return entry
    return None


def format_of_folder(path: Path) -> Format | None:
    """The format of which the whole folder is one source; None for a folder of parts."""
    for entry in FORMATS.values():
        if any(next(path.glob(mark), None) for mark in entry.folder_marks):
            return entry
    return None


def write_data(
    data: TextData,
    path: str | Path,
    format: str | None = None,
    *,
    progress: Written | None = None,
) -> None:
    """Write documents in the format of the suffix, or in the one named.

    `progress` is called with the documents written so far and in all.
    """
    entry = get_format(format) if format else format_of_file(Path(path))
    writers = [known.name for known in FORMATS.values() if known.write]
    if entry is None or entry.write is None:
        what = f"the suffix of {path}" if entry is None else f"the format {entry.name!r}"
        raise DataError(
            f"longtail cannot write {what}. Give a file a suffix such as .jsonl, .jsonl.gz or "
            f".parquet, or name a format: {', '.join(writers)}."
        )
    entry.write(data, path, progress)
