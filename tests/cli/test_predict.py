"""`longtail predict`: streams, keeps order and ids, refuses what it cannot read."""

from __future__ import annotations

import csv
import gzip
import json
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from longtail import LongTailClassifier
from longtail.data import TextData, write_data

from .conftest import PROGRAM, Command

PREDICT = (*PROGRAM, "predict")


def test_lines_in_json_out(longtail: Command, trained: Path, tmp_path: Path) -> None:
    texts = [
        "Earnings figures rose",
        "",
        "Weizen \u2014 \u0440\u0436\u044c \U0001f33e",
        "tab\there",
    ]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", "utf-8")
    done = longtail("predict", trained, tmp_path / "texts.txt")
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [one["text"] for one in found] == texts
    expected = LongTailClassifier.from_pretrained(trained).predict_labels(texts)
    assert [one["labels"] for one in found] == expected


def test_json_lines_keep_their_ids(longtail: Command, trained: Path, tmp_path: Path) -> None:
    records = [{"key": k, "body": f"wheat {k}"} for k in range(600)]
    with gzip.open(tmp_path / "in.jsonl.gz", "wt") as out:
        out.writelines(json.dumps(record) + "\n" for record in records)
    flags = ("--text-field", "body", "--id-field", "key", "--top-k", "3")
    done = longtail("predict", trained, tmp_path / "in.jsonl.gz", *flags)
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [one["id"] for one in found] == [str(k) for k in range(600)]
    for one in found:
        scores = [pair["score"] for pair in one["top"]]
        assert len(scores) == 3 and scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"text": "a"}\nnot json\n', "in.jsonl, line 2: not valid JSON"),
        (b'{"body": "a"}\n', "Name yours with text_field (--text-field)"),
        (b'{"text": 3}\n', "expected a string in field 'text', got 3"),
        (b'{"text": "caf\xe9"}\n', "line 1: not valid UTF-8"),
        (b"[" * 100_000, "not valid JSON (maximum recursion"),
        (b'{"text": "copper \\ud800 rose"}\n', "half of a surrogate pair"),
    ],
)
def test_bad_lines_are_named(
    longtail: Command, trained: Path, tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "in.jsonl").write_bytes(content)
    assert len(longtail.fails(message, "predict", trained, tmp_path / "in.jsonl")) < 1000


@pytest.mark.parametrize("name", ["in.csv", "in.tsv", "in.jsonl.gz", "in.parquet", "in.txt"])
@pytest.mark.parametrize("labelled", [True, False])
def test_every_format_with_and_without_labels(
    longtail: Command, trained: Path, tmp_path: Path, name: str, labelled: bool
) -> None:
    texts = ["Earnings figures rose", 'Wheat, "corn"\tand oats', "Oil"]
    data = TextData.from_lists(texts, [["earn"], ["wheat", "corn"], ["oil"]], ids=["a", "b", "c"])
    path, flags = tmp_path / name, []
    if name == "in.txt" and labelled:
        flags, texts[1] = ["--format", "libmultilabel"], " ".join(texts[1].split())
        rows = zip("abc", texts, strict=True)
        path.write_text("".join(f"{identity}\tearn\t{text}\n" for identity, text in rows))
    elif name == "in.txt":
        path.write_text("\n".join(texts) + "\n")
    elif labelled:
        write_data(data, path)
    else:
        table = pa.table({"id": ["a", "b", "c"], "text": texts})
        if name == "in.parquet":
            pq.write_table(table, path)
        elif name == "in.jsonl.gz":
            path.write_text("\n".join(map(json.dumps, table.to_pylist())))
        else:
            lists = [table.column_names, *(list(row.values()) for row in table.to_pylist())]
            with path.open("w", newline="") as file:
                csv.writer(file, delimiter="\t" if name == "in.tsv" else ",").writerows(lists)
    lines = longtail.ok("predict", trained, path, *flags).out.splitlines()
    answers = [json.loads(line) for line in lines]
    assert [answer["text"] for answer in answers] == texts
    if name != "in.txt" or labelled:
        assert [answer["id"] for answer in answers] == ["a", "b", "c"]
    expected = LongTailClassifier.from_pretrained(trained).predict_labels(texts)
    assert [answer["labels"] for answer in answers] == expected


def test_what_cannot_be_read_is_explained(longtail: Command, trained: Path, tmp_path: Path) -> None:
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
        # The answer comes though the input is still open.
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


def test_a_line_without_end_is_refused_in_bounded_memory(
    longtail: Command, trained: Path, tmp_path: Path
) -> None:
    place = tmp_path / "texts.txt.gz"
    with gzip.open(place, "wb", compresslevel=1) as packed:
        packed.write(b"copper rose\n")
        for _ in range(3):
            packed.write(b"x" * (1 << 20))
    message = "line 2: the line is larger than 1 MB"
    err = longtail.fails(message, "predict", trained, place, "--max-record-mb", 1)
    assert "--max-record-mb" in err
    longtail.ok("predict", trained, place, "--max-record-mb", 4)
    place.write_bytes(place.read_bytes()[:50] + b"damage" + place.read_bytes()[60:])
    longtail.fails("cannot be read any further", "predict", trained, place)
