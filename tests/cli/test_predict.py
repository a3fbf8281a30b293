"""`longtail predict`: streams, keeps order and ids, writes files, resumes, reports mistakes."""

from __future__ import annotations

import csv
import gzip
import json
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from longtail import LongTailClassifier
from longtail.classifier.ensemble import Ensemble
from longtail.cli import texts
from longtail.cli.reading import Source
from longtail.data import ReadOptions, TextData, load_data, write_data
from longtail.errors import DataError
from longtail.runs import parts

from .conftest import PROGRAM, Command, wait_for

PREDICT = (*PROGRAM, "predict")
TICKETS = ["Earnings figures rose", "Wheat and corn", "Oil", "Nothing of note", "Gold and silver"]


def rows_of(path: Path, separator: str = ";") -> list[dict[str, Any]]:
    """The records of a file; in tables, lists are split."""
    if path.suffix == ".parquet":
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return rows
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")
    if ".jsonl" in path.name:
        return [json.loads(line) for line in text.splitlines()]
    rows = list(csv.DictReader(text.splitlines(), delimiter="\t" if ".tsv" in path.name else ","))
    for row in rows:
        for name in row.keys() - {"id", "text"}:
            row[name] = [cell for cell in row[name].split(separator) if cell]
            if "labels" not in name:
                row[name] = [float(cell) for cell in row[name]]
    return rows


@pytest.fixture
def tickets(tmp_path: Path) -> Path:
    """A table of labelled documents with unusual column names."""
    path = tmp_path / "tickets.csv"
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["key", "subject", "body", "tags"])
        table.writerows([f"T{k}", text, "as, said", "a|b"] for k, text in enumerate(TICKETS))
    return path


@pytest.fixture
def run(trained: Path, tickets: Path, tmp_path: Path) -> Path:
    """A run that was trained on such tables."""
    path = Path(shutil.copytree(trained, tmp_path / "run"))
    options = ReadOptions("subject,body", "tags", "key", label_separator="|")
    Source(str(tickets), None, None, {}, asdict(options)).remember(path)
    return path


def test_lines_of_text(longtail: Command, trained: Path, tmp_path: Path) -> None:
    texts = ["Earnings figures rose", "", "Weizen \u2014 \u0440\u0436\u044c \U0001f33e", "a\tb"]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", "utf-8")
    done = longtail.ok("predict", trained, tmp_path / "texts.txt")
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert [answer["text"] for answer in answers] == texts
    assert [answer["id"] for answer in answers] == ["1", "2", "3", "4"]
    expected = LongTailClassifier.from_pretrained(trained).predict_labels(texts)
    assert [answer["labels"] for answer in answers] == expected


def test_json_lines_keep_their_ids(longtail: Command, trained: Path, tmp_path: Path) -> None:
    records = [{"key": k, "body": f"wheat {k}"} for k in range(600)]
    with gzip.open(tmp_path / "in.jsonl.gz", "wt") as out:
        out.writelines(json.dumps(record) + "\n" for record in records)
    flags = ("--text-field", "body", "--id-field", "key", "--top-k", "3")
    done = longtail("predict", trained, tmp_path / "in.jsonl.gz", *flags)
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert [answer["id"] for answer in answers] == [str(k) for k in range(600)]
    for answer in answers:
        best = answer["top_probabilities"]
        assert len(best) == len(answer["top_labels"]) == 3 and best == sorted(best, reverse=True)


def test_several_files_are_read_as_one(longtail: Command, trained: Path, tmp_path: Path) -> None:
    """Numbered over all files, skipped records too; of several formats."""
    texts = ["Earnings rose", "Wheat fell", "Oil", "Corn"]
    first, second, lines = (tmp_path / name for name in ("in.jsonl", "in.csv", "in.txt"))
    first.write_text('{"text": "Earnings rose"}\n{broken\n{"text": "Wheat fell"}\n')
    second.write_text("text\nOil\nCorn\n")
    lines.write_text("Oats\n")
    done = longtail.ok("predict", trained, first, second, "--on-error", "skip")
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert [answer["text"] for answer in answers] == texts
    assert [answer["id"] for answer in answers] == ["1", "3", "4", "5"]
    assert "1 bad record was skipped of 5" in done.err
    longtail.fails(
        "plain text and other files need one call each", "predict", trained, first, lines
    )
    longtail.fails("would be read twice", "predict", trained, second, second)
    longtail.fails("can only be read alone", "predict", trained, second, "-")
    longtail.fails("--split is a part of one", "predict", trained, first, second, "--split", "test")


@pytest.mark.parametrize("name", ["in.csv", "in.tsv", "in.jsonl.gz", "in.parquet"])
def test_every_format(longtail: Command, trained: Path, tmp_path: Path, name: str) -> None:
    texts = ["Earnings figures rose", 'Wheat, "corn"\tand oats', "Oil"]
    data = TextData.from_lists(texts, [["earn"], ["wheat", "corn"], ["oil"]], ids=["a", "b", "c"])
    write_data(data, tmp_path / name)
    lines = longtail.ok("predict", trained, tmp_path / name).out.splitlines()
    answers = [json.loads(line) for line in lines]
    assert [answer["text"] for answer in answers] == texts
    assert [answer["id"] for answer in answers] == ["a", "b", "c"]
    expected = LongTailClassifier.from_pretrained(trained).predict_labels(texts)
    assert [answer["labels"] for answer in answers] == expected


def test_unreadable_data_is_explained(longtail: Command, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text('{"text": "wheat"}\n')
    assert "--format jsonl" in longtail.ok("predict", trained, tmp_path / "in.txt").err
    longtail.fails("no such file", "predict", trained, tmp_path / "missing.txt")
    (tmp_path / "in.csv").write_text("body,labels\nwheat,b\n")
    longtail.fails("expected a column 'text'", "predict", trained, tmp_path / "in.csv")
    (tmp_path / "in.jsonl").write_text('{"text": "wheat"}\n{}\n{"text": "oil"}\n')
    done = longtail.ok("predict", trained, tmp_path / "in.jsonl", "--on-error", "skip")
    assert len(done.out.splitlines()) == 2 and "1 bad record was skipped" in done.err


def test_a_slow_producer_is_answered_at_once(trained: Path) -> None:
    child = subprocess.Popen(
        [*PREDICT, str(trained)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None and child.stdout is not None
    for text in ("wheat harvest", "oil prices"):
        child.stdin.write(text + "\n")
        child.stdin.flush()
        # The input is still open.
        assert json.loads(child.stdout.readline())["text"] == text
    child.stdin.close()
    assert child.wait(timeout=60) == 0
    child.stdout.close()


def test_a_closed_pipe_is_quiet(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "many.txt").write_text("wheat harvest rose\n" * 20_000)
    child = subprocess.Popen(
        [*PREDICT, str(trained), str(tmp_path / "many.txt")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None and child.stderr is not None
    assert b"wheat" in child.stdout.readline()
    child.stdout.close()
    errors = child.stderr.read()
    child.stderr.close()
    child.wait()
    assert errors == b""


@pytest.mark.parametrize("name", ["o.csv", "o.tsv.gz", "o.jsonl", "o.jsonl.gz", "o.parquet"])
def test_files_hold_the_predictions_of_the_classifier(
    longtail: Command, run: Path, tickets: Path, tmp_path: Path, name: str
) -> None:
    done = longtail.ok("predict", run, tickets, "--out", tmp_path / name, "--top-k", 4)
    assert "5 documents" in done.out and not list(tmp_path.glob(".*"))
    rows = rows_of(tmp_path / name, "|")
    classifier = LongTailClassifier.from_pretrained(run)
    documents = [f"{text}\nas, said" for text in TICKETS]
    assert [row["id"] for row in rows] == ["T0", "T1", "T2", "T3", "T4"]
    expected = classifier.predict_labels(documents)
    assert [sorted(row["labels"]) for row in rows] == [sorted(labels) for labels in expected]
    assert any(expected) and not all(expected)
    probabilities = classifier.predict_proba(documents)
    column_of = {name: column for column, name in enumerate(classifier.classes_)}
    for row, values_of_row in zip(rows, probabilities, strict=True):
        assert list(row) == ["id", "labels", "probabilities", "thresholds", *list(row)[4:]]
        for labels, values in ("labels", "probabilities"), ("top_labels", "top_probabilities"):
            known = [values_of_row[column_of[label]] for label in row[labels]]
            np.testing.assert_allclose(row[values], known, rtol=1e-4)
            assert row[values] == sorted(row[values], reverse=True)
        assert row["top_probabilities"][0] == pytest.approx(values_of_row.max(), rel=1e-4)
        limits = [classifier.thresholds_.values[column_of[label]] for label in row["labels"]]
        np.testing.assert_allclose(
            row["thresholds"], 1 / (1 + np.exp(-np.array(limits))), rtol=1e-4
        )
        assert len(row["top_labels"]) == 4


def test_columns_are_those_of_the_training_data(
    longtail: Command, run: Path, tickets: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    longtail.ok("predict", run, tickets, "--out", out)
    labels = [row["labels"] for row in rows_of(out)]
    # Only the text is needed; without ids, rows are numbered.
    (tmp_path / "a.csv").write_text(
        "body,subject\n" + "".join(f'"as, said",{t}\n' for t in TICKETS)
    )
    longtail.ok("predict", run, tmp_path / "a.csv", "--out", out, "--overwrite", "--with-text")
    rows = rows_of(out)
    assert [row["labels"] for row in rows] == labels
    assert [row["id"] for row in rows] == ["1", "2", "3", "4", "5"]
    assert [row["text"] for row in rows] == [f"{text}\nas, said" for text in TICKETS]
    # Flags override.
    (tmp_path / "b.csv").write_text("n;text\n7;Oil\n")
    longtail.fails("The columns are: 'n;text'", "predict", run, tmp_path / "b.csv")
    flags = ("--delimiter", ";", "--text-field", "text", "--id-field", "n", "--without-text")
    assert json.loads(longtail.ok("predict", run, tmp_path / "b.csv", *flags).out)["id"] == "7"
    # Skipped records count in the numbers.
    (tmp_path / "c.jsonl").write_text('{"text": "Oil"}\n{}\n{"text": "Oil"}\n')
    flags = ("--text-field", "text", "--on-error", "skip")
    lines = longtail.ok("predict", run, tmp_path / "c.jsonl", *flags).out.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["1", "3"]


def test_other_layouts_of_the_training_data(
    longtail: Command, run: Path, tickets: Path, tmp_path: Path
) -> None:
    """One column per label, years, encodings: only the text columns are needed."""
    options = ReadOptions("body", id_field="n", label_columns="*", encoding="latin-1", years="1987")
    Source(str(tickets), None, None, {}, asdict(options)).remember(run)
    (tmp_path / "in.csv").write_text("n,body,earnings,oil\n1,caf\xe9 Oil,0,1\n", "latin-1")
    flags = ("--out", tmp_path / "out.csv", "--label-separator", "+", "--min-labels", 2)
    longtail.ok("predict", run, tmp_path / "in.csv", *flags)
    assert len(rows_of(tmp_path / "out.csv", "+")[0]["labels"]) == 2
    # Options of tables do not apply to lines of text.
    (tmp_path / "in.txt").write_text("caf\xe9 Oil\n", "utf-8")
    done = longtail.ok("predict", run, tmp_path / "in.txt")
    assert json.loads(done.out)["text"] == "caf\xe9 Oil"


def test_scores_are_computed_once(
    longtail: Command, run: Path, tickets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: list[int] = []
    blocks = Ensemble.blocks

    def counted(self: Ensemble, part: list[str], *args: Any, **settings: Any) -> Iterator[Any]:
        scored.append(len(part))
        return blocks(self, part, *args, **settings)

    monkeypatch.setattr(Ensemble, "blocks", counted)
    monkeypatch.setattr(texts, "BATCH", 2)
    longtail.ok("predict", run, tickets, "--top-k", 3, "--out", tmp_path / "out.csv")
    assert scored == [2, 2, 1]


def test_decisions_can_be_overridden(longtail: Command, run: Path, tickets: Path) -> None:
    def predicted(*flags: object) -> list[dict[str, Any]]:
        done = longtail.ok("predict", run, tickets, "--top-k", 99, *flags)
        return [json.loads(line) for line in done.out.splitlines()]

    for row in predicted("--threshold", 0.02):
        n_above = sum(value >= 0.02 for value in row["top_probabilities"])
        assert row["labels"] == row["top_labels"][:n_above]
        assert set(row["thresholds"]) <= {0.02}
    assert {len(row["labels"]) for row in predicted("--min-labels", 2, "--max-labels", 2)} == {2}
    assert {len(row["labels"]) for row in predicted("--threshold", 1e-9, "--max-labels", 3)} == {3}


def test_a_part_of_data(longtail: Command, trained: Path, folder: Path, tmp_path: Path) -> None:
    longtail.fails("one part (--split)", "predict", trained, folder)
    longtail.ok("predict", trained, folder, "--split", "test", "--out", tmp_path / "out.jsonl")
    n_documents = len((folder / "test.jsonl").read_text().splitlines())
    assert len(rows_of(tmp_path / "out.jsonl")) == n_documents
    message = "newswire is a corpus: name one of its parts"
    longtail.fails(message, "predict", trained, "newswire")


def test_a_validation_part_that_training_split_off(
    longtail: Command, trained: Path, folder: Path, tmp_path: Path
) -> None:
    for name in ("train.jsonl", "test.jsonl"):
        shutil.copy(folder / name, tmp_path)
    lines = longtail.ok("predict", trained, tmp_path, "--split", "validation").out.splitlines()
    expected = load_data(tmp_path)["validation"].ids
    assert [json.loads(line)["id"] for line in lines] == list(expected or ())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--min-labels", 3, "--max-labels", 2), "min_labels is 3, more than max_labels"),
        (("--threshold", 1.5), "threshold must be a number above 0 and at most 1"),
        (("--resume",), "Name it with --out"),
        (("--overwrite",), "Name it with --out"),
        (("--out", "o.csv", "--resume", "--overwrite"), "not both"),
        (("--out", "o.txt"), "one of the suffixes .jsonl"),
        (("--out", "o.json"), "one of the suffixes .jsonl"),
        (("--out", "there.csv"), "there.csv exists already. Replace it with --overwrite."),
        (("--out", "folder.csv"), "folder.csv is a folder: expected the name of a file"),
        (("--out", "folder.csv", "--overwrite"), "folder.csv is a folder"),
        (("--out", "in.csv", "--overwrite"), "is the data being read"),
        (("--out", "o.csv", "--resume"), "nothing to resume: o.csv is not started"),
        (("--out", "there.csv", "--resume"), "there.csv is complete"),
        (
            ("--text-field", "body"),
            "The columns are: 'text', 'labels'. Pass --text-field text.",
        ),
        (("--split", "tset"), "has no parts, so --split tset"),
    ],
)
def test_conflicting_flags_are_reported_before_loading(
    longtail: Command,
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: tuple[object, ...],
    message: str,
) -> None:
    def load(*args: object, **settings: object) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(LongTailClassifier, "from_pretrained", load)
    monkeypatch.chdir(tmp_path)
    Path("in.csv").write_text("text,labels\n" + "".join(f"Oil {k},a\n" for k in range(9)))
    Path("there.csv").write_text("mine")
    Path("folder.csv").mkdir()
    longtail.fails(message, "predict", trained, "in.csv", *flags)
    assert Path("there.csv").read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"in.csv", "there.csv", "folder.csv"}


def test_empty_data_and_standard_input(longtail: Command, trained: Path, tmp_path: Path) -> None:
    for name in ("in.txt", "in.csv", "in.jsonl"):
        (tmp_path / name).write_text("" if name != "in.csv" else "text\n")
        longtail.fails(f"{name}: holds no documents", "predict", trained, tmp_path / name)
    (tmp_path / "folder").mkdir()
    longtail.fails("an empty folder", "predict", trained, tmp_path / "folder")
    for flag in ("--resume", "--split=test"):
        longtail.fails("standard input", "predict", trained, "-", "--out", "o.csv", flag)


def test_margins_have_scores_and_no_probability_threshold(
    longtail: Command, folder: Path, tmp_path: Path
) -> None:
    flags = ("--model", "svm", "--thresholds", "grid", "--folds", 1, "--out", tmp_path / "run")
    longtail.ok("train", folder, *flags)
    out = ("--out", tmp_path / "out.csv")
    longtail.ok("predict", tmp_path / "run", folder / "test.jsonl", *out, "--top-k", 1)
    assert list(rows_of(tmp_path / "out.csv")[0]) == [
        *("id", "labels", "scores", "thresholds", "top_labels", "top_scores")
    ]
    message = "a threshold is a probability, and margins have none"
    flags = ("--threshold", 0.5)
    longtail.fails(message, "predict", tmp_path / "run", folder / "test.jsonl", *flags)
    # Nothing was predicted, so nothing is kept.
    out = ("--out", tmp_path / "other.csv")
    longtail.fails(message, "predict", tmp_path / "run", folder / "test.jsonl", *out, *flags)
    assert not list(tmp_path.glob(".*"))


def test_nothing_of_standard_input_is_kept(run: Path, tmp_path: Path) -> None:
    program = [*PREDICT, str(run), "-", "--format", "jsonl", "--text-field", "text", "--out"]
    given = {"text": True, "capture_output": True, "timeout": 120}
    for lines, code in ('{"text": "Oil"}\n{}\n', 1), ('{"text": "Oil"}\n', 0):
        done = subprocess.run([*program, str(tmp_path / "o.csv")], input=lines, **given)  # type: ignore[call-overload]
        assert done.returncode == code and not list(tmp_path.glob(".*")), done.stderr
    assert [row["id"] for row in rows_of(tmp_path / "o.csv")] == ["1"]


@pytest.fixture
def stopped(
    longtail: Command, run: Path, tickets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[object, ...]:
    """The arguments of a prediction that a full disk stopped after two documents."""
    monkeypatch.setattr(texts, "BATCH", 1)
    monkeypatch.setattr(parts, "MOST_RECORDS", 1)
    add, calls = parts.Parts.add, []

    def fail(self: parts.Parts, records: Any) -> None:
        calls.append(records)
        if len(calls) > 2:
            raise DataError("the disk is full")
        add(self, records)

    arguments = ("predict", run, tickets, "--out", tmp_path / "out.csv")
    with monkeypatch.context() as patch:
        patch.setattr(parts.Parts, "add", fail)
        err = longtail.fails("the disk is full", *arguments)
    assert "2 documents are kept. Resume with: longtail predict" in err and "--resume" in err
    assert not (tmp_path / "out.csv").exists()
    return arguments


def test_a_stopped_prediction_resumes(
    longtail: Command, stopped: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longtail.fails("is unfinished. Resume it with --resume, or start over", *stopped)
    scored: list[int] = []
    blocks = Ensemble.blocks
    monkeypatch.setattr(
        Ensemble, "blocks", lambda self, part: scored.append(len(part)) or blocks(self, part)
    )
    # --on-error may change.
    longtail.ok(*stopped, "--resume", "--on-error", "skip")
    assert scored == [1, 1, 1] and not list(tmp_path.glob(".*"))
    resumed = (tmp_path / "out.csv").read_bytes()
    longtail.ok(*stopped, "--overwrite")
    assert (tmp_path / "out.csv").read_bytes() == resumed and resumed.count(b"\n") == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model", "the model was"),
        ("content", "the content of"),
        (("--top-k", 2), "top_k was None, now 2"),
        (("--min-labels", 1), "min_labels was None, now 1"),
        (("--text-field", "body"), "text_field was 'subject,body', now 'body'"),
        ("file", "another program"),
    ],
)
def test_a_different_prediction_is_not_resumed(
    longtail: Command,
    stopped: tuple[object, ...],
    tickets: Path,
    run: Path,
    change: Any,
    message: str,
) -> None:
    flags: tuple[object, ...] = ("--resume",)
    if change == "model":
        classifier = LongTailClassifier.from_pretrained(run)
        classifier.set_params(max_labels=1).save_pretrained(run)
    elif change == "content":
        tickets.write_text(tickets.read_text().replace("Gold", "Tin"))
    elif change == "file":
        (tickets.parent / "out.csv").write_text("mine")
    else:
        flags = (*flags, *change)
    longtail.fails(message, *stopped, *flags)
    if change == "file":
        assert (tickets.parent / "out.csv").read_text() == "mine"
        longtail.ok(*stopped, "--overwrite")
    else:
        longtail.ok(*stopped, "--overwrite", *flags[1:])
    assert len(rows_of(tickets.parent / "out.csv", "|")) == 5


def test_a_prediction_stopped_by_a_signal_resumes(
    longtail: Command, run: Path, tmp_path: Path
) -> None:
    with (tmp_path / "in.csv").open("w") as file:
        file.write("subject,body\n")
        file.writelines(f"{TICKETS[k % 5]},number {k}\n" for k in range(8000))
    code = "from longtail.cli import main; from longtail.runs import parts; "
    program = [sys.executable, "-c", code + "parts.MOST_RECORDS = 256; main()"]
    words = ("predict", str(run), str(tmp_path / "in.csv"), "--out")
    process = subprocess.Popen(
        [*program, *words, str(tmp_path / "out.csv")], stderr=subprocess.PIPE, text=True
    )
    wait_for(tmp_path / ".out.csv.longtail-work" / "000000000256.jsonl", process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert not (tmp_path / "out.csv").exists()
    assert process.returncode == 130 and "stopped by SIGINT. What was predicted is kept." in err
    assert "documents are kept. Resume with: longtail predict" in err
    longtail.ok(*words, tmp_path / "out.csv", "--resume")
    longtail.ok(*words, tmp_path / "whole.csv")
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_a_missing_id_field_is_an_error_if_named_and_a_note_if_from_the_run(
    longtail: Command, run: Path, tickets: Path, tmp_path: Path
) -> None:
    message = "tickets.csv: no document has the field 'kye' (--id-field). Did you mean 'key'?"
    out = ("--out", tmp_path / "p.csv")
    longtail.fails(message, "predict", run, tickets, "--id-field", "kye", *out)
    records = [{"subject": text, "body": "b"} for text in TICKETS]
    lines = tmp_path / "t.jsonl"
    lines.write_text("\n".join(map(json.dumps, records)))
    message = "no document has the field 'kye' (--id-field)"
    err = longtail.fails(message, "predict", run, lines, "--id-field", "kye", *out)
    assert "Resume" not in err and not (tmp_path / "p.csv").exists()
    renamed = tmp_path / "renamed.csv"
    renamed.write_text(tickets.read_text().replace("key,", "nr,"))
    for data in (lines, renamed):
        err = longtail.ok("predict", run, data, *out, "--overwrite").err
        assert err.count("'key' (--id-field, as in the training data): the documents are") == 1
        assert [row["id"] for row in rows_of(tmp_path / "p.csv")] == list("12345")


def test_a_resume_that_works_is_suggested(
    longtail: Command, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "BATCH", 1)
    table, out = tmp_path / "latin.csv", tmp_path / "p.csv"
    table.write_bytes("subject,body\noil,x\ncorn,y\ncaf\u00e9,z\n".encode("latin-1"))
    err = longtail.fails("not valid UTF-8", "predict", run, table, "--out", out)
    note, advice, _ = err.split("\n", 2)
    assert note.startswith("2 documents are kept. Leave out bad records with: longtail predict")
    assert "start over with --overwrite" in advice
    (tmp_path / "other.csv").write_text("subject,body\noil,x\n")
    message = f"unfinished {out} was made from {table}, not from {tmp_path / 'other.csv'}"
    longtail.fails(message, "predict", run, tmp_path / "other.csv", "--out", out, "--resume")
    command = shlex.split(note.split("with: longtail ")[1])
    longtail.ok(*command)
    assert len(rows_of(out)) == 2


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_table_on_standard_input_without_format_gives_a_note(run: Path, delimiter: str) -> None:
    lines = delimiter.join(["key", "subject", "body"]) + "\n1" + 2 * f"{delimiter}oil" + "\n"
    flag = {",": "csv.", ";": "csv --delimiter ';'.", "\t": "tsv."}[delimiter]
    done = subprocess.run([*PREDICT, run], input=lines, capture_output=True, text=True, check=True)
    assert f"pass --format {flag}" in done.stderr and done.stderr.count("\n") == 1


def test_a_text_in_place_of_data_is_explained(longtail: Command, run: Path) -> None:
    message = "echo 'my invoice is wrong' | longtail predict"
    longtail.fails(message, "predict", run, "my invoice is wrong")
    longtail.fails("longtail explain", "predict", run, "--text", "my invoice")
