"""FORMATS: the suffixes and the reader of each format; `write_data`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from longtail.data import tables
from longtail.data.arrow import NAMES_KEY, read_hugging_face, read_parquet
from longtail.data.documents import ReadOptions, Records
from longtail.data.files import Tick
from longtail.data.json_files import read_bioasq, read_jsonl
from longtail.data.medline import read_medline
from longtail.data.nltk import read_nltk
from longtail.data.reuters_sgml import read_reuters
from longtail.data.textdata import TextData
from longtail.data.writing import replacing, write_rows
from longtail.errors import DataError, UnknownNameError
from longtail.progress import OnProgress, Progress, ignore

SUMMARIES = {
    "jsonl": 'one {"text": ..., "labels": [...]} per line',
    "csv": "a header; labels in one cell, or one column per label",
    "tsv": "the same with tabs",
    "parquet": "columns text and labels",
    "huggingface": "a folder of save_to_disk, or hf:owner/name; needs the extra hf",
    "libmultilabel": "lines of id, labels and text separated by tabs",
    "text": "one text per line, without labels: for predict",
    "bioasq": '{"articles": [...]} of BioASQ Task A',
    "medline": "MEDLINE/PubMed XML, one file or a folder",
    "reuters": "Reuters-21578 SGML: a folder, a tar.gz, or one file",
    "nltk": "an NLTK corpus with cats.txt: a folder or a zip",
}

WRITTEN = ("id", "text", "labels", "date", "known", "weight")
TYPES = {"text": str, "labels": list[str], "known": list[str], "weight": pa.float64()}


@dataclass(frozen=True)
class Format:
    """One file format of documents with labels."""

    name: str
    read: Callable[[Any, ReadOptions, Tick], Records]
    suffixes: tuple[str, ...] = ()
    write: bool = False
    """Whether longtail can write it."""
    marks: tuple[str, ...] = ()
    """File patterns that mark a folder as one source, which may contain its own parts."""

    @property
    def summary(self) -> str:
        return SUMMARIES[self.name]


def _packed(*suffixes: str) -> tuple[str, ...]:
    return suffixes + tuple(suffix + ".gz" for suffix in suffixes)


_SAVED = ("dataset_dict.json", "dataset_info.json")
_SGML = (".tar.gz", ".tgz", ".tar", ".sgm")
_TABLE = (
    Format("jsonl", read_jsonl, _packed(".jsonl", ".ndjson"), write=True),
    Format("csv", tables.read_csv, _packed(".csv"), write=True),
    Format("tsv", tables.read_tsv, _packed(".tsv"), write=True),
    Format("parquet", read_parquet, (".parquet",), write=True),
    Format("huggingface", read_hugging_face, marks=_SAVED),
    Format("libmultilabel", tables.read_libmultilabel, _packed(".txt")),
    Format("text", tables.read_text),
    Format("bioasq", read_bioasq, _packed(".json")),
    Format("medline", read_medline, _packed(".xml")),
    Format("reuters", read_reuters, _SGML, marks=("reut2-*.sgm",)),
    Format("nltk", read_nltk, (".zip",), marks=("cats.txt",)),
)
FORMATS = {entry.name: entry for entry in _TABLE}


def get_format(name: str) -> Format:
    if name not in FORMATS:
        raise UnknownNameError("format", name, FORMATS)
    return FORMATS[name]


def format_of_file(path: Path) -> Format | None:
    """Return the format of a file's suffix, or None."""
    name = path.name.lower()
    return next((entry for entry in FORMATS.values() if name.endswith(entry.suffixes)), None)


def format_of_folder(path: Path) -> Format | None:
    """Return the format of a folder that is one source; None for any other folder."""
    entries = FORMATS.values()
    return next((e for e in entries if any(any(path.glob(m)) for m in e.marks)), None)


def write_data(
    data: TextData,
    path: str | Path,
    format: str | None = None,
    *,
    progress: OnProgress = ignore,
) -> None:
    """Write documents in the given format; default: by the suffix."""
    entry = get_format(format) if format else format_of_file(Path(path))
    if entry is None or not entry.write:
        what = f"the suffix of {path}" if entry is None else f"the format {entry.name!r}"
        writers = ", ".join(known.name for known in FORMATS.values() if known.write)
        raise DataError(f"longtail cannot write {what}; it writes these formats: {writers}.")
    columns = {name: TYPES.get(name, pa.string()) for name in data.fields}
    as_json = partial(json.dumps, ensure_ascii=False)
    with replacing(path) as temporary:
        records = _records(data, Path(path).name, progress)
        # Parquet keeps all label names, including labels without documents.
        names = {NAMES_KEY: as_json(data.label_names).encode()}
        write_rows(temporary, path, entry.name, columns, records, as_json, names)


def _records(data: TextData, name: str, progress: OnProgress) -> Iterator[dict[str, Any]]:
    for number, document in enumerate(data):
        if number % 500 == 0:
            progress(Progress(f"writing {name}", number, len(data)))
        record = {name: getattr(document, name) for name in WRITTEN}
        yield {name: value for name, value in record.items() if value is not None}
    progress(Progress(f"writing {name}", len(data), len(data)))
