"""Folds on a Ray cluster: the same model as without Ray, whatever is killed."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from longtail import Bag, Encoder, LongTailClassifier, Svm, Training
from longtail.corpora.newswire import load
from longtail.errors import InputError, LongtailError
from longtail.progress import Progress
from longtail.runs.model import CONFIG_FILE, checksum
from longtail.training.engines import RayEngine
from longtail.training.interrupt import Stop, StoppedError

from .conftest import Killer, holder_of

DATA = load(n_documents=200, n_labels=8)["train"]
CPU = Training(device="cpu")


def digests(classifier: LongTailClassifier, folder: Path) -> dict[str, str]:
    """A digest of the weights, and of each other file of the model but those of tokenizers.

    A tokenizer's files depend on what it read last; for the config and the card, which have the
    digests of all files, stand the thresholds.
    """
    classifier.save_pretrained(folder)
    files = [path for path in folder.rglob("*") if path.suffix == ".safetensors"]
    digests = {path.relative_to(folder).as_posix(): checksum(path) for path in files}
    config = json.loads((folder / CONFIG_FILE).read_text())
    return {
        **digests,
        "thresholds": json.dumps(config["thresholds"]),
        "facts": json.dumps(config["facts"]),
    }


def make(**settings: Any) -> LongTailClassifier:
    defaults = dict(folds=2, thresholds="global", training=CPU)
    return LongTailClassifier(**{**defaults, **settings})


def network(tiny_bert: Path, epochs: int = 12, minutes: float = 0.0) -> dict[str, Any]:
    training = Training(device="cpu", epochs=epochs, batch_size=16, checkpoint_minutes=minutes)
    return {"model": Encoder(str(tiny_bert)), "training": training, "random_state": 3}


def test_a_blend_of_linear_models(engine: RayEngine, tmp_path: Path) -> None:
    """All folds of both members are tasks; `auto` compares in this process."""
    settings: dict[str, Any] = {"model": [Bag(C=10), Svm()], "folds": 3}
    seen: list[Progress] = []
    notes: list[str] = []
    here = make(**settings).fit(DATA, progress=None)
    there = make(**settings).fit(
        DATA, folder=tmp_path / "work", engine=engine, progress=seen.append, note=notes.append
    )
    assert digests(here, tmp_path / "here") == digests(there, tmp_path / "there")
    assert (tmp_path / "work" / "member-1" / "fold-2" / "model").is_dir()
    assert any(moment.stage == "6 of 6 folds trained" and moment.done == 100 for moment in seen)
    assert not notes


def test_the_default_model(engine: RayEngine, tmp_path: Path) -> None:
    """A squared hinge loss, chosen by `auto`: its margins become logits."""
    there = LongTailClassifier().fit(
        DATA, folder=tmp_path / "work", engine=engine, progress=None, note=print
    )
    here = LongTailClassifier().fit(DATA, progress=None, note=print)
    assert digests(here, tmp_path / "here") == digests(there, tmp_path / "there")


def test_a_killed_worker(engine: RayEngine, tiny_bert: Path, tmp_path: Path) -> None:
    here = make(**network(tiny_bert)).fit(DATA, progress=None)
    fold = tmp_path / "work" / "fold-1"
    with Killer(fold / "lock", fold / "state.safetensors", (fold / "model").exists) as killer:
        there = make(**network(tiny_bert)).fit(
            DATA, folder=tmp_path / "work", engine=engine, progress=None
        )
    assert len(killer.killed) == 1
    assert digests(here, tmp_path / "here") == digests(there, tmp_path / "there")


def test_stopped_and_resumed(engine: RayEngine, tiny_bert: Path, tmp_path: Path) -> None:
    """Ctrl-C: workers save a checkpoint and end; the next fit resumes it, here without Ray."""
    stop = Stop()

    def progress(moment: Progress) -> None:
        if moment.done:
            stop.signal = signal.SIGINT

    # Long enough to be stopped in the middle; the only checkpoint is that of the stop.
    settings = network(tiny_bert, epochs=100, minutes=60)
    with pytest.raises(StoppedError, match=r"stopped by SIGINT\. Finished folds are kept"):
        make(**settings).fit(
            DATA, folder=tmp_path / "work", engine=engine, progress=progress, stop=stop
        )
    folds = [tmp_path / "work" / f"fold-{k}" for k in range(2)]
    assert any((fold / "state.safetensors").exists() for fold in folds)
    assert all(holder_of(fold / "lock") is None for fold in folds)
    resumed = make(**settings).fit(DATA, folder=tmp_path / "work", resume=True, progress=None)
    undisturbed = make(**settings).fit(DATA, progress=None)
    assert digests(resumed, tmp_path / "one") == digests(undisturbed, tmp_path / "other")


def test_errors_of_a_task_are_ours(engine: RayEngine, tiny_bert: Path, tmp_path: Path) -> None:
    """Training that diverges: the same error as without Ray, and no repetitions."""
    training = Training(device="cpu", epochs=2, learning_rate=1e30, max_grad_norm=0.0)
    settings = {**network(tiny_bert), "training": training}
    errors = []
    for options in ({}, {"folder": tmp_path / "work", "engine": engine}):
        with pytest.raises(LongtailError) as raised:
            make(**settings).fit(DATA, progress=None, **options)
        errors.append(raised.value)
    assert type(errors[0]) is type(errors[1])
    # Which fold diverges first, and with it the documents that the error names, may differ.
    assert str(errors[0])[:40] == str(errors[1])[:40]


def test_what_an_engine_needs(engine: RayEngine, tmp_path: Path) -> None:
    for message, settings, options in (
        ("needs a folder", {}, {}),
        ("leave out only_fold", {}, {"folder": tmp_path / "a", "only_fold": 0}),
        ("chooses the GPU", {"training": Training(device="cpu:0")}, {"folder": tmp_path / "b"}),
    ):
        with pytest.raises(InputError, match=f"(?i){message}"):
            make(model="svm", **settings).fit(DATA, engine=engine, progress=None, **options)
