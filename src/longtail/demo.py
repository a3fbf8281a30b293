"""The demo: the same small model with plain BCE and with the DB loss, on the synthetic newswire."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from longtail.classifier import LongTailClassifier
from longtail.corpora import load_corpus
from longtail.data import TextData
from longtail.evaluation import Evaluation
from longtail.models import Bag
from longtail.training import Training
from longtail.training.loop import Moment, Progress

LOSSES_SHOWN = ("bce", "db")
# A small network trained in steps: what most people would use with either loss.
MODEL = Bag(hidden=128)
Stage = Callable[[str, int, int], None]
"""Called with (loss, steps done, steps in all) while a model trains."""


class DemoResult(NamedTuple):
    evaluations: dict[str, Evaluation]
    example: str
    example_labels: list[str]
    sentence: str


def run_demo(stage: Stage, parts: dict[str, TextData] | None = None) -> DemoResult:
    """Train with every loss shown, tune the threshold on validation, evaluate on test."""
    parts = load_corpus("newswire") if parts is None else parts
    evaluations = {}
    for loss in LOSSES_SHOWN:
        # One model and one threshold for all labels, so that the loss alone makes the difference.
        classifier = LongTailClassifier(
            model=MODEL,
            loss=loss,
            training=Training(device="cpu"),
            folds=1,
            thresholds="global",
            objective="micro",
        )
        classifier.fit(
            parts["train"],
            validation=parts["validation"],
            progress=_show(stage, loss),
        )
        evaluations[loss] = classifier.evaluate(parts["test"])
    test = parts["test"]
    # A document with several labels shows best what the task is.
    row = max(range(min(200, len(test))), key=lambda k: (len(test.labels_of(k)) == 2, -k))
    return DemoResult(evaluations, test.texts[row], test.labels_of(row), _sentence(evaluations))


def _show(stage: Stage, loss: str) -> Progress:
    def show(moment: Moment) -> None:
        stage(loss, moment.step, moment.steps)

    return show


def _sentence(evaluations: dict[str, Evaluation]) -> str:
    bce, db = evaluations["bce"], evaluations["db"]
    kept = 100 * (db.overall.micro_f1 - bce.overall.micro_f1)
    verb = "lifts" if db.tail.macro_f1 > bce.tail.macro_f1 else "does not lift"
    return (
        f"What you see: the same model, the same documents; exchanging BCE for the DB loss {verb} "
        f"the macro-F1 of the {bce.tail.n_labels} rarest labels from "
        f"{100 * bce.tail.macro_f1:.0f} to {100 * db.tail.macro_f1:.0f}, while micro-F1 over all "
        f"labels changes by {kept:+.1f} points."
    )
