"""Nothing is left out in silence: each kind is counted in the report, and warned of without one."""

from __future__ import annotations

import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from longtail.data import ReadReport, TextData, load_data, read_data, write_data
from longtail.errors import DataError


def reported(path: Path, **options: Any) -> tuple[TextData, ReadReport]:
    report = ReadReport()
    return read_data(path, report=report, **options), report


def made(name: str) -> TextData:
    return TextData.from_lists([f"{name} {k}" for k in range(20)], [["a"], ["b"]] * 10)


def test_data_files_beside_the_parts(tmp_path: Path) -> None:
    for name in ("train.csv", "test.csv", "extra.csv", "more.jsonl", "unlabelled/a.csv"):
        write_data(made(name), tmp_path / name)
    for name in ("README.md", "notes.txt", "LICENSE", "labels.json", ".hidden.csv", "readme.csv"):
        (tmp_path / name).write_text("about")
    (tmp_path / "images").mkdir()
    report = ReadReport()
    parts = load_data(tmp_path, report=report)
    assert set(parts) == {"train", "validation", "test"}
    told = "data file beside those that were read ('extra.csv', 'more.jsonl', 'unlabelled')"
    assert report.left_out == {told: 3} and report.lines() == [f"3 left out: {told}."]
    with pytest.warns(UserWarning, match=r"3 left out: data file beside") as caught:
        load_data(tmp_path)
    assert caught[0].filename == __file__


def test_sgml_files_in_either_case(tmp_path: Path, samples: Any) -> None:
    (tmp_path / "reut2-000.sgm").write_bytes(samples.sgml(samples.story(1)))
    (tmp_path / "REUT2-001.SGM").write_bytes(samples.sgml(samples.story(2)))
    assert sorted(read_data(tmp_path).ids or ()) == ["training/1", "training/2"]


def test_sgml_tags_in_either_case(tmp_path: Path, samples: Any) -> None:
    path = tmp_path / "a.sgm"
    plain = samples.sgml(samples.story(1), samples.story(2, ("wheat", "corn")))
    path.write_bytes(plain)
    expected = read_data(path)
    lower = plain.decode("latin-1")
    for tag in ("REUTERS", "TOPICS", "TEXT", "TITLE>", "BODY", "DATE", "<D>", "</D>", "LEWISSPLIT"):
        lower = lower.replace(tag, tag.lower())
    path.write_text(lower.replace('"YES"', "yes").replace('"TRAIN"', "'train'"))
    found = read_data(path)
    assert (found.texts, found.ids, found.dates) == (expected.texts, expected.ids, expected.dates)
    assert found[1].labels == expected[1].labels == ["corn", "wheat"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<D>cocoa</D>", "<D>co\ncoa</D>", None),
        ("<D>cocoa</D>", "<D>cocoa</X>", r"expected topics as in <D>cocoa</D>, got '<D>cocoa"),
        ("<D>cocoa</D>", "cocoa", "expected topics as in <D>cocoa</D>, got 'cocoa'"),
        ("<BODY>", "<BODX>", "expected <BODY> and </BODY>, got one of them"),
        ("</TITLE>", "", "expected <TITLE> and </TITLE>"),
        ("</TEXT>", "", "expected <TEXT> and </TEXT>"),
        ("</TOPICS>", "", "expected <TOPICS> and </TOPICS>"),
    ],
)
def test_damaged_sgml(
    tmp_path: Path, samples: Any, old: str, new: str, message: str | None
) -> None:
    path = tmp_path / "a.sgm"
    path.write_bytes(samples.sgml(samples.story(1).replace(old, new), samples.story(2)))
    if message is None:
        # A label with a line feed was once dropped.
        assert read_data(path).label_names == ("co coa", "cocoa")
        return
    with pytest.raises(DataError, match=f"story 1: {message}"):
        read_data(path)
    data, report = reported(path, on_error="skip")
    assert data.ids == ("training/2",) and report.skipped == 1


def test_sgml_stories_with_a_damaged_beginning(tmp_path: Path, samples: Any) -> None:
    path = tmp_path / "a.sgm"
    stories = [samples.story(k) for k in (1, 2, 3)]
    for k, place in ((1, "story 1: expected the next story after it"), (0, "expected a story")):
        damaged = [*stories]
        damaged[k] = damaged[k].replace("<REUTERS", "<REUTXXS")
        path.write_bytes(samples.sgml(*damaged))
        with pytest.raises(DataError, match=place):
            read_data(path)
        data, report = reported(path, on_error="skip")
        assert len(data) == 2 and report.skipped == 1


def test_books_and_other_elements_of_medline(tmp_path: Path, samples: Any) -> None:
    path = tmp_path / "a.xml"
    other = (
        "<PubmedBookArticle><BookDocument><PMID>8</PMID></BookDocument></PubmedBookArticle>"
        "<pubmedarticle><PMID>9</PMID></pubmedarticle>"
        "<DeleteCitation><PMID>5</PMID><PMID>6</PMID></DeleteCitation>"
    )
    path.write_bytes(samples.xml(samples.citation(1), other, samples.citation(2)))
    data, report = reported(path)
    assert data.ids == ("1", "2")
    assert report.passed_over == {"a note that a citation was deleted": 2}
    assert report.left_out == {
        "book (PubmedBookArticle), not an article": 1,
        "element of another name than PubmedArticle": 1,
    }
    with pytest.warns(UserWarning, match="1 left out: book"):
        read_data(path)
    # Articles in an envelope are found at any depth, and the envelope is no element of its own.
    inside = f"<record><metadata>{samples.citation(3)}</metadata></record>"
    path.write_bytes(samples.xml(inside, samples.citation(4)))
    data, report = reported(path)
    assert data.ids == ("3", "4") and not report.left_out


def test_elements_beside_wrapped_citations(tmp_path: Path, samples: Any) -> None:
    book, path = "<PubmedBookArticle><PMID>8</PMID></PubmedBookArticle>", tmp_path / "a.xml"
    inner = f"<inner><early/>{samples.citation(1)}<late/>{book}</inner>"
    path.write_bytes(samples.xml(f"<outer><first/>{book}{inner}<last/></outer><other/>"))
    data, report = reported(path)
    assert data.ids == ("1",)
    assert report.left_out == {
        "book (PubmedBookArticle), not an article": 2,
        "element of another name than PubmedArticle": 5,
    }


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_files_that_cats_txt_does_not_name(tmp_path: Path, kind: str) -> None:
    files = {"cats.txt": "training/1 x\ntest/2 y\n", "training/1": "one", "test/2": "two"}
    others = {"training/3": "three", "test/4": "four", "README": "about", "stopwords": "the"}
    path = tmp_path / "reuters.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**files, **others}.items():
            archive.writestr(f"reuters/{name}", content)
    if kind == "folder":
        path = tmp_path / "folder"
        zipfile.ZipFile(tmp_path / "reuters.zip").extractall(path)
        path = path / "reuters"
    data, report = reported(path)
    assert len(data) == 2
    assert report.left_out == {"file beside the documents that cats.txt does not name": 2}


def test_json_keys_given_twice(tmp_path: Path, samples: Any) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"text": "a", "labels": ["x"], "note": 1, "note": 2, "more": {"k": 1, "k": 1}}\n'
        '{"text": "b", "labels": ["x"], "labels": ["y"]}\n'
    )
    with pytest.raises(DataError, match="line 2: the field 'labels' occurs twice"):
        read_data(path)
    data, report = reported(path, on_error="skip")
    # Fields that no document is made of may stand there as often as they like.
    assert data.texts == ["a"] and report.skipped == 1
    article = json.dumps(samples.article(1))
    path = tmp_path / "a.json"
    path.write_text('{"articles": [' + article[:-1] + ', "meshMajor": ["Other"]}]}')
    with pytest.raises(DataError, match="article 1: the field 'meshMajor' occurs twice"):
        read_data(path)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", "text,labels\nt,a;;b\nu,;c;\nv,d\n", 3),
        ("a.jsonl", '{"text": "t", "labels": "a; ;b"}', 1),
        ("a.txt", "a;;b;\tt\n", 2),
    ],
)
def test_empty_labels_between_separators(
    tmp_path: Path, name: str, content: str, expected: int
) -> None:
    path = tmp_path / name
    path.write_text(content)
    data, report = reported(path, label_separator=";")
    assert data[0].labels == ["a", "b"] and data[0].text == "t"
    assert report.left_out == {"empty label between separators": expected}


def test_label_names_that_are_easily_taken_for_others(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "t", "labels": ["a", " a", "b\nc", "d\x00"]}))
    data, report = reported(path)
    assert data.label_names == (" a", "a", "b\nc", "d\x00")
    wide = "label names that begin or end with white space, other labels than those without: 1"
    assert report.notes == [
        f"{wide} (' a').",
        "label names that hold a control character such as a line feed: 2 ('b\\nc', 'd\\x00').",
    ]


def test_what_was_left_out_is_summed_over_files_and_processes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text(f"id,text,labels\n{name},t,x;;y\n")
    for workers in (1, 2):
        _, report = reported(tmp_path, label_separator=";", workers=workers)
        assert report.left_out == {"empty label between separators": 2}


@pytest.mark.parametrize(
    ("tag", "more"),
    [
        ("TOPICS", "<TOPICS><D>tin</D></TOPICS>"),
        ("BODY", "<BODY>more</BODY>"),
        ("TEXT", "<TEXT><BODY>more</BODY></TEXT>"),
    ],
)
def test_sgml_elements_given_twice(tmp_path: Path, samples: Any, tag: str, more: str) -> None:
    path, plain = tmp_path / "a.sgm", samples.sgml(samples.story(1), samples.story(2)).decode()
    path.write_text(plain.replace(f"</{tag}>", f"</{tag}>{more}", 1))
    data, report = reported(path, on_error="skip")
    assert data.ids == ("training/2",)
    assert f"story 1: expected one <{tag}>, got several." in report.examples[0]


def test_sgml_tags_with_white_space(tmp_path: Path, samples: Any) -> None:
    path, plain = tmp_path / "a.sgm", samples.sgml(samples.story(1)).decode()
    path.write_text(plain)
    expected = read_data(path)
    for tag in ("TOPICS", "D", "TEXT", "TITLE", "BODY", "DATE"):
        plain = plain.replace(f"<{tag}>", f"<{tag} >").replace(f"</{tag}>", f"</{tag}\n>")
    path.write_text(plain)
    found = read_data(path)
    assert (found.texts, found.dates) == (expected.texts, expected.dates)
    assert found[0].labels == expected[0].labels


def test_files_beside_reuters(tmp_path: Path, samples: Any) -> None:
    plain = samples.sgml(samples.story(1))
    names = ("reut2-000.sgm", "deep/er/reut2-001.sgm", "reut2-002.sgm.gz", "more.jsonl")
    about = ("README.txt", "lewis.dtd", "all-topics-strings.lc.txt", "._reut2-000.sgm", ".x.jsonl")
    for name in (*names, *about, "reuters21578.tar"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(plain)
    data, report = reported(tmp_path)
    assert data.ids == ("training/1",)
    told = "data file beside those that were read ('deep', 'more.jsonl', 'reut2-002.sgm.gz')"
    assert report.left_out == {told: 3}
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        for name in ("reut2-000.sgm", "reut2-002.sgm.gz", "more.jsonl", *about):
            archive.add(tmp_path / name, f"./{name}")
    data, report = reported(path)
    assert data.ids == ("training/1",)
    assert report.left_out == {"file of the archive that is no .sgm file": 2}


def test_nltk_files_that_cats_does_not_name(tmp_path: Path) -> None:
    files = {
        "cats.txt": "training/1 a\ntest/index1 b\n",
        **dict.fromkeys(("training/1", "test/index1"), "text"),
        **dict.fromkeys(("test/index2", "test/readme77", "other/3", "4", "training/sub/9"), "text"),
        **dict.fromkeys(("README", "stopwords", "LICENSE.txt", ".x", "__MACOSX/a"), "about"),
    }
    root = tmp_path / "folder"
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name, content in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content)
            archive.writestr(f"reuters/{name}", content)
    for source in (root, tmp_path / "a.zip"):
        data, report = reported(source)
        assert len(data) == 2
        assert report.left_out == {"file beside the documents that cats.txt does not name": 5}


def test_parts_that_cannot_be_read(tmp_path: Path) -> None:
    write_data(made("train"), tmp_path / "train.jsonl")
    for name in ("test.jsonl.zst", "dev.xlsx", "test-0001.csv.bz2", "train.py", "test.md"):
        (tmp_path / name).write_text("x")
    (tmp_path / "more" / "deeper").mkdir(parents=True)
    write_data(made("more"), tmp_path / "more" / "deeper" / "a.jsonl")
    (tmp_path / "more" / "again").symlink_to(tmp_path)
    report = ReadReport()
    load_data(tmp_path, report=report)
    unread = "'dev.xlsx', 'test-0001.csv.bz2', 'test.jsonl.zst'"
    assert report.left_out == {
        f"file that is called like a part but is of no format that can be read ({unread})": 3,
        "data file beside those that were read ('more')": 1,
    }


def test_names_with_control_characters_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "\x1b[31mred\nforged.jsonl"
    path.write_text('{"text": "a", "labels": ["x"]}\nbroken\n')
    _, report = reported(path, on_error="skip")
    lines = report.lines()
    assert len(lines) == 2 and r"\x1b[31mred\nforged.jsonl" in lines[1]
    with pytest.warns(UserWarning, match="1 bad record") as caught:
        read_data(path, on_error="skip")
    assert "\x1b" not in str(caught[0].message) and str(caught[0].message).count("\n") == 1
