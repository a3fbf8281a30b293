"""Export a fitted classifier to ONNX or to transformers, and compare predictions with it."""

from __future__ import annotations

import copy
import dataclasses
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import expit

from longtail.classifier.inputs import on_classes
from longtail.classifier.saving import model_card
from longtail.data import TextData
from longtail.errors import InputError, LongtailError
from longtail.evaluation import Evaluation, evaluate
from longtail.models.base import TextModel
from longtail.models.onnx import OnnxModel
from longtail.runs.model import CARD_FILE, write_folder

if TYPE_CHECKING:
    from longtail.classifier.estimator import LongTailClassifier

TOLERANCE = 1e-4
"""Maximum difference of scores of a correct export in float32."""
N_GENERATED, LONGEST = 64, 600
"""Number of generated texts, and words of the longest one."""


class Comparison(NamedTuple):
    """A classifier and its export on the same documents."""

    n_documents: int
    difference: float
    """The largest difference between scores."""
    n_alike: int
    """Documents with the same predicted labels."""
    evaluations: tuple[Evaluation, ...]
    """Evaluations of both, if the documents have labels."""


def to_onnx(classifier: LongTailClassifier, int8: bool = False) -> LongTailClassifier:
    """A copy of the classifier that computes with onnxruntime; save it with `save_pretrained`.

    `int8`: compute networks in 8-bit integers, which changes scores a little.
    """
    ensemble = classifier.ensemble_
    models = []
    for model in ensemble.models:
        if model.engine != "torch":
            raise InputError("this classifier is already exported. Export the trained run.")
        models.append(OnnxModel(model))
        models[-1].export(int8)
    if int8 and not any(model.is_int8 for model in models):
        raise InputError(
            "int8 has no effect on linear models: only products of dense matrices, as in encoders "
            "and hidden layers, can be computed in 8 bits. Leave out int8."
        )
    exported = copy.copy(classifier)
    exported.ensemble_ = dataclasses.replace(ensemble, models=list[TextModel](models))
    return exported


def compare(
    classifier: LongTailClassifier, exported: LongTailClassifier, data: TextData
) -> Comparison:
    """Predict with both; raises if an export in float32 has other scores than torch."""
    before = classifier.ensemble_.scores(data.texts)
    after = exported.ensemble_.scores(data.texts)
    difference = float(np.abs(before - after).max(initial=0))
    is_int8 = any(model.is_int8 for model in exported.ensemble_.models)
    if not is_int8 and not difference <= TOLERANCE:
        raise LongtailError(
            f"the scores of the exported model differ from those of the trained one by up to "
            f"{difference:.2g}, expected at most {TOLERANCE:g}. Nothing was written. Predict with "
            "the trained run."
        )
    thresholds, stats = classifier.thresholds_, classifier.label_stats_
    changed = abs(thresholds.apply(before) - thresholds.apply(after)).sum(axis=1)
    evaluations: tuple[Evaluation, ...] = ()
    if data.Y.nnz:
        truth = on_classes(data, None, classifier.classes_.tolist())[0].truth
        evaluations = tuple(
            evaluate(truth, scores, thresholds, stats, n_resamples=0) for scores in (before, after)
        )
    return Comparison(len(data), difference, int((changed == 0).sum()), evaluations)


def generated_documents(classifier: LongTailClassifier) -> TextData:
    """Texts of random words from the models' vocabularies, from empty to longer than any limit."""
    rng = np.random.default_rng(0)
    words = [model.words() or ["text"] for model in classifier.ensemble_.models]
    lengths = [0, 1, LONGEST, *rng.integers(1, 100, N_GENERATED - 3).tolist()]
    texts = [" ".join(rng.choice(words[k % len(words)], size)) for k, size in enumerate(lengths)]
    return TextData.from_lists(texts, [[]] * len(texts), classifier.classes_.tolist())


def to_transformers(classifier: LongTailClassifier, folder: Path) -> None:
    """Write a folder that `transformers.pipeline` loads, with thresholds in its config.json."""
    (model, *others) = classifier.ensemble_.models
    if others:
        raise InputError(
            f"this run has {1 + len(others)} models (folds, or members of a blend), but "
            "transformers loads one. Train with --model encoder --pooling cls --folds 1, or export "
            "it with --to onnx."
        )
    write_folder(folder, partial(_write_transformers, classifier, model))


def _write_transformers(classifier: LongTailClassifier, model: TextModel, folder: Path) -> None:
    values = classifier.thresholds_.values
    # A label with an infinite threshold is never predicted.
    named = zip(classifier.classes_.tolist(), values.tolist(), strict=True)
    thresholds = {name: float(expit(value)) for name, value in named if np.isfinite(value)}
    model.save_for_transformers(folder, {"thresholds": thresholds})
    card = model_card(classifier, has_hashes=False, for_transformers=True)
    (folder / CARD_FILE).write_text(card, "utf-8", newline="\n")
