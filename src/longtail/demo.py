"""The demo: the same small model with plain BCE and with the DB loss, on the synthetic newswire."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

from longtail.classifier import LongTailClassifier
from longtail.corpora import load_corpus
from longtail.evaluation import Evaluation
from longtail.models import Bag
from longtail.progress import OnProgress, Progress, ignore
from longtail.training import Training

LOSSES_SHOWN = ("bce", "db")
# A small network trained in steps: what most people would use with either loss.
MODEL = Bag(hidden=128)


class DemoResult(NamedTuple):
    evaluations: dict[str, Evaluation]
    example: str
    example_labels: list[str]
    sentence: str


def run_demo(progress: OnProgress = ignore) -> DemoResult:
    """Train with every loss shown, tune the threshold on validation, evaluate on test."""
    parts = load_corpus("newswire")
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
        show = partial(_name_the_loss, progress, loss)
        classifier.fit(parts["train"], validation=parts["validation"], progress=show)
        evaluations[loss] = classifier.evaluate(parts["test"])
    test = parts["test"]
    # A document with several labels shows best what the task is.
    row = max(range(min(200, len(test))), key=lambda k: (len(test.labels_of(k)) == 2, -k))
    return DemoResult(evaluations, test.texts[row], test.labels_of(row), _sentence(evaluations))


def _name_the_loss(show: OnProgress, loss: str, progress: Progress) -> None:
    show(replace(progress, stage=f"training with {loss}"))


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
