"""Files that end too early, are damaged, or unpack to all memory: archives, XML, Parquet."""

from __future__ import annotations

import gzip
import io
import random
import struct
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
from longtail.data.parquet import _values
from longtail.data.parquet_pages import bounded_batches
from longtail.errors import DataError

from .cases import (
    article,
    bioasq,
    citation,
    peak_of,
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
    with pytest.raises(DataError, match=r"cannot be read any further|not valid (JSON|CSV)"):
        read(path, packed)
    data, report = skip(path)
    assert numbers(data) == list(range(len(data)))
    # All that can be unpacked, but for the last few KB in buffers.
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
    # The header of a table is no record.
    table = gzip.compress(b"text,a\nx,1\ny,1\n")[:-8]
    with pytest.raises(DataError, match="after 2 records: cannot be read any further"):
        read(tmp_path / "a.csv", table, label_columns="*")


ARTICLES = bioasq(*map(article, range(1, 6)))
CITATIONS = xml(*map(citation, range(1, 6)))
NOT_XML = r"a\.xml, line 7: not valid XML.*the rest of the file"
NOT_JSON = r"article 3: not valid JSON after this article.*the rest"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", ARTICLES[: ARTICLES.index(b'"Abstract 4')], NOT_JSON),
        ("a.json", ARTICLES.replace(b'"Abstract 4."', b"oops"), NOT_JSON),
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
    assert data.ids == ("1", "2", "3") and report.skipped == 1


@ON_ERROR
def test_files_of_another_kind(tmp_path: Path, on_error: str) -> None:
    for content in (
        *('{"text": "a", "labels": ["x"]}\n' * 2, '[{"text": "a"}]', "{}", "nonsense"),
        *('{"articles": 1,}', '{"articles": []} x', '{1: "articles"}'),
    ):
        with pytest.raises(DataError, match=r"as in BioASQ Task A, got no articles.*jsonl"):
            read(tmp_path / "a.json", content, on_error=on_error)
    html = "<html><body>Not found</body></html>"
    with pytest.raises(DataError, match="expected PubmedArticle elements"):
        read(tmp_path / "a.xml", html, on_error=on_error)


BOMB = "".join(f'<!ENTITY b{k} "{f"&b{k - 1};" * 10}">' for k in range(1, 9))
SUBSETS = {
    "bomb": f'<!ENTITY b0 "ha">{BOMB}',
    "external": '<!ENTITY b8 SYSTEM "file:///etc/passwd">',
    "parameter": '<!ENTITY % b8 SYSTEM "file:///etc/passwd"> %b8;',
    "attributes": '<!ATTLIST x y CDATA "z">',
    "empty": "",
}


@ON_ERROR
@pytest.mark.parametrize("subset", SUBSETS)
def test_internal_subsets_are_refused(tmp_path: Path, subset: str, on_error: str) -> None:
    head = f"<!DOCTYPE x [{SUBSETS[subset]}]>"
    content = xml(citation(1, title="&b8;"), head=head)
    late = xml(citation(1), head=f"<!-- {'x' * 70_000} -->{head}")
    wide = ('<?xml version="1.0" encoding="utf-16"?>' + content.decode()).encode("utf-16")
    for stored in (content, gzip.compress(content), late, wide):
        with pytest.raises(DataError, match=r"was refused: its <!DOCTYPE 'x'> declares"):
            read(tmp_path / "a.xml", stored, on_error=on_error)


@ON_ERROR
@pytest.mark.parametrize(
    "name", ["../reut2-001.sgm", "a/../../b.sgm", "/etc/b.sgm", "..\\b.sgm", "C:\\b.sgm", "c:/b"]
)
def test_archives_with_names_outside_are_refused(tmp_path: Path, name: str, on_error: str) -> None:
    files = {"reut2-000.sgm": sgml(story(1)), name: b""}
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(tar_of(files)))
    zip_of(tmp_path / "a.zip", {"cats.txt": "training/1 x", "training/1": "text", name: "text"})
    # Names in cats.txt lead to files too.
    write_files(tmp_path / "nltk", {"cats.txt": f"{name} x\n"})
    for source in ("a.tar.gz", "a.zip", "nltk"):
        with pytest.raises(DataError, match=r"was refused: it holds a file called '.*outside of"):
            read_data(tmp_path / source, on_error=on_error)


def header(name: str, kind: bytes, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 512)


FILE = padded(header("reut2-000.sgm", tarfile.REGTYPE, len(sgml(story(1)))) + sgml(story(1)))
LINK, PAX = r"was refused: 'a\.sgm' is a link to", header("x", tarfile.XHDTYPE, 512)
SPARSE = padded(b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (header("x", tarfile.GNUTYPE_LONGNAME, 1 << 25), "a header of it has over 65,536 bytes"),
        (header("x", tarfile.XHDTYPE, 1 << 25), "a header of it has over 65,536 bytes"),
        (header("reut2-000.sgm", tarfile.GNUTYPE_SPARSE, 1 << 40), "is a sparse file"),
        (PAX + padded(b"9 path=x\n"), "empty header"),
        # A map of 10^9 numbers, all of which would be in memory.
        (PAX + SPARSE + header("y", b"0", 9) + b"999999999\n" + b"0\n" * 99_999, "over 65,536"),
        *((tar_of({"a.sgm": link}), LINK) for link in ("/etc/passwd", "../x", "reut2-000.sgm", 1)),
        # Back to the beginning, again and again.
        (FILE + header("x", b"0", -1024), "damaged header|invalid number"),
        (FILE + header("x", b"0", -len(FILE) - 512), "damaged header|invalid number"),
        # A second archive after the end of the first would be lost silently.
        (FILE + bytes(1024) + FILE, "data after its end"),
        (FILE + b"x" + FILE[1:], "a damaged header"),
        (FILE + b"x" * 100, "a damaged header"),
        (header("reut2-000.sgm", tarfile.REGTYPE, 10_000), "unexpected end of data"),
    ],
)
def test_tar_headers_that_cannot_be_read(tmp_path: Path, content: bytes, message: str) -> None:
    for stored in (content, gzip.compress(content)):
        with pytest.raises(DataError, match=message):
            read(tmp_path / "a.tar", stored)


def test_tar_of_every_style(tmp_path: Path) -> None:
    content = sgml(story(1))
    folder = "a long folder name/" * 10
    for number, style in enumerate((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=style) as archive:
            member = tarfile.TarInfo(("größe/" if number else "") + folder + "reut2-000.sgm")
            member.size = len(content)
            archive.addfile(tarfile.TarInfo("README"))
            archive.addfile(member, io.BytesIO(content))
            # The long name is of that file only.
            member = tarfile.TarInfo("notes.txt")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        assert read(tmp_path / "a.tar", buffer.getvalue()).ids == ("training/1",)
    # A folder of an incremental backup, the oldest kind of folder, and a kind that is not known.
    for kind, name in ((b"D", "folder"), (tarfile.AREGTYPE, "folder/"), (b"Z", "x")):
        size = 0 if name.endswith("/") else 20
        before = header(name, kind, size) + padded(b"Yreut2-000.sgm".ljust(size, b"\0")[:size])
        assert read(tmp_path / "a.tar", before + FILE + bytes(1024)).ids == ("training/1",)


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
    # The flag of encryption, in the central directory: a password would be needed.
    damaged = bytearray(content)
    damaged[content.rindex(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(DataError, match=r"line 2.*(password|encrypted)"):
        read(path, bytes(damaged))


def test_a_file_of_a_zip_named_many_times(tmp_path: Path) -> None:
    members = {"cats.txt": b"training/1 x\n" * 20_000, "training/1": b"y" * 2_000_000}
    data, report = skip(zip_of(tmp_path / "a.zip", members))
    assert len(data) == 1 and report.skipped == 19_999
    assert "cats.txt, line 2: the id 'training/1' is already taken" in report.examples[0]


def test_zips_with_a_wrong_directory(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "a.zip", MEMBERS)
    content = path.read_bytes()
    last, first = content.rindex(b"PK\1\2"), content.index(b"PK\1\2")
    # Both names lead to the bytes of the first file.
    with pytest.raises(DataError, match=r"was refused: its directory names .* twice, or its bytes"):
        skip(path, content[: last + 42] + content[first + 42 : first + 46] + content[last + 46 :])
    path.write_bytes(content)
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("training/1", "other")
    with pytest.raises(DataError, match=r"was refused: its directory names 'training/1' twice"):
        read_data(path)
    # A size that is not the true one, and a directory that is larger than the limit.
    content = zip_of(path, {**MEMBERS, "training/2": bytes(50_000_000)}).read_bytes()
    at = content.rindex(b"PK\1\2") + 24
    path.write_bytes(content[:at] + struct.pack("<L", 5) + content[at + 4 :])
    assert peak_of(lambda: skip(path)) < 10 << 20
    assert "Bad CRC" in skip(path)[1].examples[0]
    zip_of(path, {**MEMBERS, **{f"{k:0200d}": b"" for k in range(50)}})
    with pytest.raises(DataError, match=r"the directory of the zip archive is larger than 0\.01"):
        read_data(path, max_record_mb=0.01)
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with pytest.raises(DataError, match="packed by another method than deflate"):
            read_data(zip_of(path, MEMBERS, method))


def test_zip64_with_all_fields_elsewhere(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "a.zip", {**MEMBERS, "README": random.Random(0).randbytes(100_000)})
    content = path.read_bytes()
    end = content.rfind(b"PK\5\6")
    count, size, offset = struct.unpack("<HLL", content[end + 10 : end + 20])
    record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, offset)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, end, 1)
    last = struct.pack("<4s2H", b"PK\5\6", 0, 0) + b"\xff" * 12 + bytes(2)
    data = read(path, content[:end] + record + locator + last, max_record_mb=0.05)
    assert data.ids == ("training/1", "training/2")


def write_parquet_table(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    columns = {**columns, "labels": columns.get("labels", [["a"]] * len(columns["text"]))}
    pq.write_table(pa.table(columns), path, **options)
    return path


def repeated(value: str, n: int) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), pa.array([value]))


def test_parquet_bombs(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    # A page that unpacks to more than the limit.
    columns: dict[str, Any] = {"text": ["x" * 20_000_000]}
    write_parquet_table(path, columns, compression="zstd", use_dictionary=False)
    assert path.stat().st_size < 10_000
    with pytest.raises(DataError, match=r"a page of the column 'text' is larger than 1 MB"):
        read_data(path, max_record_mb=1)
    # One long value in many rows: written once, and once in memory.
    write_parquet_table(path, {"text": repeated("x" * 900_000, 200)})
    assert peak_of(lambda: read_data(path, max_record_mb=1)) < 20 << 20
    # Values that share their beginnings: a few rows at a time, each as large as the page.
    # Pages of one large value each: one row at a time.
    for texts, n_rows, options in (
        (["x" * 400_000] * 20, 2, {"column_encoding": {"text": "DELTA_BYTE_ARRAY"}}),
        ([f"{k}" * 500_000 for k in range(9)], 1, {"write_batch_size": 1, "data_page_size": 1}),
    ):
        write_parquet_table(path, {"text": texts}, use_dictionary=False, **options)
        batches = bounded_batches(path, ["text", "labels"], 1_000_000)
        assert {batch.num_rows for batch in batches} == {n_rows}
        assert read_data(path, max_record_mb=1).texts == texts
    # Lists of so many labels, or of such long ones, that one row does not fit.
    for value, n_values, message in (
        ("x" * 999, 100_000, "row 1: the row is larger than 1 MB"),
        ("x", 3_000_000, r"a list in the column 'labels\..*' is larger than 1 MB"),
    ):
        offsets = pa.array([0, n_values], pa.int32())
        lists = pa.ListArray.from_arrays(offsets, repeated(value, n_values))
        write_parquet_table(path, {"text": ["a"], "labels": lists})
        with pytest.raises(DataError, match=message):
            read_data(path, max_record_mb=1)
        assert len(read_data(path, max_record_mb=100)) == 1


def test_parquet_pages_that_are_larger_than_a_record(tmp_path: Path) -> None:
    # DuckDB and fastparquet write the texts of a whole group of rows in one page.
    chance = random.Random(0)
    texts = [chance.randbytes(500).hex() for _ in range(12_000)]
    names = [f"label {k}" for k in range(50)] + ["a label of many words " * 15]
    labels = [sorted(chance.sample(names, 5)) for _ in texts]
    path, columns = tmp_path / "a.parquet", {"text": texts, "labels": labels}
    one_page = {"data_page_size": 1 << 30, "max_rows_per_page": 1 << 30}
    write_parquet_table(path, columns, use_dictionary=["labels.list.element"], **one_page)
    data = read_data(path, max_record_mb=1)
    assert data.texts == texts and [sorted(document.labels) for document in data] == labels


def test_parquet_rows_that_are_too_large_or_of_a_wrong_type(tmp_path: Path) -> None:
    texts = ["good", random.Random(0).randbytes(1_000_000).hex(), "better"]
    path = write_parquet_table(tmp_path / "a.parquet", {"text": texts})
    data, report = skip(path, max_record_mb=1)
    assert data.texts == ["good", "better"] and "row 2: the row is larger" in report.examples[0]
    assert read_data(path, max_record_mb=4).texts == texts
    for labels in ([{"a": "x"}] * 3, [[{"a": "x"}]] * 3):
        write_parquet_table(path, {"text": texts, "labels": labels})
        with pytest.raises(DataError, match=r"row 1: .* got a structure of several"):
            read_data(path)


def test_parquet_groups_that_share_bytes(tmp_path: Path) -> None:
    path, columns = tmp_path / "a.parquet", {"text": ["good " * 40] * 2}
    write_parquet_table(path, columns, row_group_size=1, use_dictionary=False, compression="none")
    groups = pq.ParquetFile(path).metadata
    first, second = (groups.row_group(k).column(0).data_page_offset for k in (0, 1))
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    # Offsets are written doubled, seven bits a byte; the first one is padded to two bytes.
    old, new = (bytes([2 * n & 127 | 128, 2 * n >> 7]) for n in (second, first))
    assert second < 1 << 13 and old in content[footer:]
    with pytest.raises(DataError, match=r"was refused: the bytes of the column 'text' belong to"):
        read(path, content[:footer] + content[footer:].replace(old, new))


def test_parquet_values_of_a_slice() -> None:
    array = pa.array([["a", "b"], ["c"], None, [], ["d", None]]).slice(1, 4)
    for same in (array, array.cast(pa.list_(pa.dictionary(pa.int32(), pa.string())))):
        assert _values(same, 100) == [["c"], None, [], ["d", None]]


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "lz4"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_parquet_of_many_kinds(tmp_path: Path, compression: str, version: str) -> None:
    # The headers of pages are parsed by longtail: whatever writers do must pass through it.
    texts = [f"text {k} " + "word " * (k % 50) for k in range(5000)]
    labels = [[f"a{k % 7}", f"b{k}"] if k % 9 else [] for k in range(5000)]
    delta = {"text": "DELTA_BYTE_ARRAY", "labels.list.element": "DELTA_LENGTH_BYTE_ARRAY"}
    common = dict(compression=compression, data_page_version=version, write_page_index=True)
    common |= dict(row_group_size=2000, data_page_size=10_000)
    path, columns = tmp_path / "a.parquet", {"text": texts, "labels": labels, "id": range(5000)}
    plain = {"use_dictionary": False}
    for options in ({}, plain, plain | {"column_encoding": delta}):
        write_parquet_table(path, columns, **common, **options)
        data = read_data(path, keep_unlabelled=True)
        assert data.texts == texts and data[4999].labels == ["a1", "b4999"]
        assert data.Y.sum() == sum(map(len, labels))


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
