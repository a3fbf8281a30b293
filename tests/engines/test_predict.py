"""`predict --engine ray` on a cluster: every row once, in order, with the bytes of one process."""

from __future__ import annotations

import dataclasses
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longtail import Encoder, LongTailClassifier, Training
from longtail.cli.predict import Request
from longtail.cli.stream import Model, stream
from longtail.cli.texts import Texts
from longtail.corpora.newswire import load
from longtail.data import TextData, write_data
from longtail.errors import LongtailError
from longtail.progress import ignore
from longtail.training.engines import RayEngine

from ..cli.conftest import Command
from ..cli.conftest import longtail as longtail

# Ray Data warns of its own use of what it will remove.
pytestmark = pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*")
DOCUMENTS = load(n_documents=3200, n_labels=8)["train"]
SIZES = (700, 1, 500, 0, 300)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tiny_bert: Path) -> Path:
    """A tiny encoder, whose scores may depend on the texts in the same batch."""
    path: Path = tmp_path_factory.mktemp("run") / "model"
    training = Training(device="cpu", epochs=1)
    classifier = LongTailClassifier(Encoder(str(tiny_bert)), thresholds="global", training=training)
    classifier.fit(DOCUMENTS[:200], progress=None).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Files of several sizes, one of them empty; those of even position have no ids."""
    folder = tmp_path_factory.mktemp("files")
    paths, first = [], 0
    for k, size in enumerate(SIZES):
        part = DOCUMENTS.select(np.arange(first, first + size))
        part = part if k % 2 else dataclasses.replace(part, ids=None)
        paths.append(str(folder / f"part-{k}.jsonl"))
        write(part, paths[-1])
        first += size
    return paths


def write(part: TextData, path: str) -> None:
    if len(part):
        write_data(part, path)
    else:
        Path(path).touch()


def workers() -> list[int]:
    """The processes that hold a model; Ray names them."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return [pid for pid in pids if b"MapBatches(Predict)" in title(pid)]


def title(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_killed_worker(engine: RayEngine, run: Path, names: list[str]) -> None:
    classifier = LongTailClassifier.from_pretrained(run)
    request = Request({}, top_k=2, with_text=True)

    def texts() -> Texts:
        return Texts(names, None, {}, None, run)

    expected = list(request.records(texts(), classifier, ignore))
    killed, got = [], []
    model = Model(run, None, False)
    for batch in stream(engine, model, request, texts(), classifier, ignore, 0):
        if not got:
            killed = workers()
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
        got.append(batch)
    assert killed
    assert got == expected
    rows = [record for batch in got for record in batch]
    assert [record["text"] for record in rows] == list(DOCUMENTS.texts[: sum(SIZES)])
    assert [rows[k]["id"] for k in (0, 699, 701)] == ["1", "700", "702"]


def test_the_command(
    engine: RayEngine, longtail: Command, run: Path, names: list[str], tmp_path: Path
) -> None:
    """A bad record, and resumed in the middle of a file."""
    bad = tmp_path / "bad.jsonl"
    lines = Path(names[2]).read_text().splitlines()
    bad.write_text("\n".join([*lines[:300], "{broken", *lines[300:]]))
    files = [names[0], bad, names[4]]
    skip = ("--on-error", "skip")
    here, there = tmp_path / "here.csv", tmp_path / "there.csv"
    one = longtail.ok("predict", run, *files, "--out", here, *skip)
    spread = ("predict", run, *files, "--out", there, "--engine", "ray")
    err = longtail.fails("line 301: not valid JSON", *spread)
    assert "1,000 documents are kept" in err
    two = longtail.ok(*spread, "--resume", *skip)
    assert here.read_bytes() == there.read_bytes()
    assert two.out.replace("there", "here") == one.out
    assert one.err.splitlines()[-2:] == two.err.splitlines()[-2:]


def test_what_cannot_be_spread(
    engine: RayEngine, longtail: Command, run: Path, names: list[str], tmp_path: Path
) -> None:
    ray: tuple[Any, ...] = ("--engine", "ray")
    longtail.fails("Name it with --out", "predict", run, names[0], *ray)
    out = ("--out", tmp_path / "out.csv")
    longtail.fails("neither standard input nor --split", "predict", run, *out, *ray)
    longtail.fails("torch, onnx, ray", "predict", run, names[0], *out, "--engine", "rai")


def test_a_lost_or_doubled_batch_is_an_error(run: Path, names: list[str]) -> None:
    from longtail.cli.stream import Batch, End, _Position
    from longtail.data.documents import ReadReport

    texts = Texts(names, None, {}, None, run)
    first, second = (Batch(0, k, [(None, 1)], ["text"], 0) for k in (0, 1))
    cases: list[list[Any]] = [[second], [first, first], [first, End(1, 0, ReadReport())]]
    for rows in cases:
        position = _Position(texts, ReadReport())
        for row in rows[:-1]:
            position.check(row)
        with pytest.raises(LongtailError, match=r"expected batch \d of file 0 from the cluster"):
            position.check(rows[-1])
    with pytest.raises(LongtailError, match=r"returned 0 of 5 files"):
        _Position(texts, ReadReport()).finish()
