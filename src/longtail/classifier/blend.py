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

from longtail.classifier.choice import settle
from longtail.classifier.crossfit import Fitted, Half, Run, fit_half, fit_plan
from longtail.classifier.ensemble import Ensemble
from longtail.classifier.folds import FoldedData
from longtail.classifier.label_texts import note_unknown_labels
from longtail.classifier.plan import Plan
from longtail.classifier.weights import blend_weights
from longtail.data import TextData
from longtail.progress import Progress
from longtail.thresholds import Objective

# Documents that half of the training documents must be: figures of fewer are chance.
LEAST_DOCUMENTS = 100


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
    whole = members[0]
    if len(members) > 1 or (as_logits and whole.ensemble.scale == "margin"):
        whole = blend(members)
    return dataclasses.replace(whole, trials=tuple(trials), half=_half(whole, folded, run))


def _half(whole: Fitted, folded: FoldedData, run: Run) -> Half | None:
    """What half of the documents give, which costs half a fold; it decides nothing.

    Only of models that are solved for, as a network would take long.
    """
    if folded.n_folds == 1 or any(plan.model.trains_in_steps for plan in whole.plans):
        return None
    halved = folded.halved(whole.plans[0].random_state)
    n_documents = int((halved.fold_of > 0).sum())
    if n_documents < LEAST_DOCUMENTS:
        return None
    run.progress(Progress("comparing with half of the documents"))
    scores = [fit_half(plan, halved, run) for plan in whole.plans]
    ensemble = whole.ensemble
    return Half(_weighted_sum(scores, ensemble.weights, ensemble.intercept), n_documents)


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
    weights, intercept = blend_weights(scores, first.held_out.truth)
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
