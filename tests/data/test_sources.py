"""Sources: files, folders of parts and shards, and files that are left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from longtail.data import ReadReport, TextData, iter_texts, load_data, read_data, split, write_data
from longtail.errors import DataError, InputError, UnknownNameError
from longtail.progress import Progress

from .cases import citation, sgml, sizes, story, write_files


def numbered(n_documents: int, first: int = 0, label: str = "a") -> TextData:
    numbers = range(first, first + n_documents)
    return TextData.from_lists(
        [f"text {k}" for k in numbers], [[label]] * n_documents, ids=[str(k) for k in numbers]
    )


FORMS = ["jsonl.gz", "parquet", "JSONL"]


@pytest.mark.parametrize("suffix", FORMS)
@pytest.mark.parametrize("names", ["train validation test", "train dev test", "Train Val Test"])
def test_a_folder_of_parts(tmp_path: Path, suffix: str, names: str) -> None:
    for k, (name, n_documents) in enumerate(zip(names.split(), (5, 2, 3), strict=True)):
        write_data(numbered(n_documents, 10 * k, f"label{k}"), tmp_path / f"{name}.{suffix}")
    (tmp_path / "README.md").write_text("about")
    (tmp_path / "train.jsonl.bak").write_text("old")
    parts = load_data(tmp_path)
    assert sizes(parts) == {"train": 5, "validation": 2, "test": 3}
    # A label that only the test part has is a column of every part.
    assert {data.label_names for data in parts.values()} == {("label0", "label1", "label2")}
    assert parts["test"].Y.sum(axis=0).tolist() == [[0, 0, 3]]


def test_files_of_parts_that_are_not_asked_for_stay_closed(tmp_path: Path) -> None:
    write_data(numbered(20), tmp_path / "train.jsonl")
    (tmp_path / "test.jsonl").write_text("not JSON")
    with pytest.raises(DataError, match=r"test\.jsonl"):
        load_data(tmp_path)
    parts = load_data(tmp_path, parts=["train", "validation"])
    assert sizes(parts) == {"train": 18, "validation": 2}
    # Of a file that is read whole, all labels are columns, as if all parts were asked for.
    labels = TextData.from_lists([f"text {k}" for k in range(40)], [[f"l{k}"] for k in range(40)])
    write_data(labels, tmp_path / "whole.jsonl")
    whole, some = (
        load_data(tmp_path / "whole.jsonl", parts=names)
        for names in (["train", "validation", "test"], ["train"])
    )
    assert list(some) == ["train"] and some["train"].label_names == whole["train"].label_names
    assert some["train"].texts == whole["train"].texts


SHARDS = [f"train-{k:05d}-of-00012.jsonl" for k in range(12)]


@pytest.mark.parametrize(
    ("names", "n_train", "n_test"),
    [
        (["train/one.csv", "train/two.csv", "valid.parquet", "test.jsonl"], 2, 1),
        ([*SHARDS, "dev.jsonl", "test_1.jsonl.gz", "test_2.jsonl.gz"], 12, 2),
    ],
)
def test_parts_of_several_files(
    tmp_path: Path, names: list[str], n_train: int, n_test: int
) -> None:
    for k, name in enumerate(names):
        write_data(numbered(1, k), tmp_path / name)
    parts = load_data(tmp_path)
    assert sizes(parts) == {"train": n_train, "validation": 1, "test": n_test}
    ids = [identity for part in parts.values() for identity in part.ids or ()]
    assert ids == [str(k) for k in range(len(names))]


@pytest.mark.parametrize(
    "names",
    [
        ["train.jsonl", "train.csv"],
        ["train.jsonl", "training.jsonl"],
        ["train.jsonl", "train.jsonl.gz"],
        ["train.jsonl", "train-0001.jsonl"],
        ["train-0001.jsonl", "train-0001.jsonl.gz"],
        ["train.jsonl", "dev.jsonl", "val.jsonl"],
        ["train.jsonl", "train/more.jsonl"],
        ["train.1.jsonl", "train.2.jsonl"],
    ],
)
def test_parts_that_are_not_clear(tmp_path: Path, names: list[str]) -> None:
    for k, name in enumerate(names):
        write_data(numbered(2, 10 * k), tmp_path / name)
    with pytest.raises(DataError, match=r"several entries may be the (train|validation) part"):
        load_data(tmp_path)


def test_a_missing_part(tmp_path: Path) -> None:
    write_data(numbered(30), tmp_path / "train.jsonl")
    write_data(numbered(4, 50), tmp_path / "test.jsonl")
    parts = load_data(tmp_path)
    # The missing validation part is a tenth of the training part, always the same.
    assert sizes(parts) == {"train": 27, "validation": 3, "test": 4}
    both = TextData.concat([parts["train"], parts["validation"]])
    assert sorted(map(int, both.ids or ())) == list(range(30))
    assert load_data(tmp_path)["validation"].ids == parts["validation"].ids
    assert load_data(tmp_path, random_state=1)["validation"].ids != parts["validation"].ids
    (tmp_path / "train.jsonl").unlink()
    with pytest.raises(DataError, match=r"no training part in .*got 'test\.jsonl"):
        load_data(tmp_path)


def test_what_is_not_there(tmp_path: Path) -> None:
    for read in (load_data, read_data):
        with pytest.raises(DataError, match="no such file or folder"):
            read(tmp_path / "nothing.jsonl")
    with pytest.raises(DataError, match="got an empty folder"):
        load_data(tmp_path)
    with pytest.raises(InputError, match="at least one file to read, got none"):
        read_data([])
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(DataError, match=r"folder\.jsonl: expected train\.jsonl.*empty folder"):
        read_data(tmp_path / "folder.jsonl")
    with pytest.raises(DataError, match="no files of the format csv"):
        read_data(tmp_path, "csv")


def test_one_file_is_split(tmp_path: Path) -> None:
    write_data(numbered(50), tmp_path / "all.jsonl")
    parts = load_data(tmp_path / "all.jsonl")
    assert sizes(parts) == {"train": 35, "validation": 5, "test": 10}
    ids = [int(identity) for part in parts.values() for identity in part.ids or ()]
    assert sorted(ids) == list(range(50))
    assert load_data(tmp_path / "all.jsonl")["test"].ids == parts["test"].ids
    stratified = split(read_data(tmp_path / "all.jsonl"), (0.7, 0.1, 0.2), "stratified")
    assert [part.ids for part in parts.values()] == [part.ids for part in stratified]
    by_time = TextData.from_lists(["t"] * 10, [["a"]] * 10, dates=[f"20{k:02d}" for k in range(10)])
    write_data(by_time[::-1], tmp_path / "dated.csv")
    parts = load_data(tmp_path / "dated.csv", split_method="time")
    assert parts["test"].dates == ("2009", "2008") and parts["validation"].dates == ("2007",)


def test_a_folder_of_files_of_one_kind(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        write_data(numbered(5, 5 * "abc".index(name)), tmp_path / f"{name}.csv")
    (tmp_path / ".hidden.csv").write_text("text,labels\n")
    (tmp_path / "a.csv.md5").write_text("sum")
    assert read_data(tmp_path).ids == tuple(map(str, range(15)))
    assert sum(sizes(load_data(tmp_path)).values()) == 15
    assert read_data([tmp_path / "c.csv", tmp_path / "a.csv"]).ids[0] == "10"  # type: ignore[index]
    write_data(numbered(1, 99), tmp_path / "d.jsonl")
    with pytest.raises(DataError, match=r"files of one format; got 'a\.csv', .*--format"):
        read_data(tmp_path)
    assert len(read_data(tmp_path, "jsonl", report=ReadReport())) == 1


def test_no_file_is_read_twice(tmp_path: Path) -> None:
    # Without ids the duplicates would go unnoticed.
    write_data(TextData.from_lists(["one"], [["a"]]), tmp_path / "a.jsonl")
    with pytest.raises(DataError, match=r"a\.jsonl would be read twice"):
        read_data([tmp_path / "a.jsonl", str(tmp_path / "a.jsonl")])
    write_data(TextData.from_lists(["one"], [["a"]]), tmp_path / "a.jsonl.gz")
    for read in (read_data, load_data):
        with pytest.raises(DataError, match=r"a\.jsonl would be read twice.*\.gz"):
            read(tmp_path)


def test_training_and_test_files_are_never_shuffled_together(tmp_path: Path) -> None:
    write_data(numbered(5), tmp_path / "train.jsonl")
    write_data(numbered(5, 5), tmp_path / "test.jsonl")
    with pytest.raises(DataError, match=r"a folder of parts \(train, test\) is not one set"):
        read_data(tmp_path)
    (tmp_path / "train.jsonl").rename(tmp_path / "reviews-train.jsonl")
    (tmp_path / "test.jsonl").rename(tmp_path / "reviews-test.jsonl")
    with pytest.raises(DataError, match=r"reviews-train\.jsonl looks like one of several parts"):
        load_data(tmp_path)


def test_reuters_and_nltk_name_their_parts(tmp_path: Path) -> None:
    stories = [story(k, split="TEST" if k > 20 else "TRAIN") for k in range(1, 26)]
    (tmp_path / "reut2-000.sgm").write_bytes(sgml(*stories))
    for source in (tmp_path, tmp_path / "reut2-000.sgm"):
        parts = load_data(source)
        assert sizes(parts) == {"train": 18, "validation": 2, "test": 5}
        assert {i.partition("/")[0] for i in parts["test"].ids or ()} == {"test"}
    names = ("training/1", "training/2", "training/3", "test/4", "other/5")
    folder = write_files(tmp_path / "nltk", dict.fromkeys(names, "text"))
    lines = ["training/1 a", "training/2 a", "training/3 b", "test/4 a", "other/5 a"]
    (folder / "cats.txt").write_text("\n".join(lines[:4]))
    assert sizes(load_data(folder)) == {"train": 2, "validation": 1, "test": 1}
    # One document without a part must not cause a random split of all.
    (folder / "cats.txt").write_text("\n".join(lines))
    with pytest.raises(DataError, match="expected every document, or none, to belong to a part"):
        load_data(folder)
    (folder / "cats.txt").write_text(lines[3])
    with pytest.raises(DataError, match="some to the training part"):
        load_data(folder)
    (folder / "cats.txt").write_text("\n".join(lines[:3]))
    assert sizes(load_data(folder)) == {"train": 2, "validation": 1}


def test_parts_are_read_with_the_same_options(tmp_path: Path) -> None:
    for part in ("train", "validation", "test"):
        (tmp_path / f"{part}.csv").write_text(f"body,tags\n{part},a;b\n,a\n{part} too,\n")
    options: dict[str, Any] = dict(text_field="body", labels_field="tags", label_separator=";")
    report = ReadReport()
    parts = load_data(tmp_path, on_error="skip", report=report, **options)
    assert sizes(parts) == {"train": 1, "validation": 1, "test": 1}
    assert report.skipped == 6 and report.documents == 3 and len(report.examples) == 2
    assert "train.csv, line 3: the text is empty" in report.examples[0]
    assert list(report.kinds.values()) == [3, 3]
    with pytest.warns(UserWarning, match="6 bad records were skipped") as caught:
        load_data(tmp_path, on_error="skip", **options)
    assert caught[0].filename == __file__


def test_options_that_do_not_exist(tmp_path: Path) -> None:
    for reader, option, near in (
        (load_data, "labels_separator", "label_separator"),
        (load_data, "split_methods", "split_method"),
        (read_data, "on_errors", "on_error"),
    ):
        message = f"unknown option of {reader.__name__} '{option}'. Did you mean '{near}'"
        with pytest.raises(UnknownNameError, match=message):
            reader(tmp_path, **{option: ";"})


def test_progress_only_goes_up_and_ends_at_the_total(tmp_path: Path) -> None:
    for k in range(2):
        write_data(numbered(3000, 10_000 * k), tmp_path / "shards" / f"{k}.jsonl")
    write_data(numbered(9000), tmp_path / "a.parquet")
    write_data(numbered(9000), tmp_path / "a.csv.gz")
    for source in (tmp_path / "shards", tmp_path / "a.parquet", tmp_path / "a.csv.gz"):
        seen: list[Progress] = []
        load_data(source, progress=seen.append)
        files = [source] if source.is_file() else list(source.iterdir())
        total = sum(file.stat().st_size for file in files)
        done = [now.done for now in seen]
        assert {now.total for now in seen} == {total} and done == sorted(done) and done[-1] == total
        # Only small files are read at once.
        assert done[0] < total or source.suffix == ".gz"


def test_labels_sort_over_all_files(tmp_path: Path) -> None:
    # Parquet declares an order, which holds if every label is declared.
    write_data(TextData.from_lists(["1"], [["b"]], ["z", "b", "a"]), tmp_path / "1.parquet")
    write_data(TextData.from_lists(["2"], [["b"]], ["z", "b"]), tmp_path / "2.parquet")
    assert read_data(tmp_path).label_names == ("z", "b", "a")
    table = [{"text": "3", "labels": ["c", "a"]}]
    (tmp_path / "3.jsonl").write_text("\n".join(map(json.dumps, table)))
    both = read_data([tmp_path / "1.parquet", tmp_path / "3.jsonl"])
    assert both.label_names == ("a", "b", "c", "z") and both[1].labels == ["a", "c"]


def test_labels_with_enough_training_documents(tmp_path: Path) -> None:
    lists = {
        "train": [["a"], ["a", "b"], ["a"], ["b"], ["c"]],
        "validation": [["b"], ["c"]],
        "test": [["a", "c"], ["c"], ["d"]],
    }
    for part, labels in lists.items():
        texts = [f"{part} {k}" for k in range(len(labels))]
        write_data(TextData.from_lists(texts, labels), tmp_path / f"{part}.jsonl")
    report = ReadReport()
    parts = load_data(tmp_path, min_count=2, report=report)
    assert {data.label_names for data in parts.values()} == {("a", "b")}
    # Documents without any other label are dropped, and a note says so.
    assert sizes(parts) == {"train": 4, "validation": 1, "test": 1}
    assert parts["test"].texts == ["test 0"] and parts["test"].labels_of(0) == ["a"]
    (note,) = report.notes
    assert "Left out: 2 labels with fewer than 2 training documents (5 of 12 assignments)" in note
    assert "and 4 documents with no other label." in note
    # Documents that never had a label are kept.
    write_data(
        TextData.from_lists(["nothing", "rare"], [[], ["d"]], ("a", "d")), tmp_path / "test.jsonl"
    )
    kept = load_data(tmp_path, min_count=2, keep_unlabelled=True)["test"]
    assert kept.texts == ["nothing"]
    with pytest.raises(DataError, match="no label has 9 training documents"):
        load_data(tmp_path, min_count=9, keep_unlabelled=True)


def test_data_files_beside_the_parts(tmp_path: Path) -> None:
    for name in ("train.csv", "test.csv", "extra.csv", "more.jsonl"):
        write_data(numbered(20), tmp_path / name)
    (tmp_path / "test.jsonl.zst").write_text("of another program")
    about = ("README.md", "notes.txt", "LICENSE", "labels.json", ".hidden.csv", "readme.csv")
    write_files(tmp_path, dict.fromkeys(about, "about"))
    (tmp_path / "images").mkdir()
    report = ReadReport()
    assert set(load_data(tmp_path, report=report)) == {"train", "validation", "test"}
    beside = "data file beside those that were read ('extra.csv', 'more.jsonl', 'test.jsonl.zst')"
    assert report.left_out == {beside: 3} and report.lines() == [f"3 left out: {beside}."]
    with pytest.warns(UserWarning, match=r"3 left out: data file beside") as caught:
        load_data(tmp_path)
    assert caught[0].filename == __file__
    # If the parts are .txt files, other .txt files count as data.
    lines = {f"{name}.txt": f"a\t{name}\n" * 20 for name in ("train", "extra")}
    write_files(tmp_path / "lines", lines)
    with pytest.warns(UserWarning, match=r"1 left out: data file beside .*'extra\.txt'"):
        load_data(tmp_path / "lines")


def test_texts_need_no_labels(tmp_path: Path) -> None:
    """Label options, such as those of a trained run, are ignored."""
    article = {"pmid": 7, "title": "On copper", "abstractText": "It rose."}
    sources = {
        "a.json": (json.dumps({"articles": [article]}), {}),
        "a.xml": (
            f"<PubmedArticleSet>{citation(7, headings='')}</PubmedArticleSet>",
            {"major_topics": True},
        ),
        "a.sgm": (sgml(story(7, ())).decode(), {}),
        "a.csv": ("id,text\n7,On copper\n", {"label_columns": "copper,tin"}),
        "b.csv": ("id,text,labels\n7,On copper,a;b\n", {"labels_field": "tags"}),
        "a.jsonl": ('{"id": 7, "text": "On copper", "labels": 3}', {"label_separator": ";"}),
        "a.txt": ("7\t\tOn copper\n", {"label_separator": ";"}),
    }
    for name, (content, options) in sources.items():
        (tmp_path / name).write_text(content)
        n_bytes: list[int] = []
        report = ReadReport()
        documents = iter_texts(tmp_path / name, report=report, tick=n_bytes.append, **options)
        (document,) = documents
        assert document.id is not None and document.id.endswith("7"), name
        assert report.lines() == [] and sum(n_bytes) == len(content), name
