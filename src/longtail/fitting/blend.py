"""`fit`: one member, or several of different kinds on the same folds, blended into one.

What a TF-IDF head and an encoder get wrong differs. How much each of them counts is decided by
documents that neither has seen, as the thresholds are.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import minimize

from longtail.data import TextData
from longtail.errors import InputError
from longtail.fitting.crossfit import Fitted, Judge, fit_member
from longtail.fitting.ensemble import Ensemble
from longtail.fitting.label_texts import unknown_labels
from longtail.fitting.plan import Plan
from longtail.fitting.work import Work
from longtail.training import Moment, Progress, Stop
from longtail.training.interrupt import NEVER
from longtail.training.steps import Note

Floats = NDArray[np.float64]
# Pairs of document and label that decide the weights: there are as many weights as members.
DECIDING_PAIRS = 4_000_000
# Keeps weights finite where members are never wrong; felt nowhere else.
RIDGE = 2e-4


def fit(
    plans: Plan | Sequence[Plan],
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
    """Fit what the plans say, one for each member; all have the same folds and seed.

    Args:
        data: to train on. validation: with one fold, held out to choose thresholds on; with
            several, trained on and held out in turn like all others.
        judge: with one fold and patience, what the validation part's logits are worth.
        work: keeps states and finished folds.
        only: fit this fold alone, as one of several processes; the result is None.
    """
    plans = (plans,) if isinstance(plans, Plan) else tuple(plans)
    work = work or Work(None)
    if len({(plan.folds, plan.training.seed) for plan in plans}) != 1:
        raise InputError("all members must have the same folds and the same seed.")
    for strange in dict.fromkeys(unknown_labels(data, plan.label_texts) for plan in plans):
        if strange is not None:
            note(strange)
    members: list[Fitted] = []
    for number, plan in enumerate(plans):
        own = work if len(plans) == 1 else work.member(number)
        told = progress and _of_member(progress, number, len(plans))
        found = fit_member(
            plan, data, validation,
            judge=judge, work=own, only=only, progress=told, note=note, stop=stop,
            trust_remote_code=trust_remote_code,
        )  # fmt: skip
        if found is not None:
            members.append(found)
    if only is not None:
        return None
    return members[0] if len(members) == 1 else blend(members)


def _of_member(progress: Progress, number: int, members: int) -> Progress:
    """The folds of all members in one row."""

    def told(moment: Moment) -> None:
        fold, folds = moment.fold + number * moment.folds, moment.folds * members
        progress(dataclasses.replace(moment, fold=fold, folds=folds))

    return told


def blend(members: Sequence[Fitted]) -> Fitted:
    """Several members, fitted on the same folds, as one."""
    first = members[0]
    weights, intercept = blend_weights([member.scores for member in members], first.tuning.Y)
    ensembles = [member.ensemble for member in members]
    scores = _summed([member.scores for member in members], weights, intercept)
    ensemble = Ensemble(
        [model for each in ensembles for model in each.models],
        np.concatenate([each.known for each in ensembles]),
        ensembles[0].device,
        weights,
        intercept,
    )
    return Fitted(ensemble, scores, first.tuning, first.fold_of)


def _summed(scores: Sequence[Any], weights: Sequence[float], intercept: float) -> Any:
    """The weighted sum of the members' scores, in the form in which they come."""
    if not sp.issparse(scores[0]):
        # As in predictions: who does not know a label says nothing of it, a constant. Only what
        # nobody knows has no score.
        total = sum(w * np.ma.getdata(each) for w, each in zip(weights, scores, strict=True))
        unknown = np.logical_and.reduce([np.ma.getmaskarray(each) for each in scores])
        return np.ma.array(np.asarray(total + intercept, dtype=np.float32), mask=unknown)
    # Of each document a member keeps its highest scores: what it left out counts as 1 below them.
    base = np.full(scores[0].shape[0], intercept)
    total = sp.csr_matrix(scores[0].shape)
    for weight, each in zip(weights, scores, strict=True):
        rows = np.repeat(np.arange(each.shape[0]), np.diff(each.indptr))
        lowest = np.full(each.shape[0], np.inf)
        np.minimum.at(lowest, rows, each.data)
        lowest = np.where(np.isfinite(lowest), lowest, 0.0) - 1
        above = sp.csr_matrix((each.data - lowest[rows], each.indices, each.indptr), each.shape)
        total, base = total + weight * above, base + weight * lowest
    total = sp.csr_matrix(total)
    total.data += np.repeat(base, np.diff(total.indptr))
    return total.astype(np.float32)


def blend_weights(scores: Sequence[Any], Y: sp.csr_matrix) -> tuple[tuple[float, ...], float]:
    """How much each member counts, at least 0, and what is added to the sum.

    A logistic regression on held-out scores in which every label counts alike, however rare.
    """
    columns, truth, importance = _deciding(scores, Y)

    def loss(given: Floats) -> tuple[float, Floats]:
        logits = columns @ given[:-1] + given[-1]
        value = importance @ (np.logaddexp(0, logits) - truth * logits)
        slope = importance * (1 / (1 + np.exp(-np.clip(logits, -60, 60))) - truth)
        ridge = RIDGE * np.append(given[:-1], 0.0)
        return float(value + ridge @ given / 2), np.append(columns.T @ slope, slope.sum()) + ridge

    # Members may speak in units of their own, as the margins of an svm do.
    unit = np.sqrt((columns**2).mean(axis=0)) + 1e-12
    columns /= unit
    start = np.append(np.full(len(scores), 1 / len(scores)), 0.0)
    bounds = [(0.0, None)] * len(scores) + [(None, None)]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    weights = tuple(float(weight) for weight in found[:-1] / unit)
    if not any(weights):
        # Nothing that any of them says is of use: none is better than another.
        weights = tuple(float(share) for share in 1 / (len(scores) * unit))
    return weights, float(found[-1])


def _deciding(scores: Sequence[Any], Y: sp.csr_matrix) -> tuple[Floats, Floats, Floats]:
    """Pairs that every member has scored: their scores, whether the label applies, the weight."""
    n_documents, n_labels = Y.shape
    n_rows = max(1, min(n_documents, DECIDING_PAIRS // max(1, n_labels)))
    rows = np.sort(np.random.default_rng(0).permutation(n_documents)[:n_rows])
    scored = np.ones((n_rows, n_labels), dtype=np.bool_)
    dense = []
    for each in scores:
        part = each[rows]
        if sp.issparse(part):
            there = sp.csr_matrix((np.ones(part.nnz), part.indices, part.indptr), part.shape)
            scored &= there.toarray() > 0
            dense.append(part.toarray())
        else:
            scored &= ~np.ma.getmaskarray(part)
            dense.append(np.ma.getdata(part))
    truth = Y[rows].toarray()
    counts = np.maximum(1.0, np.asarray(Y.sum(axis=0)).ravel())
    weight = np.broadcast_to(1 / counts, truth.shape)[scored]
    columns = np.stack([each[scored] for each in dense], axis=1).astype(np.float64)
    applies = truth[scored].astype(np.float64)
    # As a mean over labels of what the loss of each is per document that has it.
    return columns, applies, weight / (weight @ applies or weight.sum() or 1.0)
