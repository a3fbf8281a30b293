"""Archives and Parquet files made or damaged so that they would take all memory: our errors."""

from __future__ import annotations

import gzip
import io
import random
import struct
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest

from longtail.data import ReadReport, read_data
from longtail.data.parquet_pages import bounded_batches, open_parquet
from longtail.errors import DataError


def skip(path: Path, **options: Any) -> tuple[Any, ReadReport]:
    report = ReadReport()
    return read_data(path, on_error="skip", report=report, **options), report


def header(name: str, kind: bytes, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_tar_names_of_many_megabytes(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(header("x", kind, 64 << 20) + bytes(64 << 20)))
    with pytest.raises(DataError, match=r"was refused: it holds a file name of 67,108,864 bytes"):
        read_data(path, on_error="skip")


def test_tar_that_is_unusual(tmp_path: Path, samples: Any) -> None:
    content = samples.sgml(samples.story(1))
    folder = "a long folder name/" * 10
    for number, style in enumerate((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)):
        path = tmp_path / f"{number}.tar"
        with tarfile.open(path, "w", format=style) as archive:
            name = ("größe/" if number else "") + folder + "reut2-000.sgm"
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(tarfile.TarInfo("README"))
            archive.addfile(member, io.BytesIO(content))
        assert read_data(path).ids == ("training/1",)
    sparse = header("reut2-000.sgm", tarfile.GNUTYPE_SPARSE, 1 << 40)
    (tmp_path / "a.tar").write_bytes(sparse)
    with pytest.raises(DataError, match="is a sparse file"):
        read_data(tmp_path / "a.tar")
    # A second archive after the end of the first would be passed over without a word.
    path.write_bytes(path.read_bytes() + path.read_bytes())
    with pytest.raises(DataError, match="data after its end"):
        read_data(path)


def zip_of(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_a_file_of_a_zip_named_many_times(tmp_path: Path) -> None:
    members = {"cats.txt": b"training/1 x\n" * 20_000, "training/1": b"y" * 2_000_000}
    data, report = skip(zip_of(tmp_path / "a.zip", members))
    assert len(data) == 1 and report.skipped == 19_999
    assert "cats.txt, line 2: the id 'training/1' is already taken" in report.examples[0]


def test_zips_with_a_wrong_directory(tmp_path: Path) -> None:
    members = {"cats.txt": b"training/1 x\ntraining/2 y\n", "training/1": b"1", "training/2": b"2"}
    path = zip_of(tmp_path / "a.zip", members)
    content = path.read_bytes()
    last = content.rindex(b"PK\1\2")
    first = content.index(b"PK\1\2")
    # Both names lead to the bytes of the first file.
    overlapping = bytearray(content)
    overlapping[last + 42 : last + 46] = content[first + 42 : first + 46]
    path.write_bytes(overlapping)
    with pytest.raises(DataError, match=r"was refused: its directory names .* twice, or its bytes"):
        read_data(path, on_error="skip")
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("training/1", "other")
    with pytest.raises(DataError, match="was refused"):
        read_data(path)
    # A size that is not the true one, and a directory that is larger than the limit.
    path = zip_of(path, {**members, "training/2": bytes(50_000_000)})
    content = path.read_bytes()
    lying = bytearray(content)
    at = content.rindex(b"PK\1\2") + 24
    lying[at : at + 4] = struct.pack("<L", 5)
    path.write_bytes(lying)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="Bad CRC"):
            read_data(path)
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()
    zip_of(path, {**members, **{f"{k:0200d}": b"" for k in range(50)}})
    with pytest.raises(DataError, match=r"the directory of the zip archive is larger than 0\.01"):
        read_data(path, max_record_mb=0.01)


def test_zip_methods_other_than_deflate(tmp_path: Path) -> None:
    members = {"cats.txt": b"training/1 x\n", "training/1": bytes(10_000_000)}
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        path = zip_of(tmp_path / "a.zip", members, method)
        with pytest.raises(DataError, match="packed by another method than deflate"):
            read_data(path)


def test_tar_of_an_incremental_backup(tmp_path: Path, samples: Any) -> None:
    content = samples.sgml(samples.story(1))
    folder = header("folder", b"D", 20) + b"Yreut2-000.sgm".ljust(512, b"\0")
    file = header("reut2-000.sgm", tarfile.REGTYPE, len(content)) + content
    path = tmp_path / "a.tar"
    path.write_bytes(folder + file + bytes(-len(file) % 512 + 1024))
    assert read_data(path).ids == ("training/1",)


def test_zip64_with_all_fields_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("cats.txt", "training/1 a\n")
        archive.writestr("training/1", "text")
        archive.writestr("README", bytes(100_000))
    content = path.read_bytes()
    end = content.rfind(b"PK\5\6")
    count, size, offset = struct.unpack("<HLL", content[end + 10 : end + 20])
    record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, offset)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, end, 1)
    last = struct.pack("<4s2H", b"PK\5\6", 0, 0) + b"\xff" * 12 + bytes(2)
    path.write_bytes(content[:end] + record + locator + last)
    assert read_data(path, max_record_mb=0.05).ids == ("training/1",)


def write_parquet_table(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), path, **options)
    return path


def test_parquet_bombs(tmp_path: Path) -> None:
    import pyarrow as pa

    path = tmp_path / "a.parquet"
    # A page that unpacks to more than the limit.
    columns: dict[str, Any] = {"text": ["x" * 20_000_000], "labels": [["a"]]}
    write_parquet_table(path, columns, compression="zstd", use_dictionary=False)
    assert path.stat().st_size < 10_000
    with pytest.raises(DataError, match=r"a page of the column 'text' is larger than 1 MB"):
        read_data(path, max_record_mb=1)
    # One long value in many rows of a dictionary: read few at a time.
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 64, pa.int32()), pa.array(["x" * 900_000]))
    write_parquet_table(path, {"text": text, "labels": [["a"]] * 64})
    with open_parquet(path) as file:
        batches = bounded_batches(path, file, ["text", "labels"], 1_000_000)
        assert [batch.num_rows for batch in batches] == [1] * 64
    assert len(read_data(path, max_record_mb=1)) == 64
    # A list of so many long labels that one row does not fit.
    names = pa.DictionaryArray.from_arrays(
        pa.array([0] * 100_000, pa.int32()), pa.array(["x" * 999])
    )
    labels = pa.ListArray.from_arrays(pa.array([0, 100_000], pa.int32()), names)
    write_parquet_table(path, {"text": ["a"], "labels": labels})
    with pytest.raises(DataError, match=r"a list in the column 'labels\..*' is larger than 1 MB"):
        read_data(path, max_record_mb=1)
    assert len(read_data(path, max_record_mb=100)) == 1


def test_parquet_pages_that_are_larger_than_a_record(tmp_path: Path) -> None:
    # DuckDB and fastparquet write the texts of a whole group of rows in one page.
    chance = random.Random(0)
    texts = [chance.randbytes(500).hex() for _ in range(12_000)]
    names = [f"label {k}" for k in range(50)] + ["a label of many words " * 15]
    labels = [sorted(chance.sample(names, 5)) for _ in texts]
    path = tmp_path / "a.parquet"
    one_page = {"data_page_size": 1 << 30, "max_rows_per_page": 1 << 30}
    columns = {"text": texts, "labels": labels}
    write_parquet_table(path, columns, use_dictionary=["labels.list.element"], **one_page)
    data = read_data(path, max_record_mb=1)
    assert data.texts == texts and [sorted(document.labels) for document in data] == labels


def test_parquet_rows_that_are_too_large(tmp_path: Path) -> None:
    chance = random.Random(0)
    texts = ["good", chance.randbytes(1_000_000).hex(), "better"]
    path = write_parquet_table(tmp_path / "a.parquet", {"text": texts, "labels": [["a"]] * 3})
    data, report = skip(path, max_record_mb=1)
    assert data.texts == ["good", "better"] and "row 2: the row is larger" in report.examples[0]
    assert read_data(path, max_record_mb=4).texts == texts


def test_parquet_groups_that_share_bytes(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    path = tmp_path / "a.parquet"
    columns = {"text": ["good " * 40] * 2, "labels": [["a"]] * 2}
    write_parquet_table(path, columns, row_group_size=1, use_dictionary=False, compression="none")
    first, second = (
        pq.ParquetFile(path).metadata.row_group(k).column(0).data_page_offset for k in (0, 1)
    )
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    # Offsets stand there doubled, seven bits a byte; the first one is padded to two bytes.
    old, new = (bytes([2 * n & 127 | 128, 2 * n >> 7]) for n in (second, first))
    assert second < 1 << 13 and old in content[footer:]
    path.write_bytes(content[:footer] + content[footer:].replace(old, new))
    with pytest.raises(DataError, match=r"was refused: the bytes of the column 'text' belong to"):
        read_data(path)


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "lz4"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_parquet_of_many_kinds(tmp_path: Path, compression: str, version: str) -> None:
    # The headers of pages are read by our own code: all that writers do must pass through it.
    texts = [f"text {k} " + "word " * (k % 50) for k in range(5000)]
    labels = [[f"a{k % 7}", f"b{k}"] for k in range(5000)]
    for dictionary in (True, False):
        path = write_parquet_table(
            tmp_path / "a.parquet",
            {"text": texts, "labels": labels, "id": list(range(5000))},
            compression=compression,
            data_page_version=version,
            use_dictionary=dictionary,
            row_group_size=2000,
            data_page_size=10_000,
            write_statistics=True,
            write_page_index=True,
        )
        data = read_data(path)
        assert data.texts == texts and data[4999].labels == ["a1", "b4999"]


def test_a_damaged_parquet_footer_does_not_end_the_process(tmp_path: Path) -> None:
    # Arrow's own view of such columns throws a C++ exception that nobody catches.
    path = write_parquet_table(tmp_path / "a.parquet", {"text": ["a"], "labels": [["x"]]})
    program = """
import sys
from pathlib import Path
from longtail.data import ReadReport, read_data
from longtail.errors import LongtailError
path = Path(sys.argv[1])
content = path.read_bytes()
footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
for place in range(footer, footer + 120):
    damaged = bytearray(content)
    damaged[place] ^= 1
    path.write_bytes(damaged)
    try:
        read_data(path, report=ReadReport())
    except LongtailError:
        pass
"""
    ended = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True)
    assert ended.returncode == 0, ended.stderr.decode()
