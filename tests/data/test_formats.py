"""JSONL, CSV, TSV, Parquet and LibMultiLabel's TSV: what each reader and writer does."""

from __future__ import annotations

import datetime
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from longtail.data import TextData, read_data, write_data
from longtail.data.formats import format_of_file
from longtail.errors import DataError, UnknownNameError

from .cases import labels_of, read, reported, skip


@pytest.mark.parametrize(
    ("names", "format"),
    [
        ("a.jsonl A.JSONL.GZ a.ndjson.gz", "jsonl"),
        ("a.b.csv", "csv"),
        ("a.tsv.gz", "tsv"),
        ("a.parquet", "parquet"),
        ("a.txt", "libmultilabel"),
        ("a.json.gz", "bioasq"),
        ("a.xml.gz", "medline"),
        ("a.tar.gz a.tgz reut2-000.sgm", "reuters"),
        ("a.zip", "nltk"),
        ("a.pdf jsonl a.gz", None),
    ],
)
def test_the_suffix_names_the_format(names: str, format: str | None) -> None:
    for name in names.split():
        entry = format_of_file(Path(name))
        assert (entry and entry.name) == format


def test_an_unknown_format_or_suffix(tmp_path: Path) -> None:
    path = tmp_path / "data.pdf"
    path.write_text("x")
    with pytest.raises(
        DataError, match=r"'data.pdf' belongs to no known format.*--format\): jsonl, csv"
    ):
        read_data(path)
    with pytest.raises(UnknownNameError, match=r"unknown format 'jsonnl'\. Did you mean 'jsonl'"):
        read_data(path, "jsonnl")
    data = TextData.from_lists(["one"], [["a"]])
    for target in (tmp_path / "out.pdf", tmp_path / "out.xml", tmp_path / "noformat"):
        with pytest.raises(DataError, match=r"cannot write .*formats: jsonl, csv, tsv"):
            write_data(data, target)
        assert not target.exists()
    with pytest.raises(DataError, match="cannot write the format 'bioasq'"):
        write_data(data, tmp_path / "out.json", "bioasq")


def test_jsonl_fields(tmp_path: Path) -> None:
    lines = [
        {"t": "Title", "b": "Body", "topics": ["x", "y", "x"], "n": 7, "day": "2020-01-05"},
        {"t": "Other", "b": "", "topics": ["z"], "n": "8", "more": {"deep": [1]}},
    ]
    content = "\n\n".join(map(json.dumps, lines))
    options = dict(text_field="t, b", labels_field="topics", id_field="n", date_field="day")
    data = read(tmp_path / "a.jsonl", content, **options)
    assert data.texts == ["Title\nBody", "Other\n"]
    assert labels_of(data) == [["x", "y"], ["z"]]
    assert data.ids == ("7", "8") and data.dates == ("2020-01-05", "")
    # No ids and dates are invented.
    data = read(tmp_path / "a.jsonl", content, text_field="t", labels_field="topics")
    assert data.ids is None and data.dates is None


def test_some_ids_and_others_made_up(tmp_path: Path) -> None:
    lines = [{"text": "t", "labels": ["a"]} | extra for extra in ({}, {"id": "x"}, {"id": ""})]
    assert read(tmp_path / "a.jsonl", "\n".join(map(json.dumps, lines))).ids == ("#0", "x", "#2")


def test_jsonl_labels_in_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    content = '{"text": "t", "z": 1, "a": 0, "none": false}\n{"text": "u", "z": true, "a": 1.0}'
    data = read(path, content, label_columns="*")
    assert data.label_names == ("a", "z") and labels_of(data) == [["z"], ["a", "z"]]
    data = read(path, '{"text": "t", "z": 1, "a": 0, "size": 17}', label_columns="z, a")
    # Named labels keep their order, and have columns even without documents.
    assert data.label_names == ("z", "a") and labels_of(data) == [["z"]]
    with pytest.raises(DataError, match="line 1: expected a label column 'b', got: 'text'"):
        read(path, label_columns="z, b")


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        ("\ufeff" + '{"text": "Größe", "labels": ["ä"]}\r\n', None),
        ('{"text": "Größe", "labels": ["ä"]}', "latin-1"),
        ('{"text": "Größe", "labels": ["ä"]}\n', "utf-16"),
    ],
)
def test_encodings_and_byte_order_marks(tmp_path: Path, content: str, encoding: str | None) -> None:
    raw = content.encode(encoding or "utf-8")
    for name, stored in (("a.jsonl", raw), ("b.jsonl", gzip.compress(raw)), ("c.jsonl.gz", raw)):
        # The content decides whether a file is gzipped, not the name.
        data = read(tmp_path / name, stored, encoding=encoding)
        assert data.texts == ["Größe"] and data.label_names == ("ä",)
    table = "\ufefftext,labels\r\nGröße,ä\r\n" if "\ufeff" in content else "text,labels\nGröße,ä\n"
    data = read(tmp_path / "a.csv", table.encode(encoding or "utf-8"), encoding=encoding)
    assert data.texts == ["Größe"] and data.label_names == ("ä",)


def test_csv_with_a_separator(tmp_path: Path) -> None:
    content = 'id,text,labels,more\n1,"a ""quoted""\r\ntext, long",x;y,\n\n'
    content += '2,b,"z;""p;q"";""say """"x""""""",9\n'
    data = read(tmp_path / "a.csv", content, label_separator=";")
    assert data.texts == ['a "quoted"\r\ntext, long', "b"] and data.ids == ("1", "2")
    assert labels_of(data) == [["x", "y"], ["p;q", 'say "x"', "z"]]
    data = read(tmp_path / "a.csv", "text|labels\nhi|a\n", delimiter="|")
    assert labels_of(data) == [["a"]]
    data = read(tmp_path / "a.tsv", "\n\ntext\tlabels\nhi, you\ta :: b c\n", label_separator="::")
    assert data.texts == ["hi, you"] and labels_of(data) == [["a", "b c"]]
    data = read(tmp_path / "a.csv", 'text,labels\nhi,"a\nb"\n', label_separator="\n")
    assert labels_of(data) == [["a", "b"]]


@pytest.mark.parametrize(
    ("cell", "labels"),
    [
        ("grain", ["grain"]),
        (" two words ", ["two words"]),
        ('["a", "b, c", "\\ud83d\\ude00", "x\\/y"]', ["a", "b, c", "x/y", "😀"]),
        ("['a', 'b, c', \"it's\", 'x\\ny']", ["a", "b, c", "it's", "x\ny"]),
        ("[ 'a' ]", ["a"]),
        ("[]", []),
        ("", []),
    ],
)
def test_csv_cells_without_a_separator(tmp_path: Path, cell: str, labels: list[str]) -> None:
    quoted = '"' + cell.replace('"', '""') + '"'
    data = read(tmp_path / "a.csv", f"text,labels\nhi,{quoted}\n", keep_unlabelled=True)
    assert labels_of(data) == [labels]


def test_a_list_is_one_beside_a_separator_too(tmp_path: Path) -> None:
    content = """text,labels\nt,"[""a;b"", ""c""]"\nu,"['d']"\nv,[e];[f]\n"""
    data = read(tmp_path / "a.csv", content, label_separator=";")
    assert labels_of(data) == [["a;b", "c"], ["d"], ["[e]", "[f]"]]


@pytest.mark.parametrize(
    "cell",
    ["a;b", "a,b", "a|b", "a\tb", "a\nb", "['a' 'b']", "['a'\n 'b']", "[a]", "[1]", "['\\d']"],
)
def test_csv_cells_that_are_not_guessed_at(tmp_path: Path, cell: str) -> None:
    # numpy prints ['a' 'b'], which Python reads as the one string 'ab'.
    for name, content in (
        ("a.csv", f'text,labels\nhi,"{cell}"\n'),
        ("a.jsonl", "\n" + json.dumps({"text": "hi", "labels": cell})),
    ):
        with pytest.raises(DataError, match=r"line 2: the labels .*(label_separator|not a list)"):
            read(tmp_path / name, content)


def test_csv_with_one_column_per_label(tmp_path: Path) -> None:
    content = "id,text,toxic,insult,never\n1,a,1,0,0\n2,b,1.0,True,\n3,c,0,false,0.0\n"
    options = dict(label_columns="*", keep_unlabelled=True)
    data = read(tmp_path / "a.csv", content, **options)
    # Labels are those of the header, in its order, even without documents.
    assert data.label_names == ("toxic", "insult", "never")
    assert labels_of(data) == [["toxic"], ["toxic", "insult"], []]
    data = read(tmp_path / "a.csv", content, **options | {"label_columns": "insult, toxic"})
    assert data.label_names == ("insult", "toxic")
    data = read(tmp_path / "b.csv", 'text,"a, b",c\nx,1,1\n', label_columns='"a, b", c')
    assert data.label_names == ("a, b", "c")
    for between, named in ((";", "';'"), ("\t", r"\$'\\t'"), ("|", r"'\|'")):
        other = tmp_path / "other.csv"
        other.write_text(f"text{between}labels\nhi{between}a\n")
        with pytest.raises(DataError, match=f"pass --delimiter {named}"):
            read_data(other)
    with pytest.raises(DataError, match=r"a\.csv: expected a column 'x'\. The columns are"):
        read(tmp_path / "a.csv", content, label_columns="toxic,x")
    message = r"line 2: expected 0, 1, or \? for unknown in the label column 'n', got '3'"
    with pytest.raises(DataError, match=message):
        read(tmp_path / "a.csv", "text,a,n\nx,1,3\n", label_columns="*")


def test_parquet_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    day = datetime.date(2020, 1, 5)
    columns = {"body": ["one", "two"], "tags": ["a;b", "b"], "n": [1, 2], "day": [day, None]}
    pq.write_table(pa.table(columns), path)
    names = dict(text_field="body", labels_field="tags", id_field="n", date_field="day")
    data = read_data(path, label_separator=";", **names)
    assert data.ids == ("1", "2") and data.dates == ("2020-01-05", "")
    assert labels_of(data) == [["a", "b"], ["b"]]
    pq.write_table(pa.table({"text": ["x", "y"], "b.c": [1, 0], "a": [True, None]}), path)
    data = read_data(path, label_columns="*", keep_unlabelled=True)
    assert data.label_names == ("b.c", "a") and labels_of(data) == [["b.c", "a"], []]


def test_parquet_keeps_labels_without_documents_and_their_order(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    data = TextData.from_lists(["one", "two"], [["b"], ["a"]], ["none", "b", "a"])
    write_data(data, path)
    assert read_data(path).label_names == ("none", "b", "a")
    # The names belong to the column `labels` only.
    table = pq.read_table(path)
    pq.write_table(table.append_column("topics", table["labels"].take([1, 0])), path)
    assert read_data(path, labels_field="topics").label_names == ("a", "b")


def test_libmultilabel(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    data = read(path, '7\tGCAT M11\tsome "text\n\n8\tM11\tmore\rtext\r\n')
    assert data.ids == ("7", "8") and data.texts == ['some "text', "more\rtext"]
    assert labels_of(data) == [["GCAT", "M11"], ["M11"]]
    data = read(path, "GCAT M11\tsome text\n\tno label", keep_unlabelled=True)
    assert data.ids is None and labels_of(data) == [["GCAT", "M11"], []]
    data = read(path, "1\ta b; c\ttext\n", label_separator=";")
    assert labels_of(data) == [["a b", "c"]]
    data = read(path, "\ta\tx\n\tb\ty\n")
    assert data.ids is None


def test_written_files_are_what_their_names_say(tmp_path: Path) -> None:
    data = TextData.from_lists(["one, two"], [["a", "b"]], ids=["x"], dates=["1987"])
    write_data(data, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_bytes() == (
        b'id,date,text,labels\r\nx,1987,"one, two","[""a"", ""b""]"\r\n'
    )
    # The format decides on tabs, not the suffix.
    write_data(data, tmp_path / "table", "tsv")
    assert (tmp_path / "table").read_bytes().startswith(b"id\tdate\ttext\tlabels\r\n")
    for suffix in ("jsonl", "csv", "tsv"):
        write_data(data, tmp_path / f"plain.{suffix}")
        for name in (f"first.{suffix}.gz", f"second.{suffix}.GZ"):
            write_data(data, tmp_path / name)
        packed = (tmp_path / f"first.{suffix}.gz").read_bytes()
        assert gzip.decompress(packed) == (tmp_path / f"plain.{suffix}").read_bytes()
        # No name and no time inside: the same documents give the same bytes.
        assert packed[4:8] == bytes(4)
        assert packed == (tmp_path / f"second.{suffix}.GZ").read_bytes()


def test_only_some_years(tmp_path: Path) -> None:
    dates = ["2019-12-31", "2020", "2021-05", "2022", "", "May 2020", "202"]
    lines = [json.dumps({"text": d or "?", "labels": ["a"], "date": d}) for d in dates]
    data, report = reported(tmp_path / "a.jsonl", "\n".join(lines), years="2020-2021")
    assert data.dates == ("2020", "2021-05")
    assert report.passed_over == {"not of the years 2020-2021": 2, "no date": 3}
    assert read(tmp_path / "a.jsonl", years=2022).dates == ("2022",)


def test_quotes_that_are_just_text(tmp_path: Path) -> None:
    texts = ['"open quote', '"Hello" he said', 'end"']
    path, content = tmp_path / "a.tsv", "".join(f"{text}\ta\n" for text in ["text", *texts])
    with pytest.raises(DataError, match="--quote none"):
        read(path, content.replace("text\ta", "text\tlabels"))
    assert read_data(path, quote="none").texts == texts


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "text,labels\nt,a;;b\nv,d\n"),
        ("a.jsonl", '{"text": "t", "labels": "a; ;b"}'),
        ("a.txt", "a;;b;\tt\n"),
    ],
)
def test_empty_labels_between_separators_are_none(tmp_path: Path, name: str, content: str) -> None:
    assert read(tmp_path / name, content, label_separator=";")[0].labels == ["a", "b"]


def test_label_names_that_are_easily_confused(tmp_path: Path) -> None:
    content = json.dumps({"text": "t", "labels": ["a", " a", "b\nc", "d\x00"]})
    data, report = reported(tmp_path / "a.jsonl", content)
    assert data.label_names == (" a", "a", "b\nc", "d\x00")
    (note,) = report.notes
    assert note.endswith("which are distinct from those without it: 1 (' a').")


def test_names_with_control_characters_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "\x1b[31mred\nforged.jsonl"
    _, report = skip(path, '{"text": "a", "labels": ["x"]}\nbroken\n')
    lines = report.lines()
    assert len(lines) == 2 and r"\x1b[31mred\nforged.jsonl" in lines[1]
    with pytest.warns(UserWarning, match="1 bad record") as caught:
        read_data(path, on_error="skip")
    assert "\x1b" not in str(caught[0].message) and str(caught[0].message).count("\n") == 1
