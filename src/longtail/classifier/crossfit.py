"""`fit_plan`: one model, or cross-fitting, where every training document is scored by a model that
was trained without it. Thresholds chosen on such scores see every rare label, and no document that
was memorised.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from longtail.classifier.ensemble import Ensemble
from longtail.classifier.label_texts import add_cooccurring, label_documents
from longtail.classifier.plan import Plan
from longtail.classifier.stopping import score_by_name
from longtail.classifier.work import Work
from longtail.corpora.download import cache_folder
from longtail.data import TextData
from longtail.data.splits import assign_stratified
from longtail.errors import InputError, LongtailError
from longtail.models import build_model
from longtail.models.base import FitContext, TextModel
from longtail.progress import OnProgress, Progress, ignore
from longtail.training.devices import device_of
from longtail.training.encoded import IntArray
from longtail.training.interrupt import NEVER, Stop
from longtail.training.loop import Validation

# Characters from which tokens are cached: fewer are tokenized in a second or two.
CACHED_CHARACTERS = 2_000_000
# Beyond any meaningful logit.
MAX_SCORE = 1e9


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
    tuning: TextData
    """The documents of the scores."""
    fold_of: NDArray[np.int64] | None
    """The fold of each of them, if the models were cross-fitted."""


@dataclass
class _Shared:
    """What all folds of a fit share."""

    plan: Plan
    data: TextData
    n_documents: int
    """Rows of `data` after them are texts of labels: every fold trains on them, none is scored."""
    run: Run
    encoded: Any = None

    def encode(self, model: TextModel, rows: IntArray) -> Any:
        """Encode some of the documents, all of them once if all folds share the encoding."""
        if not model.shares_encoding:
            return model.encode(self.data.select(rows).texts)
        if self.encoded is None:
            texts = self.data.texts
            is_large = sum(map(len, texts)) >= CACHED_CHARACTERS
            cache: Path | None = cache_folder() / "tokens" if is_large else None
            self.encoded = model.encode(texts, cache)
        return self.encoded.select(rows)

    def describe(self, row: int) -> str:
        name = row if self.data.ids is None else self.data.ids[row]
        return f"{name} ({self.data.texts[row][:40]!r})"


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
    n_documents = len(data)
    if plan.label_texts is not None:
        training = data if plan.folds > 1 else data[:n_train]
        data = TextData.concat([data, label_documents(training, plan.label_texts)])
    shared = _Shared(plan, data, n_documents, run)
    if plan.folds > 1:
        return _cross_fit(shared)
    if run.only_fold is not None:
        raise InputError("folds=1 has no fold to fit alone. Use folds=2 or more.")
    if n_train == 0 or n_train == n_documents:
        raise InputError(
            "folds=1 needs documents to train on and a validation part to choose thresholds on, "
            f"got {n_train} and {n_documents - n_train} documents."
        )
    rows, held_out = np.arange(n_train), np.arange(n_train, n_documents)
    model, known = _fit_fold(shared, 0, rows, held_out)
    ensemble = Ensemble([model], known[None, :])
    scores = _held_out_scores(shared, model, known, held_out, len(held_out))
    return Fitted(ensemble, scores, data.select(held_out), None)


def _cross_fit(shared: _Shared) -> Fitted | None:
    n_folds, only = shared.plan.folds, shared.run.only_fold
    data = shared.data[: shared.n_documents]
    if n_folds > len(data):
        raise InputError(f"cannot make {n_folds} folds of {len(data)} documents. Use fewer folds.")
    if only is not None and not 0 <= only < n_folds:
        raise InputError(f"expected a fold from 0 to {n_folds - 1}, got {only}.")
    fractions = [1 / n_folds] * n_folds
    fold_of = assign_stratified(data.Y, fractions, shared.plan.random_state, first_is_train=False)
    models, knowns, pieces = [], [], []
    for fold in range(n_folds) if only is None else [only]:
        rows, held_out = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
        model, known = _fit_fold(shared, fold, rows, held_out)
        if only is None:
            pieces.append(_held_out_scores(shared, model, known, held_out, len(data)))
            models.append(model)
            knowns.append(known)
    if only is not None:
        return None
    # Pieces are in the order of the folds; this restores the order of the documents.
    order = np.argsort(np.argsort(fold_of, kind="stable"), kind="stable")
    if sp.issparse(pieces[0]):
        scores = sp.vstack(pieces, format="csr")[order]
    else:
        scores = np.ma.concatenate(pieces)[order]  # type: ignore[no-untyped-call]
    return Fitted(Ensemble(models, np.stack(knowns)), scores, data, fold_of)


def _fit_fold(
    shared: _Shared, fold: int, rows: IntArray, held_out: IntArray
) -> tuple[TextModel, NDArray[np.bool_]]:
    """The model of a fold, and the labels that have a training document."""
    plan, run = shared.plan, shared.run
    run.stop.check(run.work.kept)
    n_documents = len(rows)
    rows = np.concatenate([rows, np.arange(shared.n_documents, len(shared.data))])
    part = add_cooccurring(shared.data.select(rows), n_documents)
    known = np.asarray(part.Y.sum(axis=0)).ravel() > 0
    model = build_model(plan.model, run.trust_remote_code)
    device = device_of(plan.training.device)
    with run.work.claimed(fold, run.stop):
        if not run.work.load_finished(fold, model, len(known), device):
            gpus, kind = ([], "cuda") if device.type == "cpu" else ([device], device.type)
            # The caller's random state is not changed.
            with torch.random.fork_rng(gpus, device_type=kind):
                torch.manual_seed(plan.random_state + 7919 * fold)
                context = _context(shared, fold, rows, held_out)
                model.fit(part, plan.new_loss, plan.training, context)
            run.work.finish(fold, model)
    return model, known


def _context(shared: _Shared, fold: int, rows: IntArray, held_out: IntArray) -> FitContext:
    plan, run = shared.plan, shared.run

    def validation(model: TextModel) -> Validation | None:
        if plan.folds > 1 or not plan.training.early_stopping_patience:
            return None
        trained = shared.data.select(rows[rows < shared.n_documents])
        Y = shared.data.select(held_out).Y
        score = score_by_name(plan.training.early_stopping_metric, Y, trained.stats())
        return Validation(shared.encode(model, held_out), score)

    def progress(progress: Progress) -> None:
        run.progress(dataclasses.replace(progress, fold=fold + 1, folds=plan.folds))

    return FitContext(
        encode=lambda model: shared.encode(model, rows),
        validation=validation,
        seed=plan.random_state,
        checkpoints=run.work.checkpoints(fold, plan.training.checkpoint_minutes),
        progress=progress,
        note=run.note,
        stop=run.stop,
        kept=run.work.kept,
        describe=lambda row: shared.describe(int(rows[row])),
    )


def _held_out_scores(
    shared: _Shared, model: TextModel, known: NDArray[np.bool_], held_out: IntArray, of: int
) -> Any:
    """Scores of documents that a model was not trained on; none for labels that it does not know.

    `of`: the number of all documents.
    """
    single = Ensemble([model], known[None, :])
    encoded = shared.encode(model, held_out) if model.shares_encoding else None
    scores = single.compact_scores(shared.data.select(held_out).texts, of, encoded)
    values = scores.data if sp.issparse(scores) else scores
    # Also true for NaN.
    if values.size and not np.abs(values).max() < MAX_SCORE:
        worst = values.flat[np.abs(values).argmax()]
        raise LongtailError(
            f"the trained model gives scores such as {worst:.3g}: the training diverged. Lower "
            "the learning rate, then start over (--overwrite)."
        )
    if sp.issparse(scores):
        return scores
    return np.ma.array(scores, mask=np.broadcast_to(~known, scores.shape))
