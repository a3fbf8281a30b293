"""Small documents with labels, and a model that remembers what it was fitted on."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from longtail import LongTailClassifier
from longtail.classifier.crossfit import Fitted, Run, fit_plan
from longtail.classifier.folds import FoldedData
from longtail.classifier.plan import Plan
from longtail.data import TextData
from longtail.models import ModelKind, ModelSettings
from longtail.models.base import FitContext, MakeLoss, Scale, TextModel
from longtail.runs.model import CONFIG_FILE, seal
from longtail.training import Training

TEXTS = ["copper rose", "wheat fell", "copper and nickel rose", "wheat rose again"] * 6
LABELS = [["copper"], ["wheat"], ["copper", "nickel"], ["wheat"]] * 6
NAMES = ["copper", "nickel", "wheat"]
DATA = TextData.from_lists(TEXTS, LABELS)
CPU = Training(device="cpu")
WORDS = ("copper", "nickel", "tin", "wheat", "zinc")
LEAK = 1000.0


@dataclass(repr=False)
class Remember(ModelSettings):
    """The settings of Remembering."""

    description = "memory"


class Remembering(TextModel):
    """Scores a label by its training documents, plus LEAK for a text that it was fitted on."""

    scale: Scale = "margin"

    def __init__(self, settings: ModelSettings) -> None:
        self.settings = settings
        self.seen: list[str] = []
        self.counts: NDArray[np.float32] = np.zeros(0, dtype=np.float32)

    def fit(self, data: TextData, loss: MakeLoss, training: Training, context: FitContext) -> None:
        self.seen = list(data.texts)
        self.counts = np.asarray(data.Y.sum(axis=0), dtype=np.float32).ravel()

    def scores(self, texts: Sequence[str], encoded: Any = None) -> NDArray[np.float32]:
        each = [LEAK * (text in self.seen) + 0.25 * (int(text) % 3) for text in texts]
        return self.counts + np.array(each, dtype=np.float32)[:, None]

    def save(self, folder: Path) -> None:
        content = {"seen": self.seen, "counts": self.counts.tolist()}
        (folder / "model.json").write_text(json.dumps(content))

    def load(self, folder: Path, n_labels: int, device: torch.device) -> None:
        content = json.loads((folder / "model.json").read_text())
        self.seen = content["seen"]
        self.counts = np.array(content["counts"], dtype=np.float32)


REMEMBERING = ModelKind(Remember, f"{__name__}:Remembering", "memory", folds=2)


def remembering(folds: int = 1, **settings: Any) -> Plan:
    """A plan for such a model; needs the fixture `remember`."""
    return Plan(Remember(), folds=folds, training=CPU, **settings)


def fit_one(plan: Plan, data: TextData, validation: Any = None, run: Run | None = None) -> Fitted:
    """`fit_plan` for a plan with complete settings."""
    run = run or Run()
    fitted = fit_plan(plan, FoldedData.split(plan, data, validation, run.only_fold), run)
    assert fitted is not None
    return fitted


def numbered(Y: Any) -> TextData:
    """Documents whose texts are their numbers."""
    matrix = sp.csr_matrix(np.asarray(Y, dtype=np.float32))
    names = tuple(f"label-{k}" for k in range(matrix.shape[1]))
    return TextData([str(k) for k in range(matrix.shape[0])], matrix, names)


def documents(n: int = 30) -> TextData:
    """Texts of several lengths that name their labels."""
    rng = np.random.default_rng(2)
    labels = [rng.choice(WORDS, size=rng.integers(1, 3), replace=False).tolist() for _ in range(n)]
    filler = [["rose"] * int(rng.integers(0, 6)) for _ in range(n)]
    texts = [" ".join(words + rest) for words, rest in zip(labels, filler, strict=True)]
    return TextData.from_lists(texts, labels, WORDS)


def change(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Edit the longtail.json of a saved model."""
    config = json.loads((folder / CONFIG_FILE).read_text("utf-8"))
    edit(config)
    (folder / CONFIG_FILE).write_text(json.dumps(seal(config)), "utf-8")


def reload(classifier: LongTailClassifier, folder: Path) -> LongTailClassifier:
    """Save and load a classifier; asserts that it predicts the same."""
    classifier.save_pretrained(folder)
    loaded = LongTailClassifier.from_pretrained(folder)
    scores = classifier.decision_function(TEXTS)
    assert np.array_equal(loaded.decision_function(TEXTS), scores)
    assert loaded.predict_labels(TEXTS) == classifier.predict_labels(TEXTS)
    assert loaded.plans_ == classifier.plans_ and loaded.facts_ == classifier.facts_
    assert loaded.get_params() == classifier.get_params()
    return loaded


@contextmanager
def files_limited_to(n_bytes: int) -> Iterator[None]:
    """Limit the size of files that this process can write, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
