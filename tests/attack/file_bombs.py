"""Small files that would take all memory or time, and a process with little memory to read them.

Each is written for a limit of `MEGABYTES` on a record, and must end in our error or in documents.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from . import OUR_ERROR, RIGHT, TOLD, Outcome

MEGABYTES = 8
# Python, numpy, scipy and Arrow map some 1.5 GB before the first byte is read.
ADDRESS_SPACE = 3 << 30
SECONDS = 60
# A value as bytes, as characters, in Arrow and in a tree of Python objects.
MOST_GROWN = 60 * MEGABYTES
ROOT = Path(__file__).parents[2]
GOOD_LINE = b'{"text": "good", "labels": ["x"]}\n'
HEAD = b"text,labels\ngood,x\n"


def _gz(head: bytes, piece: bytes = b"", n_pieces: int = 0, tail: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=1) as file:
        for part in (head, *[piece] * n_pieces, tail):
            file.write(part)
    return buffer.getvalue()


def _tar_header(name: str, kind: bytes, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


def _zip(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _parquet(text: Any, labels: Any, ids: Any = None, **options: Any) -> bytes:
    columns = {"text": text, "labels": labels} | ({"id": ids} if ids else {})
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, **options)
    return buffer.getvalue()


def _repeated(value: str, n: int) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), pa.array([value]))


def laughs() -> bytes:
    entities = b"".join(b'<!ENTITY b%d "%s">' % (k, b"&b%d;" % (k - 1) * 10) for k in range(1, 12))
    return b'<!DOCTYPE x [<!ENTITY b0 "ha">' + entities + b"]><x>&b11;</x>"


def zip_overlapping() -> bytes:
    names = [f"training/{k}" for k in range(2000)]
    cats = "".join(f"{name} x\n" for name in names).encode()
    files = {"cats.txt": cats, **dict.fromkeys(names, b""), names[0]: bytes(7 << 20)}
    content = bytearray(_zip(files))
    first = content.find(b"PK\1\2", content.find(b"PK\1\2") + 4)
    shared = content[first + 16 : first + 28] + content[first + 42 : first + 46]
    at = first
    while (at := content.find(b"PK\1\2", at + 4)) > 0:
        content[at + 16 : at + 28], content[at + 42 : at + 46] = shared[:12], shared[12:]
    return bytes(content)


def zip_wrong_size() -> bytes:
    content = bytearray(_zip({"cats.txt": b"training/1 x\n", "training/1": bytes(1 << 29)}))
    at = content.rfind(b"PK\1\2")
    content[at + 24 : at + 28] = struct.pack("<L", 1000)
    return bytes(content)


MEGA, X = 1 << 20, b"x" * (1 << 20)
CATS = b"training/1 x\n"
STORY = b'<REUTERS TOPICS="YES" LEWISSPLIT="TRAIN" NEWID="1"><TOPICS>'
SET = b"<PubmedArticleSet><PubmedArticle"
CITATION = b"<PubmedArticle><MedlineCitation><PMID>1</PMID></MedlineCitation></PubmedArticle>"
ATTRIBUTE = b'<!DOCTYPE a [<!ATTLIST b c CDATA "' + b"x" * 100_000 + b'">]><a>'
PLAIN = dict(use_dictionary=False)
ZSTD = dict(compression="zstd", **PLAIN)
# Name of the file -> a function that makes its content.
BOMBS: dict[str, Callable[[], bytes]] = {
    "long_line.jsonl.gz": lambda: _gz(GOOD_LINE + b'{"text": "', X, 512, b'"}\n' + GOOD_LINE),
    "long_cell.csv.gz": lambda: _gz(HEAD + b'"', (b"x" * 1023 + b"\n") * 1024, 512, b'",y\n'),
    "brackets.jsonl": lambda: b"[" * MEGA + b"\n" + GOOD_LINE,
    "brackets_in_a_cell.csv": lambda: HEAD + b"bad," + b"[" * MEGA + b"]" * MEGA + b"\n",
    "lists_in_a_cell.csv": lambda: HEAD + b'bad,"[' + b"[]," * 2_500_000 + b'[]]"\n',
    "brackets_in_bioasq.json": lambda: b'{"x": ' + b"[" * MEGA,
    "endless_article.json.gz": lambda: _gz(b'{"articles": [{"pmid": 1, "abstractText": "', X, 512),
    "endless_citation.xml.gz": lambda: _gz(SET + b"><MedlineCitation><PMID>", X, 512),
    "endless_attribute.xml.gz": lambda: _gz(SET + b' a="', X, 512),
    "many_attributes.xml.gz": lambda: _gz(
        SET, b"".join(b' a%d="x"' % k for k in range(800_000)), 1, b"/>"
    ),
    "wrapped_citations.xml.gz": lambda: _gz(b"<a><b>", CITATION * 10_000, 40, b"</b></a>"),
    "many_values.json.gz": lambda: _gz(b'{"articles": [{"x": [', b"{}," * 100_000, 25, b"{}]}]}"),
    "deep_xml.xml.gz": lambda: _gz(b"<a>" * 1_000_000),
    "attribute_defaults.xml.gz": lambda: _gz(ATTRIBUTE, b"<b/>", 1_000_000),
    "laughs.xml": laughs,
    "tar_long_name.tar.gz": lambda: _gz(
        _tar_header("././@LongLink", tarfile.GNUTYPE_LONGNAME, 1 << 30), X, 1024
    ),
    "tar_pax.tar.gz": lambda: _gz(_tar_header("pax", tarfile.XHDTYPE, 1 << 29), b"1" * MEGA, 512),
    # Python's search in such a header is quadratic.
    "tar_digits.tar.gz": lambda: _gz(
        b"", _tar_header("pax", tarfile.XHDTYPE, 1 << 16) + b"1" * (1 << 16), 64
    ),
    "tar_large_member.tar.gz": lambda: _gz(
        _tar_header("reut2-000.sgm", tarfile.REGTYPE, 1 << 30), bytes(MEGA), 1024
    ),
    "sgml_spaces.sgm": lambda: (
        STORY + b"<D>a</D></TOPICS><TEXT>" + b" " * 2_000_000 + b"x</TEXT></REUTERS>"
    ),
    "sgml_tags.sgm": lambda: STORY + b"<D>" * 500_000 + b"<TEXT" * 500_000 + b"</REUTERS>",
    # Each of these lines opens a quote, whether or not one is open.
    "csv_quotes.csv": lambda: HEAD + b'q","\n' * 200_000,
    "zip_named_often.zip": lambda: _zip({"cats.txt": CATS * 100_000, "training/1": X * 7}),
    "zip_overlapping.zip": zip_overlapping,
    "zip_wrong_size.zip": zip_wrong_size,
    "parquet_dictionary.parquet": lambda: _parquet(_repeated("x" * 4 * MEGA, 50), [["a"]] * 50),
    # 4 TB of documents, each within the limit: they must fill the memory and end in our error.
    "parquet_memory.parquet": lambda: _parquet(_repeated("x" * 4 * MEGA, 10**6), [["a"]] * 10**6),
    "parquet_page.parquet": lambda: _parquet(["good", "x" * (1 << 29)], [["a"], ["b"]], **ZSTD),
    # A batch may not unpack all of these pages, of rows that are no documents.
    "parquet_many_pages.parquet": lambda: _parquet(
        [""] * 256, [["a"]] * 256, ["x" * 7 * MEGA] * 256, **ZSTD, write_batch_size=1
    ),
}
CHILD = """
import json, resource, sys, warnings
warnings.simplefilter("ignore")
from longtail.data import ReadReport, read_data
from longtail.errors import LongtailError
import pyarrow.parquet, pyarrow.compute
def peak():
    # Not ru_maxrss, which begins with the peak of the parent process.
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
before = peak()
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[3]),) * 2)
options, report, message = json.loads(sys.argv[2]), ReadReport(), None
try:
    documents = len(read_data(sys.argv[1], report=report, **options))
except LongtailError as error:
    documents, message = 0, str(error)[:300]
grown = peak() - before
reported = bool(report.skipped or report.left_out or report.passed_over)
print(json.dumps([documents, reported, message, grown / 1024]))
"""


def detonate(name: str, chance: random.Random, scratch: Path) -> Outcome:
    """Write one bomb and read it in its own process."""
    folder = scratch / "bomb"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = folder / name
    path.write_bytes(BOMBS[name]())
    options = {"on_error": chance.choice(["raise", "skip"]), "max_record_mb": MEGABYTES}
    kind, detail = f"bomb {name.partition('.')[0]}", f"{options}"
    command = [sys.executable, "-c", CHILD, str(path), json.dumps(options), str(ADDRESS_SPACE)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1"}
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, env=environment, cwd=ROOT
        )
    except subprocess.TimeoutExpired:
        return Outcome(kind, f"took more than {SECONDS} s", detail)
    if answer.returncode != 0:
        last = (answer.stderr.strip().splitlines() or ["no message"])[-1]
        return Outcome(kind, f"ended with {answer.returncode}: {last}"[:200], detail)
    documents, reported, message, grown = json.loads(answer.stdout.splitlines()[-1])
    if name == "parquet_memory.parquet":
        return Outcome(kind, OUR_ERROR if message else "did not fill the memory", detail)
    if grown > MOST_GROWN:
        return Outcome(kind, f"took {grown:.0f} MB at a limit of {MEGABYTES} MB", detail)
    if message is not None:
        return Outcome(kind, OUR_ERROR, f"{detail} {message}")
    return Outcome(kind, TOLD if reported else RIGHT, f"{detail} {documents} documents")
