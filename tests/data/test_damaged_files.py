"""Files that end too early, and files made to do harm: cut archives, entity bombs, ../ names."""

from __future__ import annotations

import gzip
import io
import random
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from longtail.data import ReadReport, read_data
from longtail.errors import DataError, LongtailError


def skip(path: Path, **options: Any) -> tuple[Any, ReadReport]:
    report = ReadReport()
    return read_data(path, on_error="skip", report=report, **options), report


def many(kind: str, samples: Any, n_documents: int = 2000) -> tuple[bytes, list[str]]:
    """A file's content, with words that do not compress well, and its ids in order."""
    words = random.Random(0)
    ids = [str(n) for n in range(1, n_documents + 1)]
    noise = [f"{words.getrandbits(400):x}" for _ in ids]
    both = list(zip(ids, noise, strict=True))
    if kind == "jsonl":
        lines = [f'{{"id": "{n}", "text": "{w}", "labels": ["x"]}}' for n, w in both]
        return "".join(f"{line}\n" for line in lines).encode(), ids
    if kind == "csv":
        return "\n".join(["id,text,labels", *(f"{n},{w},x" for n, w in both)]).encode(), ids
    if kind == "txt":
        return "\n".join(f"{n}\tx\t{w}" for n, w in both).encode(), ids
    if kind == "json":
        return samples.bioasq(*(samples.article(int(n), title=w) for n, w in both)), ids
    if kind == "xml":
        return samples.xml(*(samples.citation(int(n), title=w) for n, w in both)), ids
    stories = [samples.story(int(n), text=f"<TITLE>{w}</TITLE>") for n, w in both]
    return samples.sgml(*stories), [f"training/{n}" for n in ids]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "txt", "json", "xml", "sgm", "tar"])
def test_a_truncated_gzip_keeps_what_was_before_the_cut(
    tmp_path: Path, samples: Any, kind: str
) -> None:
    content, ids = many(kind, samples)
    if kind == "tar":
        content = tar_of({"reut2-000.sgm": content})
    path = tmp_path / ("a.tar.gz" if kind == "tar" else f"a.{kind}")
    packed = gzip.compress(content)
    cut = len(packed) * 2 // 3
    path.write_bytes(packed[:cut])
    there = len(gzip_before(packed[:cut]))
    with pytest.raises(DataError, match=r"cannot be read any further|not valid (JSON|CSV)"):
        read_data(path)
    data, report = skip(path)
    found = list(data.ids or ())
    assert found == ids[: len(found)]
    # All that can be unpacked, but for the last few KB in the machinery's hands.
    assert len(found) / len(ids) > there / len(content) - 0.03 > 0.6
    assert 1 <= report.skipped <= 2 and "cannot be read any further" in report.examples[-1]


def gzip_before(packed: bytes) -> bytes:
    import zlib

    return zlib.decompressobj(wbits=31).decompress(packed)


def test_a_damaged_gzip(tmp_path: Path, samples: Any) -> None:
    content, ids = many("jsonl", samples)
    path = tmp_path / "a.jsonl.gz"
    packed = bytearray(gzip.compress(content))
    middle = len(packed) // 2
    packed[middle : middle + 30] = bytes(30)
    path.write_bytes(packed)
    with pytest.raises(DataError, match=str(path)):
        read_data(path)
    data, report = skip(path)
    assert list(data.ids or ())[:500] == ids[:500] and report.skipped >= 1
    # The very last bytes are the checksum; a wrong one must be told too.
    packed = bytearray(gzip.compress(content))
    packed[-6] ^= 255
    path.write_bytes(packed)
    with pytest.raises(DataError, match=r"after 2000 records: cannot be read any further.*CRC"):
        read_data(path)
    assert skip(path)[0].ids == tuple(ids)


def test_a_truncated_file_of_one_big_document(tmp_path: Path, samples: Any) -> None:
    content = samples.bioasq(*map(samples.article, range(1, 6)))
    path = tmp_path / "a.json"
    path.write_bytes(content[: content.index(b'"Abstract 4')])
    with pytest.raises(DataError, match=r"article 3: not valid JSON after this article.*the rest"):
        read_data(path)
    data, report = skip(path)
    assert data.ids == ("1", "2", "3") and report.skipped == 1
    path.write_bytes(content.replace(b'"Abstract 4."', b"oops"))
    assert skip(path)[0].ids == ("1", "2", "3")
    content = samples.xml(*map(samples.citation, range(1, 6)))
    path = tmp_path / "a.xml"
    for damaged in (
        content[: content.index(b"Abstract 4")],
        content.replace(b"Abstract 4", b"<b>"),
        content.replace(b"Abstract 4", b"\xff"),
        content.replace(b"Abstract 4", b"&unknown;"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"a\.xml, line 7: not valid XML.*the rest of the file"):
            read_data(path)
        data, report = skip(path)
        assert data.ids == ("1", "2", "3") and report.skipped == 1


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_json_of_another_kind(tmp_path: Path, on_error: str) -> None:
    path = tmp_path / "a.json"
    for content in ('{"text": "a", "labels": ["x"]}\n' * 2, '[{"text": "a"}]', "{}", "nonsense"):
        path.write_text(content)
        with pytest.raises(DataError, match=r"as in BioASQ Task A, got no articles.*jsonl"):
            read_data(path, on_error=on_error)
    # A number this long crashed the whole process inside ijson.
    path.write_text('{"articles": [{"pmid": 1' + "0" * 5000 + "}]}")
    with pytest.raises(DataError, match="4300 digits"):
        read_data(path, on_error=on_error)
    (tmp_path / "a.xml").write_text("<html><body>Not found</body></html>")
    with pytest.raises(DataError, match="expected PubmedArticle elements"):
        read_data(tmp_path / "a.xml", on_error=on_error)


BOMB = "".join(f'<!ENTITY b{k} "{f"&b{k - 1};" * 10}">' for k in range(1, 9))
ATTACKS = {
    "bomb": f'<!DOCTYPE x [<!ENTITY b0 "ha">{BOMB}]>',
    "external": '<!DOCTYPE x [<!ENTITY b8 SYSTEM "file:///etc/passwd">]>',
    "public": '<!DOCTYPE x [<!ENTITY b8 PUBLIC "-//X//EN" "http://localhost:9/x">]>',
    "parameter": '<!DOCTYPE x [<!ENTITY % b8 SYSTEM "file:///etc/passwd"> %b8;]>',
    "unparsed": '<!DOCTYPE x [<!NOTATION n SYSTEM "n"><!ENTITY b8 SYSTEM "x" NDATA n>]>',
    "late": "<!-- " + "x" * 70_000 + ' --><!DOCTYPE x [<!ENTITY b8 "ha">]>',
}


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_entities_are_refused(tmp_path: Path, samples: Any, attack: str, on_error: str) -> None:
    content = samples.xml(samples.citation(1, title="&b8;"), head=ATTACKS[attack])
    for name, stored in (("a.xml", content), ("a.xml.gz", gzip.compress(content))):
        (tmp_path / name).write_bytes(stored)
        with pytest.raises(DataError, match=r"was refused: its <!DOCTYPE 'x'> declares"):
            read_data(tmp_path / name, on_error=on_error)
    wide = ('<?xml version="1.0" encoding="utf-16"?>' + content.decode()).encode("utf-16")
    (tmp_path / "a.xml").write_bytes(wide)
    with pytest.raises(DataError, match="was refused"):
        read_data(tmp_path / "a.xml", on_error=on_error)


def tar_of(files: dict[str, bytes | str | int]) -> bytes:
    """An archive of files; a string is a symbolic link to it, a number the type of a link."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
                continue
            member.type = tarfile.SYMTYPE if isinstance(content, str) else tarfile.LNKTYPE
            member.linkname = content if isinstance(content, str) else "reut2-000.sgm"
            archive.addfile(member)
    return buffer.getvalue()


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize(
    "name", ["../reut2-001.sgm", "a/../../b.sgm", "/etc/b.sgm", "..\\b.sgm", "C:\\b.sgm", "c:/b"]
)
def test_archives_with_names_outside_are_refused(
    tmp_path: Path, samples: Any, name: str, on_error: str
) -> None:
    story = samples.sgml(samples.story(1))
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(tar_of({"reut2-000.sgm": story, name: b""})))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("cats.txt", "training/1 x")
        archive.writestr("training/1", "text")
        archive.writestr(name, "text")
    for path in (tmp_path / "a.tar.gz", tmp_path / "a.zip"):
        with pytest.raises(DataError, match=r"was refused: it holds a file called '.*outside of"):
            read_data(path, on_error=on_error)
    # Names in cats.txt lead to files too.
    folder = tmp_path / "nltk"
    folder.mkdir()
    (folder / "cats.txt").write_text(f"{name} x\n")
    with pytest.raises(DataError, match="was refused"):
        read_data(folder, on_error=on_error)


@pytest.mark.parametrize("link", ["/etc/passwd", "../../secret", "reut2-000.sgm", 1])
def test_links_in_archives_are_refused(tmp_path: Path, samples: Any, link: str | int) -> None:
    files = {"reut2-000.sgm": samples.sgml(samples.story(1)), "reut2-001.sgm": link}
    (tmp_path / "a.tar").write_bytes(tar_of(files))
    with pytest.raises(DataError, match=r"was refused: 'reut2-001\.sgm' is a link to"):
        read_data(tmp_path / "a.tar", on_error="skip")


def test_members_that_unpack_to_absurd_sizes(tmp_path: Path, samples: Any) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of({"reut2-000.sgm": bytes(3 << 20)}))
    for large in ("cats.txt", "training/1"):
        members = {"cats.txt": b"training/1 x", "training/1": b"text", large: bytes(3 << 20)}
        with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        for name in ("a.tar", "a.zip"):
            with pytest.raises(DataError, match=r"larger than 1 MB.*max_record_mb=4 \(--max-"):
                read_data(tmp_path / name, on_error="skip", max_record_mb=1)


def test_one_damaged_member_of_a_zip(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("cats.txt", "".join(f"training/{k} x\n" for k in range(5)))
        for k in range(5):
            archive.writestr(f"training/{k}", f"text {k}")
    content = path.read_bytes()
    path.write_bytes(content.replace(b"text 2", b"txet 2"))
    with pytest.raises(DataError, match=r"line 3: the file 'training/2' cannot be read \(Bad CRC"):
        read_data(path)
    data, report = skip(path)
    assert data.texts == ["text 0", "text 1", "text 3", "text 4"] and report.skipped == 1
    # The flag of encryption, in the central directory: a password would be needed.
    damaged = bytearray(content)
    damaged[content.rindex(b"PK\x01\x02", 0, content.rindex(b"training/3")) + 8] |= 1
    path.write_bytes(damaged)
    with pytest.raises(DataError, match=r"line 4.*(password|encrypted)"):
        read_data(path)


@pytest.mark.parametrize("kind", ["jsonl", "csv", "txt", "json", "xml", "sgm", "tar", "zip"])
def test_noise_ends_in_our_own_errors(tmp_path: Path, samples: Any, kind: str) -> None:
    if kind == "zip":
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("cats.txt", "training/1 x\ntraining/2 y")
            archive.writestr("training/1", "some text")
            archive.writestr("training/2", "more text")
        content = buffer.getvalue()
    else:
        content, _ = many("sgm" if kind == "tar" else kind, samples, 4)
    if kind == "tar":
        content = tar_of({"reut2-000.sgm": content, "reut2-001.sgm": content})
    chance = random.Random(1)
    path = tmp_path / f"a.{kind}"
    for trial in range(200):
        damaged = bytearray(content)
        for _ in range(chance.choice([1, 3, 30])):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        if trial % 3 == 0:
            del damaged[chance.randrange(len(damaged)) :]
        path.write_bytes(
            gzip.compress(damaged)[: -chance.randrange(1, 30)]
            if trial % 7 == 0 and kind != "zip"
            else damaged
        )
        for on_error in ("raise", "skip"):
            with suppress(LongtailError):
                read_data(path, on_error=on_error, report=ReadReport())
