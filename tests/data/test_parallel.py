"""Several files in several processes: exactly the documents and messages of one process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import longtail
from longtail.data import ReadReport, TextData, collect, read_data, write_data
from longtail.errors import DataError
from longtail.progress import Progress

from .cases import labels_of, reported


def line(identity: object, labels: list[str], text: str = "text") -> str:
    return json.dumps({"id": identity, "text": f"{text} {identity}", "labels": labels})


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Labels that come in another order, ids that come again, and bad lines among them."""
    contents = [
        [line(1, ["m"]), line(2, ["z", "b"]), "broken", line(1, ["once"])],
        [line(3, ["a"]), line(2, ["lost"]), "broken", line(4, []), line(4, ["z"]), line(4, ["z"])],
        ["broken", line(5, ["a"]), line(1, ["m"]), "broken", line(6, ["b"]), line(5, ["c"])],
        [line(1, ["m"]), line(2, ["m"])],
        [line(7, ["y"]), '{"text": "no id", "labels": ["n"]}', line(3, ["x"])],
    ]
    paths = [tmp_path / f"{k}.jsonl" for k in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_text("\n".join(content))
    return paths


def both_ways(source: Any) -> tuple[TextData, ReadReport]:
    """What two processes read, which must be what one reads; progress goes up to the total."""
    results: list[Any] = []
    for workers in (1, 2):
        seen: list[Progress] = []
        data, report = reported(source, workers=workers, on_error="skip", progress=seen.append)
        results.append((data.texts, data.ids, data.dates, data.label_names, labels_of(data)))
        results[-1] += (report, seen[-1])
        done = [now.done for now in seen]
        assert done == sorted(done) and done[-1] == seen[0].total
    assert results[0] == results[1]
    return data, report


def test_two_processes_give_what_one_gives(files: list[Path]) -> None:
    data, report = both_ways(files)
    assert data.ids == ("1", "2", "3", "4", "5", "6", "7", "#7") and data.texts[-1] == "no id"
    # A label that only a repeated document had is no label.
    assert data.label_names == ("a", "b", "m", "n", "y", "z")
    assert report.documents == 8 and report.skipped == 13
    places = [example.split(": ")[0] for example in report.examples]
    folder = files[0].parent
    assert places == [
        f"{folder / name}.jsonl, line {number}"
        for name, number in (("0", 3), ("0", 4), ("1", 2), ("1", 3), ("1", 4))
    ]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ([0, 1], r"0\.jsonl, line 3: not valid JSON"),
        ([3, 1], r"1\.jsonl, line 2: the id '2' is already taken"),
        ([3, 2, 1], r"2\.jsonl, line 1: not valid JSON"),
        ([3, 4, 0], r"0\.jsonl, line 1: the id '1' is already taken"),
    ],
)
def test_the_first_error_is_the_same(files: list[Path], chosen: list[int], message: str) -> None:
    for workers in (1, 2):
        with pytest.raises(DataError, match=message):
            read_data([files[k] for k in chosen], workers=workers)


def test_declared_labels_and_parquet(tmp_path: Path) -> None:
    names = (["z", "none", "b"], ["b", "more", "z"])
    for k, ids in enumerate((["1", "2"], ["2", "3"])):
        write_data(
            TextData.from_lists(["one", "two"], [["z"], ["b"]], names[k], ids=ids),
            tmp_path / f"{k}.parquet",
        )
    data, report = both_ways(tmp_path)
    # The repeated document takes neither the names nor their order with it.
    assert (data.ids, data.label_names) == (("1", "2", "3"), ("z", "none", "b", "more"))
    assert "1.parquet, row 1: the id '2' is already taken" in report.examples[0]


def test_small_files_are_not_worth_processes(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_processes(*arguments: object) -> None:
        raise AssertionError("processes for a few bytes")

    monkeypatch.setattr(collect, "_in_processes", no_processes)
    assert len(read_data(files[3:], on_error="skip", report=ReadReport())) == 5
    monkeypatch.setattr(collect, "PARALLEL_FROM", 1)
    monkeypatch.setattr(collect.os, "cpu_count", lambda: 2)
    with pytest.raises(AssertionError, match="processes for a few bytes"):
        read_data(files, on_error="skip")


def test_a_script_needs_no_main_guard(tmp_path: Path, files: list[Path]) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from longtail.data import read_data, ReadReport\n"
        f"data = read_data({[str(path) for path in files]!r}, on_error='skip', workers=2,"
        " report=ReadReport())\n"
        "print(len(data))\n"
    )
    source = str(Path(longtail.__file__).parents[1])
    finished = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PYTHONPATH": source, "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"},
    )
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "8\n", "")
