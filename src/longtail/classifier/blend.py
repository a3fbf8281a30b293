"""`fit_plans`: one model, or several on the same folds, blended into one.

TF-IDF and an encoder make different errors. The weight of each is fitted on documents that it was
not trained on, like the thresholds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from longtail.classifier.choice import settle
from longtail.classifier.crossfit import Fitted, Run, fit_plan
from longtail.classifier.ensemble import Ensemble
from longtail.classifier.folds import FoldedData
from longtail.classifier.label_texts import note_unknown_labels
from longtail.classifier.plan import Plan
from longtail.data import TextData
from longtail.progress import Progress
from longtail.thresholds import Objective

Floats = NDArray[np.float64]
# Pairs of document and label that the weights are fitted on: there are few weights.
FITTING_PAIRS = 4_000_000
# Keeps weights finite if models are never wrong; negligible otherwise.
RIDGE = 2e-4


def fit_plans(
    plans: Sequence[Plan],
    data: TextData,
    validation: TextData | None = None,
    run: Run | None = None,
    *,
    objective: Objective = "mean",
    as_logits: bool = True,
) -> Fitted | None:
    """Fit all plans on the same folds; None if only one fold was fitted.

    Args:
        validation: with one fold, held out to choose thresholds on; with several, used like all
            other documents.
        as_logits: whether margins become logits, by a logistic regression on held-out documents.
    """
    run = run or Run()
    note_unknown_labels(data, plans[0].label_texts, run.note)
    folded = FoldedData.split(plans[0], data, validation, run.only_fold)
    fitted, trials = [], []
    for number, plan in enumerate(plans):
        one = _run_of(run, number, len(plans))
        may_blend = len(plans) == 1 and plan.folds > 1
        settled, compared = settle(plan, folded, objective, one, may_blend=may_blend)
        trials += compared
        for member, each in enumerate(settled):
            part = one if len(settled) == 1 else _run_of(one, member, len(settled))
            fitted.append(fit_plan(each, folded, part))
    members = [item for item in fitted if item is not None]
    if not members:
        return None
    if len(members) > 1 or (as_logits and members[0].ensemble.scale == "margin"):
        members = [blend(members)]
    return dataclasses.replace(members[0], trials=tuple(trials))


def _run_of(run: Run, number: int, n_members: int) -> Run:
    """The run of one member, whose progress counts the folds of all."""
    if n_members == 1:
        return run

    def progress(member: Progress) -> None:
        fold, folds = member.fold + number * member.folds, member.folds * n_members
        run.progress(dataclasses.replace(member, fold=fold, folds=folds))

    return dataclasses.replace(run, work=run.work.member(number), progress=progress)


def blend(members: Sequence[Fitted]) -> Fitted:
    """Several models, fitted on the same folds, as one."""
    first = members[0]
    scores = [member.scores for member in members]
    weights, intercept = blend_weights(scores, first.held_out.Y)
    models = [model for member in members for model in member.ensemble.models]
    known = np.concatenate([member.ensemble.known for member in members])
    sizes = tuple(len(member.ensemble.models) for member in members)
    # A weighted sum is a logit, whatever its members' scores are.
    ensemble = Ensemble(models, known, weights, intercept, "logit", sizes)
    blended = _weighted_sum(scores, weights, intercept)
    plans = tuple(plan for member in members for plan in member.plans)
    return dataclasses.replace(first, ensemble=ensemble, scores=blended, plans=plans)


def _weighted_sum(scores: Sequence[Any], weights: Sequence[float], intercept: float) -> Any:
    """The weighted sum of scores, dense or sparse as they are."""
    if not sp.issparse(scores[0]):
        # As in predictions, a label that one member does not know adds a constant. Only a label
        # that no member knows has no score.
        total = sum(w * np.ma.getdata(each) for w, each in zip(weights, scores, strict=True))
        unknown = np.logical_and.reduce([np.ma.getmaskarray(each) for each in scores])
        return np.ma.array(np.asarray(total + intercept, dtype=np.float32), mask=unknown)
    # Each member keeps the highest scores of a document: the others count as 1 below the lowest.
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
    """The weight of each member, at least 0, and the intercept.

    A logistic regression on held-out scores in which all labels have the same weight.
    """
    columns, truth, importance = _fitting_pairs(scores, Y)

    def loss(params: Floats) -> tuple[float, Floats]:
        logits = columns @ params[:-1] + params[-1]
        value = importance @ (np.logaddexp(0, logits) - truth * logits)
        slope = importance * (expit(logits) - truth)
        ridge = RIDGE * np.append(params[:-1], 0.0)
        return float(value + ridge @ params / 2), np.append(columns.T @ slope, slope.sum()) + ridge

    # Scores may have different units, such as the margins of an SVM.
    unit = np.sqrt((columns**2).mean(axis=0)) + 1e-12
    columns /= unit
    start = np.append(np.full(len(scores), 1 / len(scores)), 0.0)
    bounds = [(0.0, None)] * len(scores) + [(None, None)]
    params = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    weights = tuple(float(weight) for weight in params[:-1] / unit)
    if not any(weights):
        # No member is informative: use equal weights.
        weights = tuple(float(share) for share in 1 / (len(scores) * unit))
    return weights, float(params[-1])


def _fitting_pairs(scores: Sequence[Any], Y: sp.csr_matrix) -> tuple[Floats, Floats, Floats]:
    """Pairs that all members have scored: their scores, whether the label applies, the weight."""
    n_documents, n_labels = Y.shape
    n_rows = max(1, min(n_documents, FITTING_PAIRS // max(1, n_labels)))
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
    # The mean over labels of the loss per document that has the label.
    return columns, applies, weight / (weight @ applies or weight.sum() or 1.0)
