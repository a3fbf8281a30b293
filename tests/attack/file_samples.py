"""Small valid files of every format that longtail reads, with the documents in them.

A sample is a set of files, since some sources are folders; `pieces` are the lines of its records,
by which the verdict knows the records that are intact in damaged bytes.
"""

from __future__ import annotations

import gzip
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from longtail.data import TextData, write_data
from longtail.runs.files import files_in

from ..data import cases

TEXTS = (
    "Copper rose, nickel fell.",
    "Größe und Maß — 3 µg",
    'He said "wheat", then left; twice.',
    "日本語のテキスト",
    ("A longer text. " * 12).strip(),
    "tin & zinc <in> brackets [1]",
)
LABELS = (
    ("copper", "nickel"),
    ("größe",),
    ("wheat",),
    ("misc", "日本"),
    ("long",),
    ("tin", "zinc"),
)
# Reuters and NLTK are read as Latin-1, with labels without white space.
PLAIN = tuple(text.encode("ascii", "ignore").decode().strip() or "text" for text in TEXTS)
PLAIN_LABELS = tuple(tuple(f"l{ord(name[0])}" for name in names) for names in LABELS)
Documents = list[tuple[str, tuple[str, ...], str]]


@dataclass(frozen=True)
class Sample:
    """One source: its files by name, the path to read, and its documents."""

    format: str
    files: dict[str, bytes]
    source: str
    documents: Documents
    pieces: list[bytes] = field(default_factory=list)
    packed: bool = False
    """Whether the files are gzipped, so that a checksum covers them."""


def _documents(texts: Any, labels: Any, prefix: str = "") -> Documents:
    rows = enumerate(zip(texts, labels, strict=True), start=1)
    return [(text, tuple(sorted(names)), f"{prefix}{k}") for k, (text, names) in rows]


DOCUMENTS = _documents(TEXTS, LABELS)
TITLED = _documents([f"Title {k}. {text}" for k, text in enumerate(TEXTS, start=1)], LABELS)
PLAIN_DOCUMENTS = _documents(PLAIN, PLAIN_LABELS, "training/")


def _file(format: str, name: str, content: bytes, documents: Documents = DOCUMENTS) -> Sample:
    return Sample(format, {name: content}, name, documents)


def _written(format: str, name: str) -> Sample:
    """A file written by longtail."""
    texts, labels, ids = zip(*DOCUMENTS, strict=True)
    with tempfile.TemporaryDirectory() as folder:
        write_data(TextData.from_lists(texts, labels, ids=ids), Path(folder) / name, format)
        content = (Path(folder) / name).read_bytes()
    return Sample(format, {name: content}, name, DOCUMENTS, content.split(b"\n")[:-1])


def _libmultilabel() -> Sample:
    lines = [f"{i}\t{' '.join(names)}\t{text}".encode() for text, names, i in DOCUMENTS]
    content = b"".join(line + b"\n" for line in lines)
    return Sample("libmultilabel", {"a.txt": content}, "a.txt", DOCUMENTS, lines)


def _bioasq() -> Sample:
    rows = [
        cases.article(int(i), abstractText=text, meshMajor=list(names))
        for text, names, i in DOCUMENTS
    ]
    return _file("bioasq", "a.json", cases.bioasq(*rows), TITLED)


def _medline() -> Sample:
    citations = [
        cases.citation(
            int(i),
            abstract=f"<Abstract><AbstractText>{escape(text)}</AbstractText></Abstract>",
            headings="".join(cases.heading(escape(name)) for name in names),
        )
        for text, names, i in DOCUMENTS
    ]
    return _file("medline", "a.xml", cases.xml(*citations), TITLED)


def _reuters() -> Sample:
    documents = [(f"T\n{text}", names, i) for text, names, i in PLAIN_DOCUMENTS]
    stories = [
        cases.story(
            int(i.split("/")[1]),
            names,
            text=f"<TITLE>T</TITLE>\n<BODY>{escape(text)}\n REUTER\n&#3;</BODY>",
        )
        for text, names, i in PLAIN_DOCUMENTS
    ]
    files = {
        "reut2-000.sgm": cases.sgml(*stories[:3]),
        "reut2-001.sgm": cases.sgml(*stories[3:]),
    }
    return Sample("reuters", files, "", documents)


def _nltk() -> Sample:
    cats = "".join(f"{i} {' '.join(n)}\n" for _, n, i in PLAIN_DOCUMENTS).encode()
    files = {"cats.txt": cats} | {i: t.encode() for t, _, i in PLAIN_DOCUMENTS}
    return Sample("nltk", files, "", PLAIN_DOCUMENTS)


def _hugging_face() -> Sample:
    import datasets

    texts, labels, ids = zip(*DOCUMENTS, strict=True)
    rows = datasets.Dataset.from_dict({"id": ids, "text": texts, "labels": list(map(list, labels))})
    with tempfile.TemporaryDirectory() as name:
        datasets.disable_progress_bars()
        datasets.DatasetDict({"train": rows}).save_to_disk(name)
        files = {file: (Path(name) / file).read_bytes() for file in files_in(Path(name))}
    return Sample("huggingface", files, "", DOCUMENTS)


def _gzipped(sample: Sample) -> Sample:
    """The same source with its file gzipped."""
    ((name, content),) = sample.files.items()
    name = "a.tar.gz" if name == "a.tar" else name
    packed = {name: gzip.compress(content, mtime=0)}
    return Sample(sample.format, packed, name, sample.documents, packed=True)


def samples() -> dict[str, Sample]:
    """Return all samples by name, including gzipped ones."""
    stories = _reuters()
    packable = {
        "jsonl": _written("jsonl", "a.jsonl"),
        "csv": _written("csv", "a.csv"),
        "tsv": _written("tsv", "a.tsv"),
        "libmultilabel": _libmultilabel(),
        "bioasq": _bioasq(),
        "medline": _medline(),
        "reuters tar": _file("reuters", "a.tar", cases.tar_of(stories.files), stories.documents),
    }
    others = {
        "parquet": _written("parquet", "a.parquet"),
        "reuters folder": stories,
        "nltk folder": _nltk(),
        "huggingface": _hugging_face(),
    }
    packed = {f"{name} gz": _gzipped(sample) for name, sample in packable.items()}
    return packable | others | packed
