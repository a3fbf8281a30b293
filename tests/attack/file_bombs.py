"""Small files that would take all memory or time, and a process with little memory to read them.

Each is written for a limit of `MEGABYTES` on a record, and must end in our error or in documents.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from .outcome import OUR_ERROR, RIGHT, TOLD, Outcome

MEGABYTES = 8
# Python, numpy, scipy and Arrow map some 1.5 GB before the first byte is read.
ADDRESS_SPACE = 3 << 30
SECONDS = 60
# A value as bytes, as characters, in Arrow and in a tree of Python objects.
MOST_GROWN = 60 * MEGABYTES
ZEROS = bytes(1 << 20)
ROOT = Path(__file__).parents[2]
GOOD_LINE = b'{"text": "good", "labels": ["x"]}\n'


def _gz(path: Path, pieces: Iterable[bytes]) -> Path:
    with gzip.open(path, "wb", compresslevel=1) as file:
        for piece in pieces:
            file.write(piece)
    return path


def long_line(folder: Path) -> Path:
    spaces = [b"x" * (1 << 20)] * 512
    return _gz(folder / "a.jsonl.gz", [GOOD_LINE, b'{"text": "', *spaces, b'"}\n', GOOD_LINE])


def long_cell(folder: Path) -> Path:
    rows = [b"text,labels\ngood,x\n", b'"', *([(b"x" * 1023 + b"\n") * 1024] * 512), b'",y\n']
    return _gz(folder / "a.csv.gz", rows)


def brackets(folder: Path) -> Path:
    (folder / "a.jsonl").write_bytes(b"[" * (1 << 20) + b"\n" + GOOD_LINE)
    return folder / "a.jsonl"


def brackets_in_a_cell(folder: Path) -> Path:
    cell = b"[" * (1 << 20) + b"]" * (1 << 20)
    (folder / "a.csv").write_bytes(b"text,labels\ngood,x\nbad," + cell + b"\n")
    return folder / "a.csv"


def brackets_in_bioasq(folder: Path) -> Path:
    (folder / "a.json").write_bytes(b'{"x": ' + b"[" * (1 << 20))
    return folder / "a.json"


def endless_article(folder: Path) -> Path:
    head = b'{"articles": [{"pmid": 1, "abstractText": "'
    return _gz(folder / "a.json.gz", [head, *([b"x" * (1 << 20)] * 512)])


def endless_citation(folder: Path) -> Path:
    head = b"<PubmedArticleSet><PubmedArticle><MedlineCitation><PMID>"
    return _gz(folder / "a.xml.gz", [head, *([b"x" * (1 << 20)] * 512)])


def endless_attribute(folder: Path) -> Path:
    head = b'<PubmedArticleSet><PubmedArticle a="'
    return _gz(folder / "a.xml.gz", [head, *([b"x" * (1 << 20)] * 512)])


def many_attributes(folder: Path) -> Path:
    names = b"".join(b' a%d="x"' % k for k in range(800_000))
    return _gz(folder / "a.xml.gz", [b"<PubmedArticleSet><PubmedArticle", names, b"/>"])


def wrapped_citations(folder: Path) -> Path:
    one = b"<PubmedArticle><MedlineCitation><PMID>1</PMID></MedlineCitation></PubmedArticle>"
    return _gz(folder / "a.xml.gz", [b"<a><b>", *([one * 10_000] * 40), b"</b></a>"])


def many_values(folder: Path) -> Path:
    items = [b"{}," * 100_000] * 25
    return _gz(folder / "a.json.gz", [b'{"articles": [{"x": [', *items, b"{}]}]}"])


def deep_xml(folder: Path) -> Path:
    return _gz(folder / "a.xml.gz", [b"<a>" * 1_000_000])


def attribute_defaults(folder: Path) -> Path:
    subset = b'<!DOCTYPE a [<!ATTLIST b c CDATA "' + b"x" * 100_000 + b'">]>'
    return _gz(folder / "a.xml.gz", [subset, b"<a>", b"<b/>" * 1_000_000])


def laughs(folder: Path) -> Path:
    entities = b"".join(b'<!ENTITY b%d "%s">' % (k, b"&b%d;" % (k - 1) * 10) for k in range(1, 12))
    content = b'<!DOCTYPE x [<!ENTITY b0 "ha">' + entities + b"]><x>&b11;</x>"
    (folder / "a.xml").write_bytes(content)
    return folder / "a.xml"


def _tar_header(name: str, kind: bytes, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


def tar_long_name(folder: Path) -> Path:
    head = _tar_header("././@LongLink", tarfile.GNUTYPE_LONGNAME, 1 << 30)
    return _gz(folder / "a.tar.gz", [head, *([b"x" * (1 << 20)] * 1024)])


def tar_pax(folder: Path) -> Path:
    head = _tar_header("pax", tarfile.XHDTYPE, 1 << 29)
    return _gz(folder / "a.tar.gz", [head, *([b"1" * (1 << 20)] * 512)])


def tar_digits(folder: Path) -> Path:
    # Python's own search in such a header is quadratic.
    head = _tar_header("pax", tarfile.XHDTYPE, 1 << 16)
    return _gz(folder / "a.tar.gz", [head, b"1" * (1 << 16)] * 64)


def tar_large_member(folder: Path) -> Path:
    head = _tar_header("reut2-000.sgm", tarfile.REGTYPE, 1 << 30)
    return _gz(folder / "a.tar.gz", [head, *([ZEROS] * 1024)])


def sgml_spaces(folder: Path) -> Path:
    story = (
        b'<REUTERS TOPICS="YES" LEWISSPLIT="TRAIN" NEWID="1"><TOPICS><D>a</D></TOPICS><TEXT>'
        b"<BODY>text" + b" " * 2_000_000 + b"x</BODY></TEXT></REUTERS>"
    )
    (folder / "a.sgm").write_bytes(story)
    return folder / "a.sgm"


def sgml_tags(folder: Path) -> Path:
    head = b'<REUTERS TOPICS="YES" LEWISSPLIT="TRAIN" NEWID="1"><TOPICS>'
    (folder / "a.sgm").write_bytes(head + b"<D>" * 500_000 + b"<TEXT" * 500_000 + b"</REUTERS>")
    return folder / "a.sgm"


def csv_quotes(folder: Path) -> Path:
    # Each of these lines opens a quote, whether or not one is open.
    (folder / "a.csv").write_bytes(b"text,labels\ngood,x\n" + b'q","\n' * 200_000)
    return folder / "a.csv"


def _zip(folder: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return folder / "a.zip"


def zip_named_often(folder: Path) -> Path:
    cats = b"training/1 x\n" * 100_000
    return _zip(folder, {"cats.txt": cats, "training/1": b"x" * (7 << 20)})


def zip_overlapping(folder: Path) -> Path:
    names = [f"training/{k}" for k in range(2000)]
    cats = "".join(f"{name} x\n" for name in names).encode()
    path = _zip(folder, {"cats.txt": cats, **dict.fromkeys(names, b""), names[0]: bytes(7 << 20)})
    content = bytearray(path.read_bytes())
    first = content.find(b"PK\1\2", content.find(b"PK\1\2") + 4)
    shared = content[first + 16 : first + 28] + content[first + 42 : first + 46]
    at = first
    while (at := content.find(b"PK\1\2", at + 4)) > 0:
        content[at + 16 : at + 28], content[at + 42 : at + 46] = shared[:12], shared[12:]
    path.write_bytes(content)
    return path


def zip_wrong_size(folder: Path) -> Path:
    path = _zip(folder, {"cats.txt": b"training/1 x\n", "training/1": bytes(1 << 29)})
    content = bytearray(path.read_bytes())
    at = content.rfind(b"PK\1\2")
    content[at + 24 : at + 28] = struct.pack("<L", 1000)
    path.write_bytes(content)
    return path


def zip_bzip2(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("cats.txt", "training/1 x\n")
        archive.writestr("training/1", bytes(1 << 28))
    return folder / "a.zip"


def parquet_dictionary(folder: Path) -> Path:
    return _repeated(folder, 50)


def parquet_memory(folder: Path) -> Path:
    # 400 GB of documents, each within the limit: they must fill the memory and end in our error.
    return _repeated(folder, 100_000)


def _repeated(folder: Path, n_rows: int) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    values = pa.array(["x" * (4 << 20)])
    text = pa.DictionaryArray.from_arrays(pa.array([0] * n_rows, pa.int32()), values)
    labels = pa.array([["a"]] * n_rows)
    pq.write_table(pa.table({"text": text, "labels": labels}), folder / "a.parquet")
    return folder / "a.parquet"


def parquet_page(folder: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"text": ["good", "x" * (1 << 29)], "labels": [["a"], ["b"]]})
    pq.write_table(table, folder / "a.parquet", compression="zstd", use_dictionary=False)
    return folder / "a.parquet"


def parquet_many_pages(folder: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    # A batch may not unpack all of these pages, of rows that are no documents.
    values = ["x" * (7 << 20)] * 256
    table = pa.table({"text": [""] * 256, "labels": [["a"]] * 256, "id": values})
    pq.write_table(
        table, folder / "a.parquet", compression="zstd", use_dictionary=False, write_batch_size=1
    )
    return folder / "a.parquet"


def parquet_list(folder: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = pa.DictionaryArray.from_arrays(
        pa.array([0] * 1_000_000, pa.int32()), pa.array(["x" * 100_000])
    )
    labels = pa.ListArray.from_arrays(pa.array([0, 1_000_000], pa.int32()), names)
    pq.write_table(pa.table({"text": ["good"], "labels": labels}), folder / "a.parquet")
    return folder / "a.parquet"


def parquet_delta(folder: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"text": ["x" * (4 << 20)] * 50, "labels": [["a"]] * 50})
    pq.write_table(
        table,
        folder / "a.parquet",
        use_dictionary=False,
        column_encoding={"text": "DELTA_BYTE_ARRAY"},
    )
    return folder / "a.parquet"


BOMBS: tuple[Callable[[Path], Path], ...] = (
    long_line,
    long_cell,
    brackets,
    brackets_in_a_cell,
    brackets_in_bioasq,
    endless_article,
    endless_citation,
    endless_attribute,
    many_attributes,
    wrapped_citations,
    many_values,
    deep_xml,
    attribute_defaults,
    laughs,
    tar_long_name,
    tar_pax,
    tar_digits,
    tar_large_member,
    sgml_spaces,
    sgml_tags,
    csv_quotes,
    zip_named_often,
    zip_overlapping,
    zip_wrong_size,
    zip_bzip2,
    parquet_dictionary,
    parquet_memory,
    parquet_page,
    parquet_many_pages,
    parquet_list,
    parquet_delta,
)
CHILD = """
import json, resource, sys, warnings
warnings.simplefilter("ignore")
from longtail.data import ReadReport, read_data
from longtail.errors import LongtailError
import pyarrow.parquet, pyarrow.compute
def peak():
    # Not ru_maxrss, which begins with the peak of the process that started this one.
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
told = bool(report.skipped or report.left_out or report.passed_over)
print(json.dumps([documents, told, message, grown / 1024]))
"""


def detonate(bomb: Callable[[Path], Path], chance: random.Random, scratch: Path) -> Outcome:
    """Write one bomb and read it in a process of its own."""
    folder = scratch / "bomb"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    path = bomb(folder)
    options = {"on_error": chance.choice(["raise", "skip"]), "max_record_mb": MEGABYTES}
    kind, detail = f"bomb {bomb.__name__}", f"{options}"
    command = [sys.executable, "-c", CHILD, str(path), json.dumps(options), str(ADDRESS_SPACE)]
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1"}
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, env=surroundings, cwd=ROOT
        )
    except subprocess.TimeoutExpired:
        return Outcome(kind, f"took more than {SECONDS} s", detail)
    if answer.returncode != 0:
        last = (answer.stderr.strip().splitlines() or ["no message"])[-1]
        return Outcome(kind, f"ended with {answer.returncode}: {last}"[:200], detail)
    documents, told, message, grown = json.loads(answer.stdout.splitlines()[-1])
    if bomb is parquet_memory:
        return Outcome(kind, OUR_ERROR if message else "did not fill the memory", detail)
    if grown > MOST_GROWN:
        return Outcome(kind, f"took {grown:.0f} MB at a limit of {MEGABYTES} MB", detail)
    if message is not None:
        return Outcome(kind, OUR_ERROR, f"{detail} {message}")
    return Outcome(kind, TOLD if told else RIGHT, f"{detail} {documents} documents")
