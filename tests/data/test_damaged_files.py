"""Truncated and damaged files, and files that unpack to too much: archives, XML, Parquet."""

from __future__ import annotations

import gzip
import random
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from longtail.data import TextData, read_data
from longtail.data.medline import CHUNK
from longtail.errors import DataError

from .cases import (
    article,
    bioasq,
    citation,
    read,
    sgml,
    skip,
    story,
    tar_of,
    write_files,
    xml,
    zip_of,
)

ON_ERROR = pytest.mark.parametrize("on_error", ["raise", "skip"])


JSON_LINE = '{"id": %d, "text": "%s", "labels": ["x"]}\n'
MAKE: dict[str, Callable[[list[tuple[int, str]]], str | bytes]] = {
    "jsonl": lambda docs: "".join(JSON_LINE % document for document in docs),
    "csv": lambda docs: "id,text,labels\n" + "\n".join(f"{n},{word},x" for n, word in docs),
    "txt": lambda docs: "\n".join(f"{n}\tx\t{word}" for n, word in docs),
    "json": lambda docs: bioasq(*(article(n, title=word) for n, word in docs)),
    "xml": lambda docs: xml(*(citation(n, title=word) for n, word in docs)),
    "sgm": lambda docs: sgml(*(story(n, text=f"<TITLE>{word}</TITLE>") for n, word in docs)),
    "tar.gz": lambda docs: tar_of({"reut2-000.sgm": MAKE["sgm"](docs)}),
}


def many(kind: str) -> bytes:
    """A file of documents 0 to 1999, with words that do not compress well."""
    words = random.Random(0)
    content = MAKE[kind]([(n, f"{words.getrandbits(400):x}") for n in range(2000)])
    return content.encode() if isinstance(content, str) else content


def numbers(data: TextData) -> list[int]:
    return [int(identity.rpartition("/")[2]) for identity in data.ids or ()]


@pytest.mark.parametrize("kind", MAKE)
def test_a_truncated_gzip_keeps_what_was_before_the_cut(tmp_path: Path, kind: str) -> None:
    content, path = many(kind), tmp_path / f"a.{kind}"
    packed = gzip.compress(content)
    packed = packed[: len(packed) * 2 // 3]
    unpacked = zlib.decompressobj(wbits=31).decompress(packed)
    with pytest.raises(
        DataError, match=r"cannot be read any further|not valid (JSON|CSV)|is cut off"
    ):
        read(path, packed)
    data, report = skip(path)
    assert numbers(data) == list(range(len(data)))
    # All that can be unpacked except a few KB in buffers.
    assert len(data) / 2000 > len(unpacked) / len(content) - 0.03 > 0.6
    assert 1 <= report.skipped <= 2 and "cannot be read any further" in report.examples[-1]


def test_a_damaged_gzip(tmp_path: Path) -> None:
    path, packed = tmp_path / "a.jsonl.gz", gzip.compress(many("jsonl"))
    middle = len(packed) // 2
    with pytest.raises(DataError, match=str(path)):
        read(path, packed[:middle] + bytes(30) + packed[middle + 30 :])
    data, report = skip(path)
    assert numbers(data)[:500] == list(range(500)) and report.skipped >= 1
    # The last bytes are the checksum and the size.
    with pytest.raises(DataError, match=r"after 2000 records: cannot be read any further.*CRC"):
        read(path, packed[:-6] + bytes(2) + packed[-4:])
    assert len(skip(path)[0]) == 2000
    # The header of a table is not a record.
    table = gzip.compress(b"text,a\nx,1\ny,1\n")[:-8]
    with pytest.raises(DataError, match="after 2 records: cannot be read any further"):
        read(tmp_path / "a.csv", table, label_columns="*")


ARTICLES = bioasq(*map(article, range(1, 6)))
CITATIONS = xml(*map(citation, range(1, 6)))
NOT_XML = r"a\.xml, line 7: not valid XML.*the rest of the file"
NOT_JSON = r"a\.json, line 5: not valid JSON"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", ARTICLES[: ARTICLES.index(b'"Abstract 4')], NOT_JSON),
        (
            "a.json",
            ARTICLES[: ARTICLES.index(b",\n", ARTICLES.index(b"Abstract 3")) + 2],
            "the end: the file is cut off",
        ),
        ("a.xml", CITATIONS[: CITATIONS.index(b"Abstract 4")], NOT_XML),
        ("a.xml", CITATIONS.replace(b"Abstract 4", b"<b>"), NOT_XML),
        ("a.xml", CITATIONS.replace(b"Abstract 4", b"\xff"), NOT_XML),
        ("a.xml", CITATIONS.replace(b"Abstract 4", b"&unknown;"), NOT_XML),
    ],
)
def test_records_before_the_damage_are_kept(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path / name, content)
    data, report = skip(tmp_path / name)
    assert data.ids == ("1", "2", "3") and report.skipped >= 1


@ON_ERROR
def test_files_of_another_kind(tmp_path: Path, on_error: str) -> None:
    for content in (
        *('{"text": "a", "labels": ["x"]}\n' * 2, '[{"text": "a"}]', "{}", "nonsense"),
        *('{"articles": 1}', '{"articles": []}', "[" * 100_000),
    ):
        with pytest.raises(DataError, match=r"as in BioASQ Task A, got no articles.*jsonl"):
            read(tmp_path / "a.json", content, on_error=on_error)
    html = "<html><body>Not found</body></html>"
    with pytest.raises(DataError, match="expected PubmedArticle elements"):
        read(tmp_path / "a.xml", html, on_error=on_error)


@ON_ERROR
@pytest.mark.parametrize("subset", ['<!ENTITY b "ha">', '<!ENTITY b SYSTEM "file:///x">', ""])
def test_internal_subsets_are_refused(tmp_path: Path, subset: str, on_error: str) -> None:
    content = xml(citation(1, title="&b;"), head=f"<!DOCTYPE x [{subset}]>")
    wide = ('<?xml version="1.0" encoding="utf-16"?>' + content.decode()).encode("utf-16")
    for stored in (content, gzip.compress(content), wide):
        with pytest.raises(DataError, match=r"was refused: its <!DOCTYPE> declares"):
            read(tmp_path / "a.xml", stored, on_error=on_error)


def test_an_internal_subset_across_two_chunks_is_refused(tmp_path: Path) -> None:
    subset = '<!DOCTYPE x [<!ENTITY b "ha">]>'
    for cut in range(1, len(subset)):
        comment = f"<!--{' ' * (CHUNK - 7 - cut)}-->"
        assert len(comment) + cut == CHUNK
        with pytest.raises(DataError, match="was refused"):
            read(tmp_path / "a.xml", xml(citation(1, title="&b;"), head=comment + subset))


def header(name: str, kind: bytes, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 512)


FILE = padded(header("reut2-000.sgm", tarfile.REGTYPE, len(sgml(story(1)))) + sgml(story(1)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (header("x", tarfile.GNUTYPE_LONGNAME, 1 << 25), "a header of the tar archive is larger"),
        (header("x", tarfile.XHDTYPE, 1 << 25), "a header of the tar archive is larger"),
        # A second archive after the end of the first would be lost silently.
        (FILE + bytes(1024) + FILE, "data after its end"),
        (FILE + b"x" + FILE[1:], "a damaged header"),
        (FILE + b"x" * 100, "a damaged header"),
        (header("reut2-000.sgm", tarfile.REGTYPE, 10_000), "unexpected end of data"),
        (tar_of({"a.sgm": "/etc/passwd", "reut2-001.sgm": 1}), "expected the files reut2-000"),
    ],
)
def test_tar_archives_that_cannot_be_read(tmp_path: Path, content: bytes, message: str) -> None:
    for stored in (content, gzip.compress(content)):
        with pytest.raises(DataError, match=message):
            read(tmp_path / "a.tar", stored)


def test_members_that_unpack_to_more_than_the_limit(tmp_path: Path) -> None:
    large = "larger than 1 MB.*max_record_mb=4 \\(--max-"
    with pytest.raises(DataError, match=large):
        skip(tmp_path / "a.tar", tar_of({"reut2-000.sgm": bytes(3 << 20)}), max_record_mb=1)
    for name in ("cats.txt", "training/1"):
        members = {"cats.txt": b"training/1 x", "training/1": b"text", name: bytes(3 << 20)}
        zip_of(tmp_path / "a.zip", members)
        write_files(tmp_path / "folder", members)
        for source in (tmp_path / "a.zip", tmp_path / "folder"):
            with pytest.raises(DataError, match=large):
                skip(source, max_record_mb=1)


MEMBERS = {"cats.txt": b"training/1 x\ntraining/2 y\n", "training/1": b"one", "training/2": b"two"}


def test_one_damaged_member_of_a_zip(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "a.zip", MEMBERS, zipfile.ZIP_STORED)
    content = path.read_bytes()
    with pytest.raises(DataError, match=r"line 2: the file 'training/2' cannot be read \(Bad CRC"):
        read(path, content.replace(b"two", b"tow"))
    data, report = skip(path)
    assert data.texts == ["one"] and report.skipped == 1
    # The encryption flag in the central directory.
    damaged = bytearray(content)
    damaged[content.rindex(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(DataError, match=r"line 2.*(password|encrypted)"):
        read(path, bytes(damaged))


def test_a_file_of_a_zip_named_many_times(tmp_path: Path) -> None:
    members = {"cats.txt": b"training/1 x\n" * 20_000, "training/1": b"y" * 2_000_000}
    data, report = skip(zip_of(tmp_path / "a.zip", members))
    assert len(data) == 1 and report.skipped == 19_999
    assert "cats.txt, line 2: the id 'training/1' is already taken" in report.examples[0]


def write_parquet_table(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    columns = {**columns, "labels": columns.get("labels", [["a"]] * len(columns["text"]))}
    pq.write_table(pa.table(columns), path, **options)
    return path


def test_parquet_bombs(tmp_path: Path) -> None:
    columns = {"text": ["x" * 20_000_000]}
    options = dict(compression="zstd", use_dictionary=False)
    path = write_parquet_table(tmp_path / "a.parquet", columns, **options)
    assert path.stat().st_size < 10_000
    with pytest.raises(DataError, match=r"a row group is larger than 1 MB"):
        read_data(path, max_record_mb=1)


def test_parquet_groups_that_are_larger_than_a_record(tmp_path: Path) -> None:
    # DuckDB and fastparquet write the texts of a row group in one page.
    chance = random.Random(0)
    texts = [chance.randbytes(500).hex() for _ in range(12_000)]
    path = write_parquet_table(tmp_path / "a.parquet", {"text": texts}, data_page_size=1 << 30)
    assert read_data(path, max_record_mb=1).texts == texts


def test_parquet_rows_that_are_too_large_or_of_a_wrong_type(tmp_path: Path) -> None:
    texts = ["good", random.Random(0).randbytes(1_000_000).hex(), "better"]
    path = write_parquet_table(tmp_path / "a.parquet", {"text": texts})
    data, report = skip(path, max_record_mb=1)
    assert data.texts == ["good", "better"] and "row 2: the row is larger" in report.examples[0]
    assert read_data(path, max_record_mb=4).texts == texts
    for labels in ([{"a": "x"}] * 3, [[{"a": "x"}]] * 3):
        write_parquet_table(path, {"text": texts, "labels": labels})
        with pytest.raises(DataError, match=r"row 1: expected a list of strings"):
            read_data(path)


def test_a_damaged_parquet_footer_does_not_end_the_process(tmp_path: Path) -> None:
    # Arrow's view of such columns throws a C++ exception that pyarrow does not catch.
    path = write_parquet_table(tmp_path / "a.parquet", {"text": ["a"]})
    program = """
import sys
from contextlib import suppress
from pathlib import Path
from longtail.data import ReadReport, read_data
from longtail.errors import LongtailError
path = Path(sys.argv[1])
content = path.read_bytes()
footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
for at in range(footer, footer + 120):
    damaged = bytearray(content)
    damaged[at] ^= 1
    path.write_bytes(damaged)
    with suppress(LongtailError):
        read_data(path, report=ReadReport())
"""
    ended = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True)
    assert ended.returncode == 0, ended.stderr.decode()
