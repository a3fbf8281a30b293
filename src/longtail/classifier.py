"""LongTailClassifier: fit, predict, save and load, with scikit-learn's manners."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from safetensors import SafetensorError
from sklearn.base import BaseEstimator, ClassifierMixin

from longtail import __version__
from longtail.data import TextData, random_split
from longtail.errors import DataError, InputError, NotFittedError, UnknownNameError
from longtail.evaluation import Evaluation, evaluate
from longtail.labels import LabelStats
from longtail.losses import LOSSES, build_loss
from longtail.metrics import count, micro_f1
from longtail.models import NetworkModel, TextModel, build_model
from longtail.models.base import SelfFitting
from longtail.thresholds import (
    OBJECTIVES,
    Objective,
    Thresholds,
    fit_thresholds,
    list_methods,
)
from longtail.training import Progress, TrainingConfig, predict_logits, train

CONFIG_FILE = "longtail.json"


class LongTailClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classify texts with several labels each, most of them rare.

    Args:
        model: "bag", "encoder" or "svm".
        loss: a name of `longtail.list_losses()`; the svm has its own.
        model_settings, loss_settings: arguments of the model and of `build_loss`.
        epochs, batch_size, learning_rate, seed, device: see TrainingConfig.
        thresholds, objective: how scores become decisions, and what for: `fit_thresholds`.
        validation_fraction: share of the documents kept from training to fit the thresholds, where
            `fit` gets no validation part.

    Attributes after fit:
        classes_: label names. label_stats_: counts of the training documents. thresholds_: what
        the score of each label must reach. model_: the trained model.

    Example:
        >>> from longtail import LongTailClassifier
        >>> texts = ["copper rose", "wheat fell", "copper and nickel rose", "wheat rose"] * 8
        >>> labels = [["copper"], ["wheat"], ["copper", "nickel"], ["wheat"]] * 8
        >>> classifier = LongTailClassifier(epochs=30, batch_size=8).fit(texts, labels)
        >>> classifier.predict_labels(["nickel and copper", "wheat"])
        [['copper', 'nickel'], ['wheat']]
    """

    def __init__(
        self,
        model: str = "bag",
        loss: str = "db",
        *,
        thresholds: str = "global",
        objective: Objective = "micro",
        model_settings: Mapping[str, Any] | None = None,
        loss_settings: Mapping[str, Any] | None = None,
        epochs: int = 20,
        batch_size: int = 64,
        learning_rate: float = 5e-3,
        seed: int = 0,
        device: str = "auto",
        validation_fraction: float = 0.1,
    ) -> None:
        self.model = model
        self.loss = loss
        self.thresholds = thresholds
        self.objective = objective
        self.model_settings = model_settings
        self.loss_settings = loss_settings
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.seed = seed
        self.device = device
        self.validation_fraction = validation_fraction

    def fit(
        self,
        texts: Sequence[str] | TextData,
        labels: Any = None,
        *,
        validation: TextData | None = None,
        progress: Progress | None = None,
    ) -> LongTailClassifier:
        """Train on texts and their labels: lists of names, an indicator matrix, or a TextData."""
        if self.loss not in LOSSES:
            raise UnknownNameError("loss", self.loss, LOSSES)
        if self.thresholds not in list_methods():
            raise UnknownNameError("threshold method", self.thresholds, list_methods())
        if self.objective not in OBJECTIVES:
            raise UnknownNameError("objective", self.objective, OBJECTIVES)
        config = TrainingConfig(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            seed=self.seed,
            device=self.device,
        )
        data = as_text_data(texts, labels)
        if validation is None:
            data, validation = random_split(data, self.validation_fraction, self.seed)
        elif validation.label_names != data.label_names:
            validation, _ = validation.onto(data.label_names)
        self.classes_ = np.asarray(data.label_names, dtype=object)
        self.label_stats_: LabelStats = data.stats()
        model = build_model(self.model, **dict(self.model_settings or {}))
        if isinstance(model, SelfFitting):
            model.fit(data.texts, data.Y)
        elif isinstance(model, NetworkModel):
            self._train(model, data, config, progress)
        self.model_: TextModel = model
        scores = self.decision_function(validation.texts)
        self.thresholds_ = fit_thresholds(
            scores,
            validation.Y,
            self.label_stats_.label_counts,
            self.thresholds,
            objective=self.objective,
            scale="margin" if isinstance(model, SelfFitting) else "logit",
            seed=self.seed,
        )
        return self

    def _train(
        self,
        model: NetworkModel,
        data: TextData,
        config: TrainingConfig,
        progress: Progress | None,
    ) -> None:
        import torch

        # The targets come from a checked matrix: no need to look at every batch again.
        settings: dict[str, Any] = {"reduction": "batchmean", "check_targets": False}
        settings |= dict(self.loss_settings or {})
        if settings["reduction"] == "none":
            raise InputError("training needs a loss that is a number, not reduction='none'.")
        loss = build_loss(self.loss, self.label_stats_, **settings)
        # The caller's own random numbers go on as if nothing had happened.
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            model.prepare(data.texts, len(data.label_names))
            train(model.network, model.encode(data.texts), data.Y, loss, config, progress)

    def decision_function(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Scores, (documents, labels): logits, or distances to the hyperplane for the svm."""
        self._check_fitted()
        texts = _check_texts(texts)
        if not texts:
            return np.zeros((0, len(self.classes_)), dtype=np.float32)
        if isinstance(self.model_, SelfFitting):
            return self.model_.scores(texts)
        assert isinstance(self.model_, NetworkModel)
        return predict_logits(self.model_.network, self.model_.encode(texts))

    def predict_proba(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Probabilities, (documents, labels): the sigmoid of the logits."""
        self._check_fitted()
        if isinstance(self.model_, SelfFitting):
            raise InputError(
                f"model {self.model!r} has no probabilities. Use decision_function, or train "
                "'bag' or 'encoder'."
            )
        scores = self.decision_function(texts)
        return np.asarray(0.5 * (1 + np.tanh(0.5 * scores)), dtype=np.float32)

    def predict(self, texts: Sequence[str]) -> sp.csr_matrix:
        """The decisions as a sparse indicator matrix, columns in the order of `classes_`."""
        scores = self.decision_function(texts)
        return self.thresholds_.apply(scores)

    def predict_labels(self, texts: Sequence[str]) -> list[list[str]]:
        """The names of the labels of each text."""
        decisions = self.predict(texts)
        edges = zip(decisions.indptr[:-1], decisions.indptr[1:], strict=True)
        return [[str(self.classes_[k]) for k in decisions.indices[a:b]] for a, b in edges]

    def score(self, texts: Sequence[str], labels: Any, sample_weight: None = None) -> float:
        """Micro-F1."""
        data = as_text_data(texts, labels, [str(name) for name in self.classes_])
        return micro_f1(count(data.Y, self.predict(data.texts)))

    def evaluate(self, data: TextData) -> Evaluation:
        """Overall, head, medium and tail scores at the fitted thresholds; see `judge`."""
        return self.judge(data)[0]

    def judge(self, data: TextData) -> tuple[Evaluation, NDArray[np.float32]]:
        """The evaluation of documents, and the scores that it judges.

        Labels that the model was not trained on are not judged; `unknown_labels` counts them.
        """
        self._check_fitted()
        known, unknown = data.onto([str(name) for name in self.classes_])
        scores = self.decision_function(known.texts)
        found = evaluate(
            known.Y,
            scores,
            self.thresholds_,
            self.label_stats_,
            unknown,
        )
        return found, scores

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model as safetensors and JSON, all or nothing."""
        self._check_fitted()
        target = check_out(folder)
        config = {
            "longtail_version": __version__,
            "arguments": self.get_params(),
            "label_names": self.classes_.tolist(),
            "label_counts": self.label_stats_.label_counts.tolist(),
            "n_samples": self.label_stats_.n_samples,
            "thresholds": self.thresholds_.to_dict(),
        }
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".longtail-") as temporary:
            staged = Path(temporary) / "model"
            staged.mkdir()
            self.model_.save(staged)
            text = json.dumps(config, indent=2, ensure_ascii=False)
            (staged / CONFIG_FILE).write_text(text, "utf-8")
            if target.exists():
                os.replace(target, Path(temporary) / "old")
            os.replace(staged, target)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> LongTailClassifier:
        """Read what `save_pretrained` wrote."""
        source = Path(folder)
        try:
            config = json.loads((source / CONFIG_FILE).read_text("utf-8"))
        except (OSError, json.JSONDecodeError) as error:
            raise DataError(
                f"{folder} holds no longtail model: expected a readable {CONFIG_FILE} there "
                f"({error}). Train one with: longtail train DATA --out {folder}"
            ) from error
        try:
            classifier = cls(**config["arguments"])
            classifier.classes_ = np.asarray(config["label_names"], dtype=object)
            classifier.label_stats_ = LabelStats.from_counts(
                config["label_counts"], config["n_samples"], config["label_names"]
            )
            classifier.thresholds_ = Thresholds.from_dict(config["thresholds"])
            classifier.model_ = build_model(classifier.model, **(classifier.model_settings or {}))
            classifier.model_.load(source, len(classifier.classes_))
        except (OSError, KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
            raise DataError(
                f"the model in {folder} is damaged or of another version ({error}). Train it again."
            ) from error
        return classifier

    def _check_fitted(self) -> None:
        if not hasattr(self, "model_"):
            raise NotFittedError(
                "this classifier is not fitted yet. Call fit(texts, labels), or load one with "
                "LongTailClassifier.from_pretrained(folder)."
            )


def check_out(folder: str | Path) -> Path:
    """The folder to save to; an error if something else is there, or if it cannot be made."""
    target = Path(folder)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        occupied = target.exists() and (not target.is_dir() or any(target.iterdir()))
        if occupied and not (target / CONFIG_FILE).is_file():
            raise DataError(f"{target} exists and is not a longtail model. Choose another folder.")
        if not os.access(target.parent, os.W_OK):
            raise OSError("no right to write there")
    except OSError as error:
        raise DataError(f"cannot save to {target}: {error}. Choose another folder.") from error
    return target


def as_text_data(
    texts: Sequence[str] | TextData, labels: Any, label_names: Sequence[str] | None = None
) -> TextData:
    """Texts with lists of label names, or with an indicator matrix, as TextData."""
    if isinstance(texts, TextData):
        return texts if label_names is None else texts.onto(label_names)[0]
    checked = _check_texts(texts)
    if labels is None:
        raise InputError("labels are missing: pass one list of label names per text.")
    if sp.issparse(labels) or isinstance(labels, np.ndarray):
        matrix = sp.csr_matrix(labels, dtype=np.float32)
        names = label_names or [str(k) for k in range(matrix.shape[1])]
        return TextData(checked, matrix, tuple(names))
    if len(labels) != len(checked):
        raise InputError(
            f"expected one list of labels per text, got {len(checked)} texts and {len(labels)} "
            "lists of labels."
        )
    return TextData.from_lists(checked, labels, label_names)


def _check_texts(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str):
        raise InputError("expected a list of texts, got one string. Write [text].")
    found = list(texts)
    for position, text in enumerate(found):
        if not isinstance(text, str):
            raise InputError(
                f"text {position} must be a string, got {text!r} ({type(text).__name__})."
            )
    return found
