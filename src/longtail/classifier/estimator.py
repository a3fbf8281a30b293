"""LongTailClassifier: fit, predict, judge, save and load, with scikit-learn's manners."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from longtail.classifier.arguments import (
    check_arguments,
    plain_arguments,
    plans_of,
    resolved_plan,
)
from longtail.classifier.deciding import decide
from longtail.classifier.facts import Facts
from longtail.classifier.hub import find_model, push_classifier
from longtail.classifier.inputs import (
    as_text_data,
    check_some,
    check_texts,
    for_classes,
    validation_part,
)
from longtail.classifier.loading import load_classifier
from longtail.classifier.saving import save_classifier
from longtail.classifier.stopping import score_by_name
from longtail.data import TextData, random_split
from longtail.errors import InputError, NotFittedError
from longtail.evaluation import Evaluation, evaluate
from longtail.fitting import Ensemble, Fitted, Plan, Work, fingerprint, fit
from longtail.labels import LabelStats
from longtail.metrics import count, top_k
from longtail.metrics.inputs import check_k
from longtail.thresholds import Objective, Thresholds
from longtail.training import Progress, Stop
from longtail.training.interrupt import NEVER
from longtail.training.steps import Note

Texts = Iterable[str]
# Random numbers of torch and the state of Accelerate belong to the whole process: fits in several
# threads take turns.
FITTING = threading.RLock()


class LongTailClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classify texts with several labels each, most of them rare.

    Args:
        model: "bag", "encoder" or "svm".
        loss: a name of `longtail.list_losses()`; the svm has its own.
        thresholds, objective: how scores become decisions, and what for: `fit_thresholds`.
        folds: 2 or more cross-fit: so many models, each trained without one fold, whose held-out
            scores choose the thresholds; predictions are their mean. 1: one model, and a validation
            part for the thresholds. None: 5, and 1 for the encoder alone.
        members: several models to blend into one, each a dict of these arguments and of its model's
            settings, such as `[{"model": "encoder", "epochs": 10}, {"model": "bag"}]`. Held-out
            scores decide how much each counts. What they share stands outside.
        label_texts: "names", or a dict of label names and descriptions: rare labels learn from
            these texts too.
        max_labels, at_least_one: at most so many labels, and at least one, for each text.
        model_settings: fields of BagSettings, EncoderSettings or SvmSettings.
        loss_settings: arguments of `build_loss`.
        validation_fraction: with folds=1, share of the documents kept from training to choose the
            thresholds, where `fit` gets no validation part.
        epochs, batch_size and all that follow: see TrainingConfig.

    Attributes after fit:
        classes_: label names. label_stats_: counts of the training documents.
        thresholds_: what the score of each label must reach. ensemble_: the fitted models.
        plans_: all settings, defaults filled in, of each member: one, unless several are blended.
        facts_: what the model card tells.
        held_out_: the Evaluation of the documents that chose the thresholds, which is therefore
        somewhat too good; None after loading, and where there are very many.

    Example:
        >>> from longtail import LongTailClassifier
        >>> texts = ["copper rose", "wheat fell", "copper and nickel rose", "wheat rose"] * 8
        >>> labels = [["copper"], ["wheat"], ["copper", "nickel"], ["wheat"]] * 8
        >>> classifier = LongTailClassifier().fit(texts, labels)
        >>> classifier.predict_labels(["nickel and copper", "wheat"])
        [['copper', 'nickel'], ['wheat']]
    """

    def __init__(
        self,
        model: str = "bag",
        loss: str = "db",
        *,
        thresholds: str = "auto",
        objective: Objective = "mean",
        folds: int | None = None,
        members: Sequence[Mapping[str, Any]] | None = None,
        label_texts: str | Mapping[str, str] | None = None,
        max_labels: int | None = None,
        at_least_one: bool = False,
        model_settings: Mapping[str, Any] | None = None,
        loss_settings: Mapping[str, Any] | None = None,
        validation_fraction: float = 0.1,
        epochs: int | None = None,
        batch_size: int | None = None,
        micro_batch: int | None = None,
        learning_rate: float | None = None,
        head_learning_rate: float | None = None,
        weight_decay: float | None = None,
        warmup: float = 0.1,
        schedule: str = "linear",
        clip: float = 1.0,
        ema: float = 0.0,
        patience: int = 0,
        stop_on: str = "micro_f1",
        precision: str = "auto",
        acceleration: str = "auto",
        deterministic: bool = True,
        seed: int = 0,
        device: str = "auto",
        checkpoint_minutes: float = 5.0,
    ) -> None:
        self.model = model
        self.loss = loss
        self.thresholds = thresholds
        self.objective = objective
        self.folds = folds
        self.members = members
        self.label_texts = label_texts
        self.max_labels = max_labels
        self.at_least_one = at_least_one
        self.model_settings = model_settings
        self.loss_settings = loss_settings
        self.validation_fraction = validation_fraction
        self.epochs = epochs
        self.batch_size = batch_size
        self.micro_batch = micro_batch
        self.learning_rate = learning_rate
        self.head_learning_rate = head_learning_rate
        self.weight_decay = weight_decay
        self.warmup = warmup
        self.schedule = schedule
        self.clip = clip
        self.ema = ema
        self.patience = patience
        self.stop_on = stop_on
        self.precision = precision
        self.acceleration = acceleration
        self.deterministic = deterministic
        self.seed = seed
        self.device = device
        self.checkpoint_minutes = checkpoint_minutes

    def plans(self, n_documents: int | None = None) -> tuple[Plan, ...]:
        """The arguments as checked plans, one for each member.

        Few documents make fewer folds than the default.
        """
        given = plain_arguments(self.get_params(deep=False))
        check_arguments(given)
        return plans_of(given, plain_arguments(LongTailClassifier().get_params()), n_documents)

    def fit(
        self,
        texts: Texts | TextData,
        labels: Any = None,
        *,
        validation: TextData | None = None,
        folder: str | Path | None = None,
        resume: bool = False,
        only_fold: int | None = None,
        progress: Progress | None = None,
        note: Note = warnings.warn,
        stop: Stop = NEVER,
        trust_remote_code: bool = False,
    ) -> LongTailClassifier:
        """Train on texts and their labels; what an earlier fit had found is forgotten.

        Args:
            texts: strings in a list, array, Series or generator; or a TextData with its labels.
            labels: a list of label names for each text; or 0 and 1 with a column for each label, as
                a numpy array or scipy matrix, whose labels are then called "0", "1" and so on, or
                as a DataFrame, whose columns name them.
            validation: documents to choose thresholds on; cross-fitting also trains on them.
            folder: where to keep states and finished folds. resume: go on with what is there.
            only_fold: train this fold alone, into the folder, and fit nothing else.
            progress: called with a `longtail.training.Moment`. note: told what was changed.
            stop: looked at after every step; see `longtail.training.stopping`.
            trust_remote_code: run the code that an encoder brings along; see `from_pretrained`.
        """
        data, held = as_text_data(texts, labels), validation
        plans = self.plans(len(data))
        folds, seed = plans[0].folds, plans[0].training.seed
        check_some(data)
        for plan in plans:
            # A wrong weight of a label is found now rather than after all texts are made ready.
            plan.new_loss(data.stats())
        if held is not None:
            held = validation_part(held, data, note)
        elif folds == 1:
            data, held = random_split(data, float(self.validation_fraction), seed)
        judge = None
        # Members that look at a validation part look at the same score of it.
        patient = [plan.training.stop_on for plan in plans if plan.training.patience]
        if held is not None and patient:
            judge = score_by_name(patient[0], held.Y, data.stats())
        work = Work(None if folder is None else Path(folder), note)
        with work.begun(fingerprint(plans, data, held), resume or only_fold is not None), FITTING:
            self._forget()
            fitted = fit(
                plans,
                data,
                held,
                judge=judge,
                work=work,
                only=only_fold,
                progress=progress,
                note=note,
                stop=stop,
                trust_remote_code=trust_remote_code,
            )
        if fitted is not None:
            self._keep(plans, data, fitted)
        return self

    def _keep(self, plans: Sequence[Plan], data: TextData, fitted: Fitted) -> None:
        found = decide(plans, data, fitted, plain_arguments(self.get_params(deep=False)))
        self.classes_ = np.asarray(data.label_names, dtype=object)
        self.label_stats_: LabelStats = found.stats
        firsts = [member.models[0] for member in fitted.ensemble.members()]
        self.plans_ = tuple(map(resolved_plan, plans, firsts))
        self.thresholds_: Thresholds = found.thresholds
        self.held_out_: Evaluation | None = found.held_out
        self.facts_: Facts = found.facts
        self.ensemble_: Ensemble = fitted.ensemble

    def _forget(self) -> None:
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def decision_function(self, texts: Texts) -> NDArray[np.float32]:
        """Scores, (documents, labels): logits, or distances to the hyperplane for the svm."""
        self._check_fitted()
        return self.ensemble_.scores(check_texts(texts))

    def predict_proba(self, texts: Texts) -> NDArray[np.float32]:
        """Probabilities, (documents, labels): the sigmoid of the logits."""
        self._check_fitted()
        if self.ensemble_.scale != "logit":
            raise InputError(
                f"model {self.plans_[0].model!r} has no probabilities. Use decision_function, or "
                "train 'bag' or 'encoder'."
            )
        scores = self.decision_function(texts)
        return np.asarray(0.5 * (1 + np.tanh(0.5 * scores)), dtype=np.float32)

    def predict(self, texts: Texts) -> sp.csr_matrix:
        """The decisions as a sparse indicator matrix, columns in the order of `classes_`."""
        self._check_fitted()
        blocks = self.ensemble_.blocks(check_texts(texts))
        found = [self.thresholds_.apply(scores) for _, scores in blocks]
        if not found:
            return sp.csr_matrix((0, len(self.classes_)), dtype=np.float32)
        return sp.vstack(found, format="csr")

    def predict_labels(self, texts: Texts) -> list[list[str]]:
        """The names of the labels of each text."""
        decisions = self.predict(texts)
        edges = zip(decisions.indptr[:-1], decisions.indptr[1:], strict=True)
        return [[str(self.classes_[k]) for k in decisions.indices[a:b]] for a, b in edges]

    def top_k(self, texts: Texts, k: int = 5) -> list[list[tuple[str, float]]]:
        """The k labels with the highest scores for each text, best first, with their scores.

        The scores are those of `decision_function`. Labels without a training document are left
        out; there are fewer than k where there are fewer others.
        """
        self._check_fitted()
        columns = np.flatnonzero(self.ensemble_.known.any(axis=0))
        names = self.classes_[columns].tolist()
        most = min(check_k(k), len(names))
        found: list[list[tuple[str, float]]] = []
        for _, scores in self.ensemble_.blocks(check_texts(texts)):
            known = scores if len(columns) == scores.shape[1] else scores[:, columns]
            for own, best in zip(known, top_k(known, most), strict=True):
                found.append([(names[n], float(own[n])) for n in best])
        return found

    def score(self, texts: Texts | TextData, labels: Any = None) -> float:
        """Micro-F1; a label that the classifier does not know counts as missed."""
        self._check_fitted()
        data, unknown = for_classes(texts, labels, self.classes_.tolist())
        hits, predicted, actual = (part.sum() for part in count(data.Y, self.predict(data.texts)))
        whole = predicted + actual + sum(unknown.values())
        return float(2 * hits / whole) if whole else 0.0

    def evaluate(self, data: TextData) -> Evaluation:
        """Overall, head, medium and tail scores at the fitted thresholds; see `judge`."""
        return self.judge(data)[0]

    def judge(self, data: TextData) -> tuple[Evaluation, Any]:
        """The evaluation of documents, and the scores that it judges: dense, masked or CSR.

        Labels that the model was not trained on are not judged; `unknown_labels` counts them.
        """
        self._check_fitted()
        known, unknown = for_classes(data, None, self.classes_.tolist())
        scores = self.ensemble_.compact_scores(known.texts)
        unseen = ~self.ensemble_.known.any(axis=0)
        if unseen.any() and not sp.issparse(scores):
            # A label without a training document has no score that could be ranked.
            scores = np.ma.array(scores, mask=np.broadcast_to(unseen, scores.shape))
        found = evaluate(known.Y, scores, self.thresholds_, self.label_stats_, unknown)
        return found, scores

    def save_pretrained(self, folder: str | Path) -> None:
        """Write safetensors, JSON, tokenizer files and a model card, all or nothing.

        A model that is there already is replaced; other files in the folder stay.
        """
        self._check_fitted()
        save_classifier(self, folder)

    @classmethod
    def from_pretrained(
        cls,
        folder: str | Path,
        device: str | None = None,
        *,
        revision: str | None = None,
        token: str | None = None,
        trust_remote_code: bool = False,
    ) -> LongTailClassifier:
        """Read what `save_pretrained` or `push_to_hub` wrote.

        Args:
            folder: a folder or, where there is none of that name, owner/name on the Hugging Face
                hub. A folder is all that is needed: nothing is looked up elsewhere.
            device: where to compute; default: as in training where that is possible here.
            revision: a branch, tag or commit on the hub. token: for a private model.
            trust_remote_code: run the code that an encoder brings along in its folder. Never
                without being asked for: it can do anything that you can do.
        """
        found = find_model(folder, revision, token)
        return load_classifier(cls, found, device, trust_remote_code)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        token: str | None = None,
        revision: str | None = None,
        commit_message: str = "Upload a longtail model",
    ) -> str:
        """Upload to the Hugging Face hub; returns the address of the model.

        Args:
            repo_id: owner/name; made if need be. private: whether only you can see a new one.
            token: default: that of `hf auth login`. revision: a branch, made if need be.
        """
        self._check_fitted()
        return push_classifier(
            self,
            repo_id,
            private=private,
            token=token,
            revision=revision,
            commit_message=commit_message,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.target_tags.two_d_labels = True
        tags.target_tags.single_output = False
        tags.classifier_tags.multi_label = True
        tags.classifier_tags.multi_class = False
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "ensemble_")

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(
                "this classifier is not fitted yet. Call fit(texts, labels), or load one with "
                "LongTailClassifier.from_pretrained(folder)."
            )
