"""Corrections are on disk, complete, and data that `longtail train` reads."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from longtail.data import read_data
from longtail.errors import InputError
from longtail.runs import append
from longtail.runs.append import append_line
from longtail.runs.files import Lock
from longtail.serve.settings import Service, check_corrections

from .conftest import Serve

PATH = "/models/run/corrections"


def test_corrections_are_training_data(
    client: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(handle), fsync(handle)))
    first = {"text": "tin\nrose \u2028 \U0001f33e", "labels": ["tin", "copper", "tin"], "id": "a"}
    answer = client.post(PATH, json={**first, "predicted": ["wheat"]})
    assert answer.status_code == 201 and synced
    key = answer.json()["id"]
    assert answer.json() == {"stored": True, "id": key, "new_labels": ["tin"]}
    assert key.startswith("a-") and len(key) == 34
    second = client.post(PATH, json={"text": "nothing", "labels": []}).json()
    assert second["new_labels"] == [] and len(second["id"]) == 32
    path = service.corrections
    assert path is not None
    line = json.loads(path.read_text("utf-8").split("\n")[0])
    assert list(line) == ["id", "text", "labels", "predicted", "model", "time"]
    assert line["model"] == "run" and line["predicted"] == ["wheat"]
    data = read_data(path, keep_unlabelled=True)
    assert data.texts == [first["text"], "nothing"] and data.ids == (key, second["id"])
    assert [list(document.labels) for document in data] == [["copper", "tin"], []]


@pytest.mark.parametrize(
    "wrong",
    [
        {"text": "a"}, {"labels": ["a"]}, {"text": "", "labels": []}, {"text": " ", "labels": []},
        {"text": "a", "labels": "copper"}, {"text": "a", "labels": [" "]},
        {"text": "a", "labels": [1]}, {"text": "a", "labels": [], "id": ""},
        {"text": "a", "labels": [], "model": "x"}, {"text": "a", "labels": ["\ud800"]},
        {"text": "a", "labels": ["x" * 1001]}, {"text": "a", "labels": ["x"] * 1001},
        {"text": "\x1c", "labels": []}, {"text": "a", "labels": ["\x1c"]},
    ],
)  # fmt: skip
def test_invalid_corrections_are_not_stored(
    client: TestClient, service: Service, wrong: dict[str, Any]
) -> None:
    answer = client.post(
        PATH, content=json.dumps(wrong), headers={"content-type": "application/json"}
    )
    assert answer.status_code == 422 and "error" in answer.json()
    assert service.corrections is not None and not service.corrections.exists()


def test_a_full_disk_is_a_503_and_leaves_the_file_as_it_was(
    client: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = service.corrections
    assert path is not None
    client.post(PATH, json={"text": "first", "labels": []})
    before, write = path.read_bytes(), os.write

    def full(handle: int, content: Any) -> int:
        if len(content) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(handle, content[: len(content) - 10])

    with monkeypatch.context() as patch:
        patch.setattr(append.os, "write", full)
        answer = client.post(PATH, json={"text": "second", "labels": []})
    assert answer.status_code == 503 and "No space left" in answer.json()["error"]
    assert path.read_bytes() == before
    assert client.post(PATH, json={"text": "third", "labels": []}).status_code == 201
    assert read_data(path, keep_unlabelled=True).texts == ["first", "third"]


def test_a_truncated_line_does_not_damage_the_next(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'{"text": "wh')
    append_line(path, b'{"text": "b"}\n')
    append_line(path, b'{"text": "c"}')
    assert path.read_bytes() == b'{"text": "wh\n{"text": "b"}\n{"text": "c"}\n'


def test_a_document_may_be_corrected_twice(client: TestClient, service: Service) -> None:
    for labels in (["copper"], ["tin"]):
        body = {"text": "copper rose", "labels": labels, "id": "ticket 1"}
        assert client.post(PATH, json=body).status_code == 201
    assert service.corrections is not None
    data = read_data(service.corrections)
    assert [list(document.labels) for document in data] == [["copper"], ["tin"]]


def test_a_disk_that_hangs_is_a_503(serving: Serve, service: Service) -> None:
    path = service.corrections
    assert path is not None
    path.touch()
    with serving(timeout=0.2) as client, Lock(path) as lock, ThreadPoolExecutor(3) as pool:
        assert lock.acquire()  # as another process that holds the file, and does not go on
        asked = [pool.submit(client.post, PATH, json={"text": "a", "labels": []}) for _ in "abc"]
        for one in asked:
            assert one.result().status_code == 503 and "retry-after" in one.result().headers
        lock.close()
        assert client.post(PATH, json={"text": "b", "labels": []}).status_code == 201
    texts = read_data(path, keep_unlabelled=True).texts
    assert texts in (["b"], ["a", "b"]), "what had not begun is given up"


def add(path: Path, name: str) -> None:
    for k in range(50):
        append_line(path, json.dumps({"text": f"{name} {k} " * 5000, "labels": []}).encode())


def test_lines_of_two_processes_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "corrections.jsonl"
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=add, args=(path, name)) for name in ("a", "b")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    texts = [json.loads(line)["text"].split()[:2] for line in path.read_text().splitlines()]
    assert sorted(map(tuple, texts)) == sorted((n, str(k)) for n in "ab" for k in range(50))


def test_wrong_places_of_corrections(run: Path, tmp_path: Path) -> None:
    service = Service({"run": run})
    assert service.corrections_of("run") == run.resolve().parent / "corrections-run.jsonl"
    check_corrections(service)
    for path, why in (
        (run / "corrections.jsonl", "inside the model"),
        (tmp_path / "corrections.csv", "expected the name of a .jsonl file"),
        (tmp_path / "nowhere" / "corrections.jsonl", "cannot be written as a file"),
        (tmp_path / "folder.jsonl", "cannot be written as a file"),
        (Path("/proc/corrections.jsonl"), "cannot be written as a file"),
    ):
        (tmp_path / "folder.jsonl").mkdir(exist_ok=True)
        with pytest.raises(InputError, match=why):
            check_corrections(Service({"run": run}, corrections=path))
