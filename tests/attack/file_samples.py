"""Small valid files of every format that longtail reads, with the documents in them.

A sample is a set of files, since some sources are folders; `pieces` are the bytes of its records,
so that the judge can say which records are still whole in damaged bytes.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    """One source: its files by name, where to point longtail, and what it holds."""

    format: str
    files: dict[str, bytes]
    source: str
    documents: Documents
    pieces: list[bytes] = field(default_factory=list)
    packed: bool = False
    """Whether damage falls on packed bytes, which a checksum covers."""


def documents(plain: bool = False, prefix: str = "") -> Documents:
    texts, labels = (PLAIN, PLAIN_LABELS) if plain else (TEXTS, LABELS)
    return [
        (text, tuple(sorted(names)), f"{prefix}{k}")
        for k, (text, names) in enumerate(zip(texts, labels, strict=True), start=1)
    ]


def jsonl() -> Sample:
    rows = [{"id": i, "text": t, "labels": list(n)} for t, n, i in documents()]
    pieces = [json.dumps(row, ensure_ascii=False).encode() for row in rows]
    return Sample("jsonl", {"a.jsonl": b"\n".join(pieces) + b"\n"}, "a.jsonl", documents(), pieces)


def _table(suffix: str, delimiter: str) -> Sample:
    def line(row: list[str]) -> bytes:
        stream = io.StringIO()
        csv.writer(stream, delimiter=delimiter, lineterminator="").writerow(row)
        return stream.getvalue().encode()

    pieces = [line([i, t, json.dumps(n)]) for t, n, i in documents()]
    content = b"\n".join([line(["id", "text", "labels"]), *pieces]) + b"\n"
    return Sample(suffix, {f"a.{suffix}": content}, f"a.{suffix}", documents(), pieces)


def libmultilabel() -> Sample:
    pieces = [f"{i}\t{' '.join(n)}\t{t}".encode() for t, n, i in documents()]
    found = [(t, n, i) for t, n, i in documents()]
    return Sample("libmultilabel", {"a.txt": b"\n".join(pieces) + b"\n"}, "a.txt", found, pieces)


def parquet() -> Sample:
    from longtail.data import TextData, write_data

    with tempfile.TemporaryDirectory() as name:
        rows = documents()
        texts, labels, ids = zip(*rows, strict=True)
        write_data(TextData.from_lists(texts, labels, ids=ids), Path(name) / "a.parquet")
        content = (Path(name) / "a.parquet").read_bytes()
    return Sample("parquet", {"a.parquet": content}, "a.parquet", documents())


def bioasq() -> Sample:
    articles = [
        {"pmid": i, "title": "", "abstractText": t, "meshMajor": list(n), "year": "2020"}
        for t, n, i in documents()
    ]
    pieces = [json.dumps(article, ensure_ascii=False).encode() for article in articles]
    content = b'{"articles": [' + b",\n".join(pieces) + b"]}"
    return Sample("bioasq", {"a.json": content}, "a.json", documents(), pieces)


def medline() -> Sample:
    from xml.sax.saxutils import escape

    found = [(" ".join(t.split()), n, i) for t, n, i in documents()]
    pieces = []
    for text, names, number in found:
        headings = "".join(
            f"<MeshHeading><DescriptorName>{escape(n)}</DescriptorName></MeshHeading>"
            for n in names
        )
        pieces.append(
            f'<PubmedArticle><MedlineCitation><PMID Version="1">{number}</PMID><Article>'
            "<Journal><JournalIssue><PubDate><Year>2020</Year></PubDate></JournalIssue></Journal>"
            f"<Abstract><AbstractText>{escape(text)}</AbstractText></Abstract></Article>"
            f"<MeshHeadingList>{headings}</MeshHeadingList></MedlineCitation></PubmedArticle>".encode()
        )
    content = b'<?xml version="1.0" encoding="utf-8"?>\n<PubmedArticleSet>\n'
    content += b"\n".join(pieces) + b"\n</PubmedArticleSet>\n"
    return Sample("medline", {"a.xml": content}, "a.xml", found, pieces)


def _sgml() -> tuple[dict[str, bytes], Documents, list[bytes]]:
    found = documents(plain=True, prefix="training/")
    pieces = []
    for text, names, number in found:
        topics = "".join(f"<D>{name}</D>" for name in names)
        body = text.replace("&", "&amp;").replace("<", "&lt;")
        pieces.append(
            f'<REUTERS TOPICS="YES" LEWISSPLIT="TRAIN" NEWID="{number.split("/")[1]}">\n'
            f"<DATE>26-FEB-1987</DATE>\n<TOPICS>{topics}</TOPICS>\n"
            f"<TEXT><BODY>{body}\n REUTER\n&#3;</BODY></TEXT>\n</REUTERS>".encode("latin-1")
        )
    head = b'<!DOCTYPE lewis SYSTEM "lewis.dtd">\n'
    files = {
        "reut2-000.sgm": head + b"\n".join(pieces[:3]) + b"\n",
        "reut2-001.sgm": head + b"\n".join(pieces[3:]) + b"\n",
    }
    return files, found, pieces


def reuters() -> Sample:
    files, found, pieces = _sgml()
    return Sample("reuters", files, "", found, pieces)


def reuters_tar() -> Sample:
    files, found, pieces = _sgml()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return Sample("reuters", {"a.tar": buffer.getvalue()}, "a.tar", found, pieces)


def _nltk() -> tuple[dict[str, bytes], Documents]:
    found = documents(plain=True, prefix="training/")
    files = {"cats.txt": "".join(f"{i} {' '.join(n)}\n" for _, n, i in found).encode()}
    files |= {i: t.encode() for t, _, i in found}
    return files, [(t, n, i) for t, n, i in found]


def nltk() -> Sample:
    files, found = _nltk()
    return Sample("nltk", files, "", found)


def nltk_zip() -> Sample:
    files, found = _nltk()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(f"reuters/{name}", content)
    return Sample("nltk", {"a.zip": buffer.getvalue()}, "a.zip", found)


def hugging_face() -> Sample:
    import datasets

    rows = documents()
    columns: dict[str, Any] = {
        "id": [i for _, _, i in rows],
        "text": [t for t, _, _ in rows],
        "labels": [list(n) for _, n, _ in rows],
    }
    with tempfile.TemporaryDirectory() as name:
        datasets.disable_progress_bars()
        datasets.DatasetDict({"train": datasets.Dataset.from_dict(columns)}).save_to_disk(name)
        files = {
            str(file.relative_to(name)): file.read_bytes()
            for file in Path(name).rglob("*")
            if file.is_file()
        }
    return Sample("huggingface", files, "", rows)


def gzipped(plain: Sample) -> Sample:
    """The same source with its files gzipped."""
    files = {name: gzip.compress(content, mtime=0) for name, content in plain.files.items()}
    source = plain.source
    if source and source.endswith(".tar"):
        files, source = {"a.tar.gz": files[source]}, "a.tar.gz"
    return Sample(plain.format, files, source, plain.documents, packed=True)


def samples() -> dict[str, Sample]:
    """All of them by name, gzipped ones too."""
    makers: dict[str, Callable[[], Sample]] = {
        "jsonl": jsonl,
        "csv": lambda: _table("csv", ","),
        "tsv": lambda: _table("tsv", "\t"),
        "libmultilabel": libmultilabel,
        "parquet": parquet,
        "bioasq": bioasq,
        "medline": medline,
        "reuters folder": reuters,
        "reuters tar": reuters_tar,
        "nltk folder": nltk,
        "nltk zip": nltk_zip,
        "huggingface": hugging_face,
    }
    found = {name: make() for name, make in makers.items()}
    unpackable = ("jsonl", "csv", "tsv", "libmultilabel", "bioasq", "medline", "reuters tar")
    return found | {f"{name} gz": gzipped(found[name]) for name in unpackable}
