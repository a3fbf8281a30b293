"""`longtail evaluate` and `report`: training documents are left out, or the user is warned."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest

from longtail import LongTailClassifier
from longtail.corpora.newswire import load
from longtail.data import TextData, write_data

from .conftest import QUICK, Command

COLUMNS = ("key", "review", "genres")
FLAGS = ("--text-field", "review", "--labels-field", "genres", "--id-field", "key")
FLAGS = (*FLAGS, "--label-separator", ";")


@pytest.fixture(scope="module")
def rows() -> list[tuple[str, str, str]]:
    """600 documents without duplicates, with spaces and letters that a copy may write otherwise."""
    documents = TextData.concat(load(n_documents=600, n_labels=12).values())
    texts = [f"Caf\u00e9 {k}:  {text}\n" for k, text in enumerate(documents.texts)]
    assert len(texts) == 600
    return [(f"d{k}", texts[k], ";".join(documents.labels_of(k))) for k in range(600)]


def write_csv(path: Path, rows: list[tuple[str, str, str]], encoding: str = "utf-8") -> Path:
    with open(path, "w", encoding=encoding, newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    return path


def evaluated(longtail: Command, *arguments: object) -> tuple[dict[str, Any], str]:
    _, out, err = longtail.ok("evaluate", *arguments, "--json")
    return json.loads(out), err


@pytest.fixture
def table(tmp_path: Path, rows: list[tuple[str, str, str]]) -> Path:
    return write_csv(tmp_path / "reviews.csv", rows)


@pytest.fixture
def run(longtail: Command, table: Path, tmp_path: Path) -> Path:
    longtail.ok("train", table, *FLAGS, *QUICK, "--out", tmp_path / "run")
    return tmp_path / "run"


def test_held_out_documents_stay_held_out_in_every_file(
    longtail: Command, run: Path, table: Path, rows: list[tuple[str, str, str]]
) -> None:
    before, err = evaluated(longtail, run, table)
    assert before["documents"] == {"read": 600, "trained_on": 480, "evaluated": 120}
    assert before["overall"]["n_documents"] == 120 and before["overall"]["micro_f1"] > 0.5
    words = f"{run} was trained on 480 of 600 documents of {table}: they are left out"
    assert words in err and "left out" in err and "--include-trained" in err
    # The reading options of the training apply, and a note lists them.
    assert "--text-field review --labels-field genres" in err
    trained = LongTailClassifier.from_pretrained(run).trained_on([row[1] for row in rows])
    changed = [row for k, row in enumerate(rows) if k != trained.argmax()]
    random.Random(1).shuffle(changed)
    shuffled = write_csv(table.with_name("shuffled.csv"), changed)
    folded = [(key, " ".join(text.upper().split()), labels) for key, text, labels in changed]
    write_csv(table.with_name("folded.csv"), folded)
    for name in ("copy.jsonl", "copy.parquet", "copy.csv"):
        longtail.ok("corpus", "convert", shuffled, *FLAGS, "--out", table.with_name(name))
    standard = ("--text-field", "text", "--labels-field", "labels")
    for name, flags in {
        "shuffled.csv": (),
        "folded.csv": (),
        "copy.jsonl": standard,
        "copy.parquet": standard,
        "copy.csv": standard,
    }.items():
        after, _ = evaluated(longtail, run, table.with_name(name), *flags)
        assert after["documents"] == {"read": 599, "trained_on": 479, "evaluated": 120}, name
        if name != "folded.csv":
            assert after["overall"] == before["overall"] and after["labels"] == before["labels"]


def test_a_copy_in_another_encoding(
    longtail: Command, tmp_path: Path, rows: list[tuple[str, str, str]]
) -> None:
    table, run = write_csv(tmp_path / "old.csv", rows, "latin-1"), tmp_path / "run"
    longtail.ok("train", table, *FLAGS, "--encoding", "latin-1", *QUICK, "--out", run)
    assert "--encoding latin-1" in longtail.ok("evaluate", run, table).err
    copy = tmp_path / "copy.jsonl"
    lines = [{"review": text, "genres": labels.split(";")} for _, text, labels in rows]
    copy.write_text("".join(json.dumps(x, ensure_ascii=False) + "\n" for x in lines), "utf-8")
    result, err = evaluated(longtail, run, copy)
    assert result["documents"]["evaluated"] == 120 and "--encoding" not in err


def test_columns_of_labels_instead_of_a_separator(
    longtail: Command, run: Path, tmp_path: Path
) -> None:
    (tmp_path / "columns.csv").write_text("review,earnings,interest\nnew text,1,0\nother,0,1\n")
    result, err = evaluated(longtail, run, tmp_path / "columns.csv", "--label-columns", "*")
    assert result["documents"] == {"read": 2, "trained_on": 0, "evaluated": 2}
    assert "--text-field review" in err and "--label-separator" not in err
    assert "trained on" not in err


def test_included_on_request_with_a_warning(longtail: Command, run: Path, table: Path) -> None:
    result, err = evaluated(longtail, run, table, "--include-trained")
    assert result["documents"] == {"read": 600, "trained_on": 480, "evaluated": 600}
    assert "480 of 600" in err and "the scores are too high" in err
    done = longtail.ok("report", run, "--data", table, "--include-trained")
    assert "the scores are too high" in done.err


def test_nothing_left_is_an_error(longtail: Command, run: Path, table: Path, rows: Any) -> None:
    trained = LongTailClassifier.from_pretrained(run).trained_on([row[1] for row in rows])
    seen = write_csv(table.with_name("seen.csv"), [rows[k] for k in trained.nonzero()[0]])
    for verb in (("evaluate", run, seen), ("report", run, "--data", seen)):
        err = longtail.fails("was trained on 480 of 480 documents", *verb)
        assert "--include-trained" in err and "held out or are new" in err
        longtail.ok(*verb, "--include-trained")


def test_parts(longtail: Command, trained: Path, folder: Path, tmp_path: Path) -> None:
    """Copies of training documents in the test part are left out as well."""
    test = (folder / "test.jsonl").read_text().splitlines()
    before, _ = evaluated(longtail, trained, folder)
    assert before["documents"]["read"] == len(test)
    for part in ("train", "validation"):
        lines = (folder / f"{part}.jsonl").read_text()
        (tmp_path / f"{part}.jsonl").write_text(lines)
    leaked = json.loads(lines.splitlines()[0]) | {"id": "copy"}
    (tmp_path / "test.jsonl").write_text("\n".join([*test, json.dumps(leaked)]) + "\n")
    after, err = evaluated(longtail, trained, tmp_path, "--split", "test")
    assert after["documents"]["read"] == len(test) + 1
    assert after["documents"]["evaluated"] == before["documents"]["evaluated"]
    assert after["overall"] == before["overall"] and "left out" in err
    for part in ("train", "validation"):
        message = "there is nothing to evaluate"
        longtail.fails(message, "evaluate", trained, folder, "--split", part)
        longtail.fails(message, "report", trained, "--data", folder, "--split", part)
        result, _ = evaluated(longtail, trained, folder, "--split", part, "--include-trained")
        assert result["documents"]["read"] == result["documents"]["trained_on"]
    message = "longtail corpus split"
    longtail.fails(message, "evaluate", trained, folder / "test.jsonl", "--split", "test")


def test_a_report_leaves_out_what_any_model_was_trained_on(
    longtail: Command, run: Path, table: Path, rows: Any
) -> None:
    second = table.with_name("second")
    longtail.ok("train", table, *FLAGS, *QUICK, "--split-seed", 8, "--out", second)
    texts = [row[1] for row in rows]
    first = LongTailClassifier.from_pretrained(run).trained_on(texts)
    either = first | LongTailClassifier.from_pretrained(second).trained_on(texts)
    assert 480 < either.sum() < 600
    done = longtail.ok("report", run, second, "--data", table, "--to", "json")
    assert f"together, these models were trained on {either.sum()} of 600 documents" in done.err
    assert f'"n_documents": {600 - either.sum()}' in done.out


def test_a_report_numbers_documents_without_ids_as_they_were_read(
    longtail: Command, run: Path, table: Path, rows: Any
) -> None:
    write_csv(table, [*rows, ("new", "nothing of the kind", rows[0][2])])
    page = table.with_name("page.html")
    longtail.ok("report", run, "--data", table, "--id-field", "id", "--out", page)
    assert "document 601 of 601" in page.read_text()


def test_a_wrong_separator_is_reported_where_few_labels_are_known(
    longtail: Command, run: Path, table: Path
) -> None:
    err = longtail.ok("evaluate", run, table, "--label-separator", "/").err
    assert "label names look like several labels joined by ';', such as" in err
    assert "label names hold" not in longtail.ok("evaluate", run, table).err


def test_a_model_without_hashes_gets_a_note(longtail: Command, run: Path, table: Path) -> None:
    classifier = LongTailClassifier.from_pretrained(run)
    classifier.document_hashes_ = None
    classifier.save_pretrained(run)
    # A run saved from Python has no reading options.
    result, err = evaluated(longtail, run, table, *FLAGS)
    assert result["documents"] == {"read": 600, "trained_on": None, "evaluated": 600}
    assert f"{run} has no hashes of its training documents" in err


def test_labels_that_the_model_does_not_know_at_all(
    longtail: Command, run: Path, table: Path
) -> None:
    for verb in (("evaluate", run, table), ("report", run, "--data", table)):
        message = "the model knows none of the labels of these 120 documents"
        err = longtail.fails(message, *verb, "--labels-field", "key")
        assert "--label-separator" in err and "'d1" in err and "'acquisition'" in err


def test_rare_labels_that_were_left_out_are_counted(
    longtail: Command, table: Path, tmp_path: Path
) -> None:
    run = tmp_path / "frequent"
    longtail.ok("train", table, *FLAGS, *QUICK, "--min-count", 30, "--out", run)
    out = longtail.ok("evaluate", run, table).out
    assert "Not evaluated: " in out and "No other labels: " in out


def test_training_options_are_flags_of_train_only(longtail: Command, run: Path) -> None:
    for flag in ("--split-method", "--split-seed", "--min-count"):
        for verb in (("evaluate", run, "newswire"), ("report", run, "--data", "newswire")):
            done = longtail(*verb, flag, "1")
            assert done.code == 2 and "No such option" in done.err, (verb, flag)


@pytest.mark.parametrize("verb", ["train", "stats"])
def test_labels_that_look_wrong_are_reported_first(
    longtail: Command, table: Path, tmp_path: Path, verb: str
) -> None:
    flags = [*FLAGS[:-1], "/", *(("--out", tmp_path / "run", *QUICK) if verb == "train" else ())]
    err = longtail.ok(verb, table, *flags).err
    assert "label names look like several labels joined by ';', such as" in err
    assert "--label-separator ';'" in err
    flags[7] = ";"
    good = longtail.ok(verb, table, *flags, *(["--overwrite"] if verb == "train" else [])).err
    assert "label names" not in good


def test_named_corpora_ignore_options_of_files(
    longtail: Command, run: Path, tmp_path: Path
) -> None:
    write_data(load(n_documents=50, n_labels=5)["test"], tmp_path / "small.jsonl")
    small = ("--set", "n_documents=300", "--set", "n_labels=12")
    _, err = evaluated(longtail, run, "newswire", *small)
    assert "--text-field" not in err
