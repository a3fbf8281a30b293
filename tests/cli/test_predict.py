"""`longtail predict`: streams, keeps order and ids, refuses what it cannot read."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path

import pytest

from longtail import LongTailClassifier

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
    flags = ("--text-field", "body", "--id-field", "key", "--top-k", 3)
    done = longtail("predict", trained, tmp_path / "in.jsonl.gz", *flags)
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [one["id"] for one in found] == list(range(600))
    for one in found:
        scores = [pair["score"] for pair in one["top"]]
        assert len(scores) == 3 and scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"text": "a"}\nnot json\n', "in.jsonl, line 2: expected a JSON object"),
        (b'{"body": "a"}\n', "Name the field with --text-field"),
        (b'{"text": 3}\n', "expected an object with a text"),
        (b'{"text": "caf\xe9"}\n', "line 1 is not valid UTF-8"),
        (b"[" * 100_000, "expected a JSON object"),
    ],
)
def test_bad_lines_are_named(
    longtail: Command, trained: Path, tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "in.jsonl").write_bytes(content)
    assert len(longtail.fails(message, "predict", trained, tmp_path / "in.jsonl")) < 1000


def test_what_is_no_text_is_not_read_as_text(
    longtail: Command, trained: Path, tmp_path: Path
) -> None:
    (tmp_path / "in.csv").write_text("text,labels\na,b\n")
    longtail.fails("longtail corpus convert", "predict", trained, tmp_path / "in.csv")
    (tmp_path / "in.txt").write_text('{"text": "wheat"}\n')
    assert "--jsonl" in longtail.ok("predict", trained, tmp_path / "in.txt").err
    longtail.fails("--jsonl", "predict", trained, tmp_path / "in.txt", "--text-field", "body")
    longtail.fails("is no file", "predict", trained, tmp_path / "missing.txt")


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
    longtail.fails("cannot be read after line", "predict", trained, place)


def test_half_of_a_surrogate_pair_is_shown_as_its_code(trained: Path, tmp_path: Path) -> None:
    place = tmp_path / "texts.jsonl"
    place.write_text('{"text": "copper \\ud800 rose"}\n')
    done = subprocess.run([*PREDICT, trained, place], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "\\ud800" in done.stdout
