"""`fit_member`: one model, or cross-fitting, where every training document gets a score of a model
that has not seen it. Thresholds chosen on such scores see every rare label and nothing learned by
heart.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from longtail.corpora.download import cache_folder
from longtail.data import TextData
from longtail.data.splits import assign_stratified
from longtail.errors import InputError, LongtailError
from longtail.fitting.ensemble import Ensemble, settle
from longtail.fitting.label_texts import label_documents, with_companions
from longtail.fitting.plan import Plan
from longtail.fitting.work import Work
from longtail.models import NetworkModel, TextModel
from longtail.models.bag import BagModel
from longtail.models.base import Encoded, IntArray, SelfFitting
from longtail.training import Moment, Progress, Stop, Validation, train
from longtail.training.checkpoints import Checkpoints
from longtail.training.devices import device_of
from longtail.training.interrupt import NEVER
from longtail.training.linear import solve_linear
from longtail.training.steps import Note

Judge = Callable[[NDArray[np.float32]], float]
"""What logits of the validation part are worth: for early stopping."""
# Characters from which tokens are kept for a later run: fewer are read in a second or two.
CACHED_CHARACTERS = 2_000_000
# Far beyond any logit that means something.
LARGEST_SCORE = 1e9


@dataclass(frozen=True, eq=False)
class Fitted:
    """Models, and scores of documents that they had not seen, to choose thresholds on."""

    ensemble: Ensemble
    scores: Any
    """Documents x labels: masked where the label had no training document, or CSR where large."""
    tuning: TextData
    """The documents of these scores."""
    fold_of: NDArray[np.int64] | None
    """The fold of each of them, where the models were cross-fitted."""


@dataclass
class _Setting:
    """What all folds of a fit share."""

    plan: Plan
    data: TextData
    always: IntArray
    """Rows of `data` that every model trains on and none is judged by: texts of labels."""
    work: Work
    progress: Progress | None
    note: Note
    stop: Stop
    trust_remote_code: bool = False
    encoded: Any = None
    """All documents made ready once, for models to which that is the same in every fold."""

    def encode(self, model: NetworkModel, rows: IntArray) -> Encoded:
        if not model.encodes_alike:
            return model.encode(self.data.select(rows).texts)
        if self.encoded is None:
            self.encoded = _encode_cached(model, self.data.texts)
        return self.encoded.select(rows)  # type: ignore[no-any-return]


def fit_member(
    plan: Plan,
    data: TextData,
    validation: TextData | None = None,
    *,
    judge: Judge | None = None,
    work: Work | None = None,
    only: int | None = None,
    progress: Progress | None = None,
    note: Note = warnings.warn,
    stop: Stop = NEVER,
    trust_remote_code: bool = False,
) -> Fitted | None:
    """Fit what one plan says; for the arguments see `fit`."""
    n_train = len(data)
    if validation is not None:
        data = TextData.concat([data, validation.onto(data.label_names)[0]])
    n_documents, training = len(data), data if plan.folds > 1 else data[:n_train]
    if plan.label_texts is not None:
        data = TextData.concat([data, label_documents(training, plan.label_texts)])
    always = np.arange(n_documents, len(data))
    shared = _Setting(
        plan, data, always, work or Work(None), progress, note, stop, trust_remote_code
    )
    if plan.folds > 1:
        return _cross_fit(shared, only)
    if only is not None:
        raise InputError("there is one fold only, so none to fit alone. Use folds=2 or more.")
    if n_train == 0 or n_train == n_documents:
        raise InputError(
            "with folds=1 documents to train on and a validation part to choose thresholds on are "
            f"needed, got {n_train} and {n_documents - n_train} documents."
        )
    train_rows, held = np.arange(n_train), np.arange(n_train, n_documents)
    model, known = _fit_fold(shared, 0, train_rows, held, judge)
    ensemble = Ensemble([model], known[None, :], plan.training.device)
    return Fitted(ensemble, _score(shared, model, known, held, len(held)), data.select(held), None)


def _cross_fit(shared: _Setting, only: int | None) -> Fitted | None:
    data, n_folds = shared.data, shared.plan.folds
    if len(shared.always):
        data = data[: shared.always[0]]
    if n_folds > len(data):
        raise InputError(f"cannot make {n_folds} folds of {len(data)} documents. Use fewer folds.")
    if only is not None and not 0 <= only < n_folds:
        raise InputError(f"expected a fold from 0 to {n_folds - 1}, got {only}.")
    shares = [1 / n_folds] * n_folds
    fold_of = assign_stratified(data.Y, shares, shared.plan.training.seed, first_is_train=False)
    models, knowns, pieces = [], [], []
    for fold in range(n_folds) if only is None else [only]:
        rest, own = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
        model, known = _fit_fold(shared, fold, rest, own, None)
        if only is None:
            pieces.append(_score(shared, model, known, own, len(data)))
            models.append(model)
            knowns.append(known)
    if only is not None:
        return None
    # Pieces come fold by fold; this is where each document has gone to.
    back = np.argsort(np.argsort(fold_of, kind="stable"), kind="stable")
    if sp.issparse(pieces[0]):
        scores = sp.vstack(pieces, format="csr")[back]
    else:
        scores = np.ma.concatenate(pieces)[back]  # type: ignore[no-untyped-call]
    ensemble = Ensemble(models, np.stack(knowns), shared.plan.training.device)
    return Fitted(ensemble, scores, data, fold_of)


def _fit_fold(
    shared: _Setting, fold: int, rows: IntArray, held: IntArray, judge: Judge | None
) -> tuple[TextModel, NDArray[np.bool_]]:
    """The model of a fold, and the labels that it knows."""
    shared.stop.check(shared.work.kept)
    n_documents, rows = len(rows), np.concatenate([rows, shared.always])
    part = with_companions(shared.data.select(rows), n_documents)
    known = np.asarray(part.Y.sum(axis=0)).ravel() > 0
    model = shared.plan.new_model(shared.trust_remote_code)
    with shared.work.claimed(fold, shared.stop):
        if not shared.work.finished(fold, model, len(known)):
            device = device_of(shared.plan.training.device)
            gpus, kind = ([], "cuda") if device.type == "cpu" else ([device], device.type)
            # The caller's own random numbers go on as if nothing had happened.
            with torch.random.fork_rng(gpus, device_type=kind):
                torch.manual_seed(shared.plan.training.seed + 7919 * fold)
                _train(shared, fold, model, part, rows, held, judge)
            shared.work.finish(fold, model)
    settle(model, shared.plan.training.device)
    return model, known


def _score(
    shared: _Setting, model: TextModel, known: NDArray[np.bool_], held: IntArray, of: int
) -> Any:
    """A model's scores of documents that it has not seen; none where it does not know the label."""
    single = Ensemble([model], known[None, :], shared.plan.training.device)
    encoded = shared.encode(model, held) if isinstance(model, NetworkModel) else None
    scores = single.compact_scores(shared.data.select(held).texts, of, encoded)
    values = scores.data if sp.issparse(scores) else scores
    # Written so that NaN is caught too.
    if values.size and not np.abs(values).max() < LARGEST_SCORE:
        worst = values.flat[np.abs(values).argmax()]
        raise LongtailError(
            f"the trained model gives scores such as {worst:.3g}: the training diverged. Lower "
            "the learning rate, then begin anew (--overwrite)."
        )
    if sp.issparse(scores):
        return scores
    return np.ma.array(scores, mask=np.broadcast_to(~known, scores.shape))


def _train(
    shared: _Setting,
    fold: int,
    model: TextModel,
    part: TextData,
    rows: IntArray,
    held: IntArray,
    judge: Judge | None,
) -> None:
    plan = shared.plan

    def progress(moment: Moment) -> None:
        if shared.progress is not None:
            shared.progress(dataclasses.replace(moment, fold=fold + 1, folds=plan.folds))

    def describe(row: int) -> str:
        name = rows[row] if part.ids is None else part.ids[row]
        return f"{name} ({part.texts[row][:40]!r})"

    if isinstance(model, SelfFitting):
        model.fit(part.texts, part.Y)
        return
    assert isinstance(model, NetworkModel)
    model.prepare(part.texts, part.label_names)
    checkpoints = shared.work.checkpoints(fold, plan.training.checkpoint_minutes)
    if isinstance(model, BagModel) and model.linear:
        _solve(shared, model, part, checkpoints, progress)
        return
    validation = None
    if judge is not None and plan.training.patience:
        validation = Validation(shared.encode(model, held), judge)
    train(
        model,
        shared.encode(model, rows),
        part.Y,
        plan.new_loss(part.stats()),
        plan.training,
        validation=validation,
        checkpoints=checkpoints,
        progress=progress,
        note=shared.note,
        stop=shared.stop,
        describe=describe,
    )


def _solve(
    shared: _Setting,
    model: BagModel,
    part: TextData,
    checkpoints: Checkpoints | None,
    progress: Progress,
) -> None:
    """The linear head of a bag, to convergence."""

    kept = shared.work.kept
    if checkpoints is not None:
        kept = "Finished labels are kept: go on with --resume."

    def told(done: int, total: int, loss: float) -> None:
        progress(Moment(done, total, 0, 0, loss, 0.0))
        shared.stop.check(kept)

    loss = shared.plan.new_loss(part.stats(), reduction="sum")
    features = model.encode(part.texts).matrix
    if checkpoints is not None:
        # The chunks, and then the model made of them.
        checkpoints.check_space(4 * features.shape[1] * len(part.label_names))
    found = solve_linear(
        features,
        part.Y,
        loss,
        model.settings.C,
        informed=model.settings.informed,
        device=device_of(shared.plan.training.device),
        progress=told,
        chunks=checkpoints,
    )
    model.set_linear(found.weight, found.bias)


def _encode_cached(model: NetworkModel, texts: list[str]) -> Encoded:
    """The texts made ready; the tokens of many are kept for the next training."""
    if not hasattr(model, "cache") or sum(map(len, texts)) < CACHED_CHARACTERS:
        return model.encode(texts)
    model.cache = cache_folder() / "tokens"
    try:
        return model.encode(texts)
    finally:
        # What is predicted later is not looked at twice.
        model.cache = None
