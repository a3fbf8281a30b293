"""Small valid files of every format that longtail reads, with the documents in them.

A sample is a set of files, since some sources are folders; `pieces` are the bytes of its records,
by which the verdict knows the records that are intact in damaged bytes.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

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
# Reuters and NLTK are read as Latin-1, and their labels hold no white space.
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
    """Whether damage falls on packed bytes, which a checksum covers."""


def _documents(texts: Any, labels: Any, prefix: str = "") -> Documents:
    rows = enumerate(zip(texts, labels, strict=True), start=1)
    return [(text, tuple(sorted(names)), f"{prefix}{k}") for k, (text, names) in rows]


DOCUMENTS = _documents(TEXTS, LABELS)
PLAIN_DOCUMENTS = _documents(PLAIN, PLAIN_LABELS, "training/")


def _file(format: str, name: str, pieces: list[bytes], head: bytes = b"") -> Sample:
    """One file with a record per line."""
    return Sample(format, {name: head + b"\n".join(pieces) + b"\n"}, name, DOCUMENTS, pieces)


def _jsonl() -> Sample:
    rows = [{"id": i, "text": t, "labels": list(n)} for t, n, i in DOCUMENTS]
    lines = [json.dumps(row, ensure_ascii=False).encode() for row in rows]
    return _file("jsonl", "a.jsonl", lines)


def _table(suffix: str, delimiter: str) -> Sample:
    def line(row: list[str]) -> bytes:
        stream = io.StringIO()
        csv.writer(stream, delimiter=delimiter, lineterminator="").writerow(row)
        return stream.getvalue().encode()

    rows = [line([i, t, json.dumps(n)]) for t, n, i in DOCUMENTS]
    return _file(suffix, f"a.{suffix}", rows, line(["id", "text", "labels"]) + b"\n")


def _libmultilabel() -> Sample:
    lines = [f"{i}\t{' '.join(n)}\t{t}".encode() for t, n, i in DOCUMENTS]
    return _file("libmultilabel", "a.txt", lines)


def _parquet() -> Sample:
    from longtail.data import TextData, write_data

    texts, labels, ids = zip(*DOCUMENTS, strict=True)
    with tempfile.TemporaryDirectory() as name:
        write_data(TextData.from_lists(texts, labels, ids=ids), Path(name) / "a.parquet")
        content = (Path(name) / "a.parquet").read_bytes()
    return Sample("parquet", {"a.parquet": content}, "a.parquet", DOCUMENTS)


def _bioasq() -> Sample:
    articles = [
        {"pmid": i, "title": "", "abstractText": t, "meshMajor": list(n), "year": "2020"}
        for t, n, i in DOCUMENTS
    ]
    pieces = [json.dumps(article, ensure_ascii=False).encode() for article in articles]
    content = b'{"articles": [' + b",\n".join(pieces) + b"]}"
    return Sample("bioasq", {"a.json": content}, "a.json", DOCUMENTS, pieces)


def _medline() -> Sample:
    heading = "<MeshHeading><DescriptorName>{}</DescriptorName></MeshHeading>"
    pieces = [
        f'<PubmedArticle><MedlineCitation><PMID Version="1">{number}</PMID><Article>'
        "<Journal><JournalIssue><PubDate><Year>2020</Year></PubDate></JournalIssue></Journal>"
        f"<Abstract><AbstractText>{escape(text)}</AbstractText></Abstract></Article>"
        f"<MeshHeadingList>{''.join(heading.format(escape(n)) for n in names)}</MeshHeadingList>"
        "</MedlineCitation></PubmedArticle>".encode()
        for text, names, number in DOCUMENTS
    ]
    content = b'<?xml version="1.0" encoding="utf-8"?>\n<PubmedArticleSet>\n'
    content += b"\n".join(pieces) + b"\n</PubmedArticleSet>\n"
    return Sample("medline", {"a.xml": content}, "a.xml", DOCUMENTS, pieces)


def _reuters() -> Sample:
    pieces = [
        f'<REUTERS TOPICS="YES" LEWISSPLIT="TRAIN" NEWID="{number.split("/")[1]}">\n'
        f"<DATE>26-FEB-1987</DATE>\n<TOPICS>{''.join(f'<D>{n}</D>' for n in names)}</TOPICS>\n"
        f"<TEXT><BODY>{text.replace('&', '&amp;').replace('<', '&lt;')}\n REUTER\n&#3;</BODY>"
        "</TEXT>\n</REUTERS>".encode("latin-1")
        for text, names, number in PLAIN_DOCUMENTS
    ]
    head = b'<!DOCTYPE lewis SYSTEM "lewis.dtd">\n'
    files = {
        "reut2-000.sgm": head + b"\n".join(pieces[:3]) + b"\n",
        "reut2-001.sgm": head + b"\n".join(pieces[3:]) + b"\n",
    }
    return Sample("reuters", files, "", PLAIN_DOCUMENTS, pieces)


def _tar(sample: Sample) -> Sample:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in sample.files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return replace(sample, files={"a.tar": buffer.getvalue()}, source="a.tar")


def _nltk() -> Sample:
    cats = "".join(f"{i} {' '.join(n)}\n" for _, n, i in PLAIN_DOCUMENTS).encode()
    files = {"cats.txt": cats} | {i: t.encode() for t, _, i in PLAIN_DOCUMENTS}
    return Sample("nltk", files, "", PLAIN_DOCUMENTS)


def _zip(sample: Sample) -> Sample:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sample.files.items():
            archive.writestr(f"reuters/{name}", content)
    return replace(sample, files={"a.zip": buffer.getvalue()}, source="a.zip")


def _hugging_face() -> Sample:
    import datasets

    texts, labels, ids = zip(*DOCUMENTS, strict=True)
    rows = datasets.Dataset.from_dict({"id": ids, "text": texts, "labels": list(map(list, labels))})
    with tempfile.TemporaryDirectory() as name:
        datasets.disable_progress_bars()
        datasets.DatasetDict({"train": rows}).save_to_disk(name)
        paths = [path for path in Path(name).rglob("*") if path.is_file()]
        files = {str(path.relative_to(name)): path.read_bytes() for path in paths}
    return Sample("huggingface", files, "", DOCUMENTS)


def _gzipped(sample: Sample) -> Sample:
    """The same source with its file gzipped."""
    ((name, content),) = sample.files.items()
    name = "a.tar.gz" if name == "a.tar" else name
    packed = {name: gzip.compress(content, mtime=0)}
    return Sample(sample.format, packed, name, sample.documents, packed=True)


def samples() -> dict[str, Sample]:
    """All of them by name, gzipped ones too."""
    packable = {
        "jsonl": _jsonl(),
        "csv": _table("csv", ","),
        "tsv": _table("tsv", "\t"),
        "libmultilabel": _libmultilabel(),
        "bioasq": _bioasq(),
        "medline": _medline(),
        "reuters tar": _tar(_reuters()),
    }
    others = {
        "parquet": _parquet(),
        "reuters folder": _reuters(),
        "nltk folder": _nltk(),
        "nltk zip": _zip(_nltk()),
        "huggingface": _hugging_face(),
    }
    packed = {f"{name} gz": _gzipped(sample) for name, sample in packable.items()}
    return packable | others | packed
