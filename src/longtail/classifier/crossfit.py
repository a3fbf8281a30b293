"""`fit_plan`: one model, or cross-fitting, where every training document is scored by a model that
was trained without it. Thresholds chosen on such scores see every rare label, and no document that
was memorised.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from longtail.classifier.ensemble import Ensemble
from longtail.classifier.label_texts import add_cooccurring, label_documents
from longtail.classifier.plan import Plan
from longtail.classifier.work import Work
from longtail.corpora.download import cache_folder
from longtail.data import TextData
from longtail.data.splits import assign_stratified
from longtail.errors import InputError, LongtailError, UnknownNameError
from longtail.evaluation import evaluate
from longtail.labels import LabelStats
from longtail.models import build_model
from longtail.models.base import FitContext, Floats, TextModel
from longtail.progress import OnProgress, Progress, ignore
from longtail.thresholds import Objective, fit_thresholds
from longtail.training.checkpoints import Checkpoints
from longtail.training.devices import device_of
from longtail.training.encoded import IntArray
from longtail.training.interrupt import NEVER, Stop
from longtail.training.loop import Validation

# Characters from which tokens are cached: fewer are tokenized in a second or two.
CACHED_CHARACTERS = 2_000_000
# Beyond any meaningful logit.
MAX_SCORE = 1e9
# The objective of the threshold for metrics of decisions; others: micro.
OBJECTIVE_OF: dict[str, Objective] = {
    "macro_f1": "macro",
    "tail_macro_f1": "macro",
    "mean_f1": "mean",
}


@dataclass(frozen=True)
class Run:
    """How a fit reports, stops, resumes, and what it may do."""

    work: Work = field(default_factory=Work)
    only_fold: int | None = None
    """Fit this fold alone, as one of several processes."""
    progress: OnProgress = ignore
    note: Callable[[str], None] = warnings.warn
    stop: Stop = NEVER
    trust_remote_code: bool = False


@dataclass(frozen=True, eq=False)
class Fitted:
    """Models, and scores of documents that they were not trained on, to choose thresholds with."""

    ensemble: Ensemble
    scores: Any
    """Documents x labels: masked where the label had no training document; CSR if large."""
    held_out: TextData
    """The documents of the scores."""
    fold_of: NDArray[np.int64] | None
    """The fold of each of them, if the models were cross-fitted."""


@dataclass
class _PlanFit:
    """What all folds of a fit share."""

    plan: Plan
    data: TextData
    """The documents, and after them texts of labels, which every fold trains on."""
    fold_of: IntArray
    """The fold that holds each document out; -1: none."""
    run: Run
    encoded: Any = None

    def fit_fold(self, fold: int) -> tuple[TextModel, NDArray[np.bool_]]:
        """The model of a fold, and the labels that have a training document."""
        plan, run = self.plan, self.run
        run.stop.check(run.work.kept)
        documents = np.flatnonzero(self.fold_of != fold)
        rows = np.concatenate([documents, np.arange(len(self.fold_of), len(self.data))])
        part = add_cooccurring(self.data.select(rows), len(documents))
        known = np.asarray(part.Y.sum(axis=0)).ravel() > 0
        model = build_model(plan.model, run.trust_remote_code)
        device = device_of(plan.training.device)

        def fit(checkpoints: Checkpoints | None) -> None:
            gpus, kind = ([], "cuda") if device.type == "cpu" else ([device], device.type)
            # The caller's random state is not changed.
            with torch.random.fork_rng(gpus, device_type=kind):
                torch.manual_seed(plan.random_state + 7919 * fold)
                context = self._context(fold, rows, checkpoints)
                model.fit(part, plan.new_loss, plan.training, context)

        load = partial(model.load, n_labels=len(known), device=device)
        minutes = plan.training.checkpoint_minutes
        run.work.fit_fold(fold, model, fit, load, minutes, run.stop)
        return model, known

    def _context(self, fold: int, rows: IntArray, checkpoints: Checkpoints | None) -> FitContext:
        plan, run = self.plan, self.run

        def validation(model: TextModel) -> Validation | None:
            if plan.folds > 1 or not plan.training.early_stopping_patience:
                return None
            trained = self.data.select(np.flatnonzero(self.fold_of != fold)).stats()
            held_out = np.flatnonzero(self.fold_of == fold)
            Y = self.data.select(held_out).Y
            score = score_by_name(plan.training.early_stopping_metric, Y, trained)
            return Validation(self._encode(model, held_out), score)

        def progress(progress: Progress) -> None:
            run.progress(dataclasses.replace(progress, fold=fold + 1, folds=plan.folds))

        def describe(row: int) -> str:
            text = self.data.texts[rows[row]]
            return f"{self.data.ids[rows[row]] if self.data.ids else rows[row]} ({text[:40]!r})"

        return FitContext(
            encode=lambda model: self._encode(model, rows),
            validation=validation,
            seed=plan.random_state,
            checkpoints=checkpoints,
            progress=progress,
            note=run.note,
            stop=run.stop,
            kept=run.work.kept,
            describe=describe,
        )

    def _encode(self, model: TextModel, rows: IntArray) -> Any:
        """Encode some of the documents, all of them once if all folds share the encoding."""
        if not model.shares_encoding:
            return model.encode(self.data.select(rows).texts)
        if self.encoded is None:
            texts = self.data.texts
            is_large = sum(map(len, texts)) >= CACHED_CHARACTERS
            self.encoded = model.encode(texts, cache_folder() / "tokens" if is_large else None)
        return self.encoded.select(rows)

    def held_out_scores(self, fold: int, model: TextModel, known: NDArray[np.bool_]) -> Any:
        """Scores of the documents that a fold holds out; none for labels it does not know."""
        rows = np.flatnonzero(self.fold_of == fold)
        encoded = self._encode(model, rows) if model.shares_encoding else None
        texts, n_scored = self.data.select(rows).texts, int((self.fold_of >= 0).sum())
        scores = Ensemble([model], known[None, :]).compact_scores(texts, n_scored, encoded)
        values = scores.data if sp.issparse(scores) else scores
        # Also true for NaN.
        if values.size and not np.abs(values).max() < MAX_SCORE:
            worst = values.flat[np.abs(values).argmax()]
            raise LongtailError(
                f"the trained model gives scores such as {worst:.3g}: the training diverged. "
                "Lower the learning rate, then start over (--overwrite)."
            )
        if sp.issparse(scores):
            return scores
        return np.ma.array(scores, mask=np.broadcast_to(~known, scores.shape))


def fit_plan(
    plan: Plan, data: TextData, validation: TextData | None = None, run: Run | None = None
) -> Fitted | None:
    """Fit what a plan says; None if only one fold was fitted.

    Args:
        validation: with one fold, held out to choose thresholds on; with several, used like all
            other documents.
    """
    run = run or Run()
    n_train = len(data)
    if validation is not None:
        data = TextData.concat([data, validation.onto(data.label_names)[0]])
    fold_of = _assign_folds(plan, data, n_train, run.only_fold)
    if plan.label_texts is not None:
        training = data if plan.folds > 1 else data[:n_train]
        data = TextData.concat([data, label_documents(training, plan.label_texts)])
    fit = _PlanFit(plan, data, fold_of, run)
    if run.only_fold is not None:
        fit.fit_fold(run.only_fold)
        return None
    models, knowns, pieces = [], [], []
    for fold in range(plan.folds):
        model, known = fit.fit_fold(fold)
        pieces.append(fit.held_out_scores(fold, model, known))
        models.append(model)
        knowns.append(known)
    # From the order of the folds to that of the documents.
    rows = np.concatenate([np.flatnonzero(fold_of == fold) for fold in range(plan.folds)])
    order = np.argsort(rows)
    if sp.issparse(pieces[0]):
        scores = sp.vstack(pieces, format="csr")[order]
    else:
        scores = np.ma.concatenate(pieces)[order]  # type: ignore[no-untyped-call]
    ensemble = Ensemble(models, np.stack(knowns))
    return Fitted(ensemble, scores, data.select(rows[order]), fold_of if plan.folds > 1 else None)


def _assign_folds(plan: Plan, data: TextData, n_train: int, only_fold: int | None) -> IntArray:
    """The fold that holds each document out; -1: all train on it."""
    n_folds, n_held_out = plan.folds, len(data) - n_train
    if n_folds == 1:
        if only_fold is not None:
            raise InputError("folds=1 has no fold to fit alone. Use folds=2 or more.")
        if n_train == 0 or n_held_out == 0:
            raise InputError(
                "folds=1 needs documents to train on and a validation part to choose thresholds "
                f"on, got {n_train} and {n_held_out} documents."
            )
        return np.repeat([-1, 0], [n_train, n_held_out])
    if n_folds > len(data):
        raise InputError(f"cannot make {n_folds} folds of {len(data)} documents. Use fewer folds.")
    if only_fold is not None and not 0 <= only_fold < n_folds:
        raise InputError(f"expected a fold from 0 to {n_folds - 1}, got {only_fold}.")
    fractions = [1 / n_folds] * n_folds
    return assign_stratified(data.Y, fractions, plan.random_state, first_is_train=False)


def score_by_name(name: str, Y: sp.csr_matrix, stats: LabelStats) -> Callable[[Floats], float]:
    """A function from logits to a metric for early stopping, higher being better.

    It fits a threshold each time.
    """
    objective = OBJECTIVE_OF.get(name, "micro")

    def score(logits: Floats) -> float:
        thresholds = fit_thresholds(logits, Y, stats.label_counts, "global", objective=objective)
        evaluation = evaluate(Y, logits, thresholds, stats, n_resamples=0)
        overall = evaluation.overall
        values = {
            **evaluation.metrics,
            "micro_f1": overall.micro_f1,
            "macro_f1": overall.macro_f1,
            "mean_f1": (overall.micro_f1 + overall.macro_f1) / 2,
            "tail_macro_f1": evaluation.tail.macro_f1,
        }
        if name not in values:
            raise UnknownNameError("early stopping metric", name, values)
        return -values[name] if name == "hamming_loss" else values[name]

    # An unknown name is an error now rather than after the first epoch.
    score(np.zeros(Y.shape, dtype=np.float32))
    return score
