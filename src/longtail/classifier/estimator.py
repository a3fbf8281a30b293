"""LongTailClassifier: fit, predict, evaluate, save and load, as a scikit-learn estimator."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from longtail.arguments import Arguments, LabelTexts
from longtail.classifier.blend import fit_plans
from longtail.classifier.crossfit import Fitted, Run
from longtail.classifier.held_out import Facts, choose_thresholds
from longtail.classifier.hub import find_model, push_classifier
from longtail.classifier.inputs import as_text_data, with_validation
from longtail.classifier.loading import load_classifier
from longtail.classifier.plan import Plan, fingerprint, make_plans, plain_params, to_plain
from longtail.classifier.prediction import PredictionMixin, Texts
from longtail.classifier.saving import write_files
from longtail.classifier.work import open_work
from longtail.data import TextData
from longtail.data.hashes import text_hashes
from longtail.errors import InputError, warn
from longtail.evaluation import Evaluation, evaluate
from longtail.models import DEFAULT_MODEL, ModelSettings, nested_params, parse_model
from longtail.progress import Watch, watching
from longtail.runs.model import check_out, replace_model
from longtail.thresholds import Objective
from longtail.training import Training
from longtail.training.engines import RayEngine
from longtail.training.interrupt import NEVER, Stop
from longtail.training.processes import together

# Torch's random state is global to the process: only one thread may fit at a time.
FIT_LOCK = threading.RLock()
# Maximum document-label pairs for `held_out_`: 100 million took 40 s.
EVALUATED_PAIRS = 20_000_000
LIMITS = {"min_labels", "max_labels"}  # parameters that are part of the thresholds


class LongTailClassifier(PredictionMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Multi-label text classifier for data whose labels are mostly rare.

    Args:
        model: settings such as `Bag(C=10)` or `Encoder("bert-base-cased", max_length=256)`; the
            name of a kind ("auto", "bag", "encoder", "svm") for its defaults; or a list of these,
            which are blended with weights fitted on held-out scores. "auto" compares linear models
            on held-out documents and takes the best.
        loss: a name of `longtail.list_losses()`; None: "db", or the choice of "auto".
        loss_settings: arguments of `build_loss`.
        training: how networks are trained, such as `Training(epochs=10)`.
        thresholds, objective: how thresholds are chosen, and for which metric; see
            `fit_thresholds`.
        folds: 2 or more: cross-fitting. Each model is trained without one fold, its scores of that
            fold choose the thresholds, and predictions are the mean of the models. 1: one model,
            with thresholds chosen on a validation part. None: the default of the model, 5 for a
            blend.
        label_texts: "names", or a dict from label names to a description or a list of synonyms:
            rare labels also learn from these texts.
        min_labels, max_labels: minimum and maximum number of predicted labels per text; labels
            nearest to their thresholds are added, labels furthest above them are kept.
        validation_fraction: with folds=1, the share of documents held out for the thresholds if
            `fit` gets no validation part.
        random_state: seed; the same seed on the same machine gives the same model.

    Attributes after fit:
        classes_: label names. label_stats_: label counts of the training documents.
        document_hashes_: hashes of the documents that models learned from or that chose the
            thresholds; None if the model came without them, as from the hub.
        thresholds_: the minimum score of each label. ensemble_: the fitted models.
        plans_: all settings of each model of the blend, with defaults filled in.
        facts_: the figures of the model card; `facts_.trials`: the settings that were compared.
        held_out_: the Evaluation of the documents that chose the thresholds, which makes it
            optimistic; None after loading, or if there are too many.

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
        model: str | ModelSettings | Sequence[str | ModelSettings] = DEFAULT_MODEL,
        loss: str | None = Arguments.loss,
        *,
        loss_settings: Mapping[str, Any] | None = None,
        training: Training | None = None,
        thresholds: str = Arguments.thresholds,
        objective: Objective = Arguments.objective,
        folds: int | None = Arguments.folds,
        label_texts: LabelTexts | None = Arguments.label_texts,
        min_labels: int = Arguments.min_labels,
        max_labels: int | None = Arguments.max_labels,
        validation_fraction: float = 0.1,
        random_state: int = Arguments.random_state,
    ) -> None:
        self.model = model
        self.loss = loss
        self.loss_settings = loss_settings
        self.training = training
        self.thresholds = thresholds
        self.objective = objective
        self.folds = folds
        self.label_texts = label_texts
        self.min_labels = min_labels
        self.max_labels = max_labels
        self.validation_fraction = validation_fraction
        self.random_state = random_state

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> LongTailClassifier:
        """Create an estimator from flat settings, as in a recipe: `{"model": "bag", "C": 10}`."""
        return cls(**nested_params(settings, set(cls._get_param_names())))

    def set_params(self, **params: Any) -> LongTailClassifier:
        """Set parameters, also nested ones such as `model__C` and `training__epochs`.

        On a fitted classifier `min_labels` and `max_labels` take effect at once, all others with
        the next `fit`.
        """
        # Names and None become objects; objects are copied, as they may be shared.
        nested = {key.partition("__")[0] for key in params if "__" in key}
        if "model" in nested:
            model = params.get("model", self.model)
            if isinstance(model, (list, tuple)):
                raise InputError("model is a list, which has no model__ parameters. Set `model`.")
            params["model"] = parse_model(model)
        if "training" in nested:
            training = params.get("training", self.training) or Training()
            params["training"] = dataclasses.replace(training)
        limits: Any = {k: to_plain(params[k], k) for k in LIMITS & params.keys()}
        is_limited = bool(limits) and self.__sklearn_is_fitted__()
        thresholds = self.thresholds_.override(**limits) if is_limited else None
        super().set_params(**params)
        if thresholds is not None:
            self.thresholds_ = thresholds
            self.__dict__.pop("held_out_", None)
        return self

    def plans(self, n_documents: int | None = None) -> tuple[Plan, ...]:
        """Validate the parameters; return one plan for each model of a blend.

        `n_documents`: determines folds, and epochs of an encoder, that are not given.
        """
        return make_plans(plain_params(self.get_params(deep=False)), n_documents)

    def fit(
        self,
        texts: Texts | TextData,
        labels: Any = None,
        sample_weight: Any = None,
        *,
        label_names: Sequence[str] | None = None,
        validation: TextData | None = None,
        folder: str | Path | None = None,
        resume: bool = False,
        only_fold: int | None = None,
        engine: RayEngine | None = None,
        progress: Watch = "auto",
        note: Callable[[str], None] = warn,
        stop: Stop = NEVER,
        trust_remote_code: bool = False,
    ) -> LongTailClassifier:
        """Train on texts and their labels.

        Under torchrun all processes call it, and get the model: on the data of the main process.

        Args:
            texts: strings in a list, array, Series or generator; or a TextData, which includes
                labels.
            labels: a list of label names for each text; or an indicator matrix: a DataFrame, whose
                columns are the names, or a numpy array or scipy matrix with `label_names`, by
                default "0", "1" and so on. Unknown labels (None in place of a list, NaN or -1 in a
                matrix) are ignored in training and evaluation.
            sample_weight: weights of the documents in training, not in thresholds and metrics; a
                document of weight 0 is left out.
            validation: documents to choose thresholds on; cross-fitting also trains on them.
            folder: where to save checkpoints and finished folds. resume: resume an earlier fit.
            only_fold: train only this fold, into the folder.
            engine: a Ray cluster that trains the folds, as `longtail.training.engines.open_engine`
                returns; needs a folder that its machines share.
            progress: called with a `longtail.progress.Progress`; "auto": a bar in a terminal or a
                notebook; None: no progress. note: called with warnings.
            stop: checked after every step; see `longtail.training.interrupt.stopping`.
            trust_remote_code: run the encoder's own code; see `from_pretrained`.
        """

        def learn() -> dict[str, Any]:
            data = as_text_data(texts, labels, label_names, sample_weight, note)
            run = Run(
                only_fold=only_fold,
                note=note,
                stop=stop,
                trust_remote_code=trust_remote_code,
                engine=engine,
            )
            path = None if folder is None else Path(folder)
            self._fit(data, validation, run, path, resume, progress)
            return self._learned()

        learned = together(learn)
        self._forget()
        self.__dict__.update(learned)
        return self

    def _fit(
        self,
        data: TextData,
        validation: TextData | None,
        run: Run,
        folder: Path | None,
        resume: bool,
        progress: Watch,
    ) -> None:
        params = plain_params(self.get_params(deep=False))
        plans = make_plans(params, len(data))
        for plan in plans:
            # Detect wrong label weights now rather than after all texts are encoded.
            plan.new_loss(data.stats())
        data, validation = with_validation(data, validation, params, plans[0].folds, run.note)
        prints = fingerprint(plans, data, validation)
        begun = open_work(folder, prints, resume or run.only_fold is not None, run.note)
        with begun as work, FIT_LOCK, watching(progress) as watch:
            self._forget()
            run = dataclasses.replace(run, work=work, progress=watch)
            fitted = fit_plans(
                plans,
                data,
                validation,
                run,
                objective=params["objective"],
                as_logits=params["thresholds"] != "grid",  # it shifts margins
            )
        if fitted is not None:
            self._set_fitted(data, fitted)

    def _learned(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name.endswith("_")}

    def _forget(self) -> None:
        """Drop what an earlier fit has learned."""
        for name in self._learned():
            delattr(self, name)

    def _set_fitted(self, data: TextData, fitted: Fitted) -> None:
        plans = fitted.plans
        base_model = next((plan.model.base_model for plan in plans if plan.model.base_model), None)
        params = plain_params(self.get_params(deep=False))
        thresholds, facts = choose_thresholds(data, fitted, params, base_model)
        self.classes_ = np.asarray(data.label_names, dtype=object)
        self._params_ = to_plain(params)  # set_params may change them later
        self.label_stats_ = data.stats()
        # With cross-fitting every document is held out once.
        used = [fitted.held_out] if fitted.fold_of is not None else [data, fitted.held_out]
        hashes = [text_hashes(part.texts) for part in used]
        self.document_hashes_ = np.unique(np.concatenate(hashes))
        self.plans_ = tuple(plan.resolved() for plan in plans)
        self.thresholds_ = thresholds
        self.facts_: Facts = facts
        self.ensemble_ = fitted.ensemble
        is_small = len(fitted.held_out) * len(self.classes_) <= EVALUATED_PAIRS
        self._tuning_ = (fitted.held_out.truth, fitted.scores) if is_small else None

    @cached_property
    def held_out_(self) -> Evaluation | None:
        """The Evaluation of the documents that chose the thresholds."""
        self._check_fitted()
        if self._tuning_ is None:
            return None
        truth, scores = self._tuning_
        return evaluate(truth, scores, self.thresholds_, self.label_stats_, n_resamples=0)

    def save_pretrained(self, folder: str | Path) -> None:
        """Save as safetensors, JSON, tokenizer files and a model card, atomically.

        An existing model is replaced; other files in the folder are kept.
        """
        self._check_fitted()
        replace_model(check_out(folder), partial(write_files, self))

    @classmethod
    def from_pretrained(
        cls,
        folder: str | Path,
        device: str | None = None,
        *,
        engine: str | None = None,
        revision: str | None = None,
        token: str | None = None,
        trust_remote_code: bool = False,
    ) -> LongTailClassifier:
        """Load what `save_pretrained` or `push_to_hub` saved.

        Args:
            folder: a local folder or, if there is none of that name, owner/name on the Hugging Face
                hub. Loading a folder needs no network.
            device: default: the device of the training, if this machine has it.
            engine: torch, or onnx for a folder that `longtail export` wrote; default: that of the
                folder.
            revision: a branch, tag or commit on the hub. token: for a private model.
            trust_remote_code: run the code in an encoder's folder, with all your permissions.
                Never the default.
        """
        path = find_model(folder, revision, token)
        return load_classifier(cls, path, device, trust_remote_code, engine)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        token: str | None = None,
        revision: str | None = None,
        commit_message: str = "Upload a longtail model",
        include_hashes: bool = False,
    ) -> str:
        """Upload to the Hugging Face hub; returns the URL of the model.

        Args:
            repo_id: owner/name; created if needed. private: for a new repository.
            token: default: that of `hf auth login`. revision: a branch, created if needed.
            include_hashes: also upload the hashes of the training documents, which `trained_on`
                needs. Whoever can read them can test whether a given text is among them.
        """
        self._check_fitted()
        return push_classifier(
            self, repo_id, private, token, revision, commit_message, include_hashes
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
