"""`fit_plan`: fit one model, or cross-fit: every document is scored by a model trained without it.

Thresholds chosen on such scores see every rare label, and no memorised documents.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from longtail.classifier.ensemble import Ensemble
from longtail.classifier.folds import FoldedData
from longtail.classifier.label_texts import texts_by_label
from longtail.classifier.plan import Plan
from longtail.classifier.work import Work
from longtail.data import TextData
from longtail.errors import LongtailError, UnknownNameError, warn
from longtail.evaluation import evaluate
from longtail.labels import LabelStats
from longtail.models import build_model
from longtail.models.base import FitContext, Floats, TextModel
from longtail.progress import OnProgress, Progress, ignore
from longtail.thresholds import Objective, fit_thresholds
from longtail.training.checkpoints import Checkpoints
from longtail.training.devices import SHARED, device_of
from longtail.training.engines import RayEngine
from longtail.training.interrupt import NEVER, Stop
from longtail.training.loop import Validation

# Larger scores mean that the training diverged.
MAX_SCORE = 1e9
# The objective of the threshold for these early stopping metrics; for all others: micro.
OBJECTIVE_OF: dict[str, Objective] = {
    "macro_f1": "macro",
    "tail_macro_f1": "macro",
    "mean_f1": "mean",
}


@dataclass(frozen=True)
class Run:
    """How a fit reports, stops and resumes, and whether it may run an encoder's code."""

    work: Work = field(default_factory=Work)
    only_fold: int | None = None
    """Fit this fold alone, as one of several processes."""
    progress: OnProgress = ignore
    note: Callable[[str], None] = warn
    stop: Stop = NEVER
    trust_remote_code: bool = False
    after_fold: Callable[[int, Fitted], None] | None = None
    """Called after each fold with the models and scores so far; may raise to stop the fit."""
    engine: RayEngine | None = None
    """The cluster that fits the folds; None: this process, one after another."""


class Trial(NamedTuple):
    """Settings that were compared on held-out documents, and their scores there."""

    settings: str
    micro_f1: float
    macro_f1: float
    score: float
    """The value of the objective, by which the best was chosen."""
    average_precision: float
    """Mean over labels; needs no thresholds."""
    n_documents: int | None = None
    """Held-out documents compared: those of the first fold only if it was clearly worse there."""


class Half(NamedTuple):
    """Scores of models fitted on half of the training documents of the first fold."""

    scores: Any
    """Scores of the documents that this fold holds out."""
    n_documents: int
    """Number of documents that the models were fitted on."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """Models, and scores of documents they were not trained on, for choosing thresholds."""

    ensemble: Ensemble
    scores: Any
    """Documents x labels, masked where the label had no training document; CSR if large."""
    held_out: TextData
    """The scored documents."""
    fold_of: NDArray[np.int64] | None
    """Fold of each scored document; None if not cross-fitted."""
    plans: tuple[Plan, ...]
    """The plan of each member, with all settings chosen."""
    trials: tuple[Trial, ...] = ()
    """The comparisons that chose them."""
    half: Half | None = None
    """For cross-fitted linear models: a cheap estimate of what more documents may gain."""


@dataclass(frozen=True)
class _PlanFit:
    """The fit of one plan."""

    plan: Plan
    folded: FoldedData
    run: Run
    keeps: bool = True
    """Whether finished folds are saved in the run's folder."""

    def fit_fold(self, fold: int) -> tuple[TextModel, NDArray[np.bool_]]:
        """The model of a fold, and which labels have a training document there."""
        plan, run = self.plan, self.run
        run.stop.check(run.work.kept)
        part = self.folded.training_part(fold)
        known = np.asarray(part.Y.sum(axis=0)).ravel() > 0
        model = build_model(plan.model, run.trust_remote_code)
        device = device_of(plan.training.device)

        def fit(checkpoints: Checkpoints | None) -> None:
            context = self._context(fold, checkpoints)
            model.fit(part, plan.new_loss, plan.training, context)

        load = partial(model.load, n_labels=len(known), device=device)
        minutes = plan.training.checkpoint_minutes
        work = run.work if self.keeps else Work()
        work.fit_fold(fold, model, fit, load, minutes, run.stop)
        return model, known

    def _context(self, fold: int, checkpoints: Checkpoints | None) -> FitContext:
        plan, run, folded = self.plan, self.run, self.folded
        rows = folded.training_rows(fold)

        def validation(model: TextModel) -> Validation | None:
            if plan.folds > 1 or not plan.training.early_stopping_patience:
                return None
            trained = folded.data.select(np.flatnonzero(folded.fold_of != fold)).stats()
            held_out = folded.held_out_rows(fold)
            truth = folded.data.select(held_out).truth
            score = score_by_name(plan.training.early_stopping_metric, truth, trained)
            return Validation(folded.encode(model, held_out), score)

        def progress(progress: Progress) -> None:
            run.progress(dataclasses.replace(progress, fold=fold + 1, folds=plan.folds))

        def describe(row: int) -> str:
            data, k = folded.data, rows[row]
            return f"{data.ids[k] if data.ids else k} ({data.texts[k][:40]!r})"

        return FitContext(
            encode=lambda model: folded.encode(model, rows),
            validation=validation,
            seeded=partial(seeded, plan, fold),
            seed=plan.random_state,
            checkpoints=checkpoints,
            progress=progress,
            note=run.note,
            stop=run.stop,
            kept=run.work.kept,
            describe=describe,
            label_texts=texts_by_label(folded.data.label_names, plan.label_texts),
        )

    def held_out_scores(self, fold: int, model: TextModel, known: NDArray[np.bool_]) -> Any:
        """Scores of the documents that a fold holds out, masked or absent for unknown labels."""
        rows = self.folded.held_out_rows(fold)
        is_shared = model.encoding_key is not None
        encoded = self.folded.encode(model, rows) if is_shared else None
        texts = self.folded.data.select(rows).texts
        n_scored = int((self.folded.fold_of >= 0).sum())
        ensemble = Ensemble([model], known[None, :], (1,))
        scores = ensemble.compact_scores(texts, n_scored, encoded)
        model.release()
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


@contextmanager
def seeded(plan: Plan, fold: int) -> Iterator[None]:
    """Seed torch for a fold, for this thread only; afterwards the caller's state is restored."""
    device = device_of(plan.training.device)
    gpus, kind = ([], "cuda") if device.type == "cpu" else ([device], device.type)
    with SHARED, torch.random.fork_rng(gpus, device_type=kind):
        torch.manual_seed(plan.random_state + 7919 * fold)
        yield


def fit_and_score(plan: Plan, folded: FoldedData, run: Run, fold: int) -> Any:
    """Fit a fold in the run's folder; return the scores of the documents that it holds out."""
    fit = _PlanFit(plan, folded, run)
    return fit.held_out_scores(fold, *fit.fit_fold(fold))


def fit_plan(
    plan: Plan, folded: FoldedData, run: Run, scores: Iterator[Any] | None = None
) -> Fitted | None:
    """Fit a plan; return None if only one fold was fitted.

    `scores`: the held-out scores of each fold, once other processes have fitted it.
    """
    fit = _PlanFit(plan, folded, run)
    if run.only_fold is not None:
        fit.fit_fold(run.only_fold)
        return None
    models, knowns, pieces = list[TextModel](), list[NDArray[np.bool_]](), list[Any]()

    def fitted() -> Fitted:
        """The models and scores of the folds so far, in the order of the documents."""
        rows = np.concatenate([folded.held_out_rows(fold) for fold in range(len(pieces))])
        order = np.argsort(rows)
        if sp.issparse(pieces[0]):
            scores = sp.vstack(pieces, format="csr")[order]
        else:
            scores = np.ma.concatenate(pieces)[order]  # type: ignore[no-untyped-call]
        sizes = (len(models),)
        ensemble = Ensemble(models, np.stack(knowns), sizes, scale=models[0].scale)
        held_out = folded.data.select(rows[order])
        fold_of = folded.fold_of[rows[order]] if plan.folds > 1 else None
        return Fitted(ensemble, scores, held_out, fold_of, (plan,))

    for fold in range(plan.folds):
        piece = None if scores is None else next(scores)
        model, known = fit.fit_fold(fold)
        pieces.append(fit.held_out_scores(fold, model, known) if piece is None else piece)
        models.append(model)
        knowns.append(known)
        if run.after_fold is not None:
            run.after_fold(fold, fitted())
    whole = fitted()
    return dataclasses.replace(whole, ensemble=whole.ensemble.merged())


def fit_half(plan: Plan, halved: FoldedData, run: Run) -> Any:
    """Scores of the documents of the first fold by a model fitted on half of the others."""
    fit = _PlanFit(plan, halved, dataclasses.replace(run, progress=ignore), keeps=False)
    return fit.held_out_scores(0, *fit.fit_fold(0))


def score_by_name(name: str, Y: sp.csr_matrix, stats: LabelStats) -> Callable[[Floats], float]:
    """A function from logits to a metric for early stopping (higher is better).

    Each call fits a threshold.
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

    # Fail on an unknown name now rather than after the first epoch.
    score(np.zeros(Y.shape, dtype=np.float32))
    return score
