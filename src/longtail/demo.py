"""The demo: one small model trained with BCE and with the DB loss on the synthetic newswire."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from longtail.classifier import LongTailClassifier
from longtail.corpora import load_corpus
from longtail.evaluation import Evaluation
from longtail.models import Bag
from longtail.progress import OnProgress, Progress, ignore
from longtail.training import Training

LOSSES_SHOWN = ("bce", "db")
# A small network trained by gradient steps, as most people would use either loss.
MODEL = Bag(hidden=128)


class DemoResult(NamedTuple):
    evaluations: dict[str, Evaluation]
    example: str
    example_labels: list[str]
    sentence: str


def run_demo(progress: OnProgress = ignore) -> DemoResult:
    """Train with each loss, tune the threshold on validation, evaluate on test."""
    parts = load_corpus("newswire")
    evaluations = {}
    for loss in LOSSES_SHOWN:
        # One model and one threshold for all labels, so that only the loss differs.
        classifier = LongTailClassifier(
            model=MODEL,
            loss=loss,
            training=Training(device="cpu"),
            folds=1,
            thresholds="global",
            objective="micro",
        )

        def show(now: Progress, stage: str = f"training with {loss}") -> None:
            progress(replace(now, stage=stage))

        classifier.fit(parts["train"], validation=parts["validation"], progress=show)
        evaluations[loss] = classifier.evaluate(parts["test"])
    test = parts["test"]
    # A document with two labels shows the task best.
    row = max(range(min(200, len(test))), key=lambda k: (len(test.labels_of(k)) == 2, -k))
    return DemoResult(evaluations, test.texts[row], test.labels_of(row), _sentence(evaluations))


def _sentence(evaluations: dict[str, Evaluation]) -> str:
    bce, db = evaluations["bce"], evaluations["db"]
    micro_change = 100 * (db.overall.micro_f1 - bce.overall.micro_f1)
    verb = "lifts" if db.tail.macro_f1 > bce.tail.macro_f1 else "does not lift"
    return (
        f"What you see: the same model and documents; replacing BCE by the DB loss {verb} "
        f"the macro-F1 of the {bce.tail.n_labels} rarest labels from "
        f"{100 * bce.tail.macro_f1:.0f} to {100 * db.tail.macro_f1:.0f}, while micro-F1 over all "
        f"labels changes by {micro_change:+.1f} points."
    )
