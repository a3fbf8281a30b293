"""`fit_plans`: split into folds, and fit one model, or a blend of several on the same folds.

TF-IDF and an encoder make different errors. Like the thresholds, the weight of each is fitted on
documents that it was not trained on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.classifier.choice import settle
from longtail.classifier.crossfit import Fitted, Half, Run, Trial, fit_half
from longtail.classifier.ensemble import Ensemble
from longtail.classifier.folds import FoldedData
from longtail.classifier.label_texts import note_unknown_labels
from longtail.classifier.plan import Plan
from longtail.classifier.spread import fit_members
from longtail.classifier.weights import blend_weights
from longtail.data import TextData
from longtail.metrics.blocks import rows_of
from longtail.progress import Progress
from longtail.thresholds import Objective

# Minimum number of documents in half of the training documents; with fewer, F1 is too noisy.
MIN_DOCUMENTS = 100


def fit_plans(
    plans: Sequence[Plan],
    data: TextData,
    validation: TextData | None = None,
    run: Run | None = None,
    *,
    objective: Objective = "mean",
    as_logits: bool = True,
) -> Fitted | None:
    """Fit all plans on the same folds; return None if only one fold was fitted.

    Args:
        validation: with one fold, held out to choose thresholds on; with several, used like the
            other documents.
        as_logits: convert margins to logits, by a logistic regression on held-out documents.
    """
    run = run or Run()
    note_unknown_labels(data, plans[0].label_texts, run.note)
    folded = FoldedData.split(plans[0], data, validation, run.only_fold)
    whole = fit_folded(plans, folded, run, objective=objective, as_logits=as_logits)
    if whole is None:
        return None
    return dataclasses.replace(whole, half=_half(whole, folded, run))


def fit_folded(
    plans: Sequence[Plan],
    folded: FoldedData,
    run: Run,
    *,
    objective: Objective,
    as_logits: bool = True,
) -> Fitted | None:
    """Fit all plans on given folds; arguments as for `fit_plans`."""
    trials = list[Trial]()

    def members_of_plans() -> Iterator[tuple[Plan, Run]]:
        for number, plan in enumerate(plans):
            plan_run = _member_run(run, number, len(plans))
            may_blend = len(plans) == 1 and plan.folds > 1
            settled, compared = settle(plan, folded, objective, plan_run, may_blend=may_blend)
            trials.extend(compared)
            for member, settled_plan in enumerate(settled):
                yield settled_plan, _member_run(plan_run, member, len(settled))

    fitted = fit_members(members_of_plans(), folded, run)
    members = [item for item in fitted if item is not None]
    if not members:
        return None
    whole = members[0]
    if len(members) > 1 or (as_logits and whole.ensemble.scale == "margin"):
        whole = blend(members)
    return dataclasses.replace(whole, trials=tuple(trials))


def _half(whole: Fitted, folded: FoldedData, run: Run) -> Half | None:
    """Fit half of the documents of a fold, to report what more data may gain.

    Only for models that are solved, as training a network takes too long.
    """
    if folded.n_folds == 1 or any(plan.model.trains_in_steps for plan in whole.plans):
        return None
    halved = folded.halved(whole.plans[0].random_state)
    n_documents = int((halved.fold_of > 0).sum())
    if n_documents < MIN_DOCUMENTS:
        return None
    run.progress(Progress("comparing with half of the documents"))
    scores = [fit_half(plan, halved, run) for plan in whole.plans]
    ensemble = whole.ensemble
    return Half(_weighted_sum(scores, ensemble.weights, ensemble.intercept), n_documents)


def _member_run(run: Run, number: int, n_members: int) -> Run:
    """The run of one member; its progress counts the folds of all members."""
    if n_members == 1:
        return run

    def progress(member: Progress) -> None:
        fold, folds = member.fold + number * member.folds, member.folds * n_members
        run.progress(dataclasses.replace(member, fold=fold, folds=folds))

    return dataclasses.replace(run, work=run.work.member(number), progress=progress)


def blend(members: Sequence[Fitted]) -> Fitted:
    """Blend models that were fitted on the same folds."""
    first = members[0]
    scores = [member.scores for member in members]
    weights, intercept = blend_weights(scores, first.held_out.truth)
    models = [model for member in members for model in member.ensemble.models]
    known = np.concatenate([member.ensemble.known for member in members])
    sizes = tuple(len(member.ensemble.models) for member in members)
    # The blend is a logistic regression: its scores are logits, even if its members' are margins.
    ensemble = Ensemble(models, known, sizes, weights, intercept, "logit")
    blended = _weighted_sum(scores, weights, intercept)
    plans = tuple(plan for member in members for plan in member.plans)
    return dataclasses.replace(first, ensemble=ensemble, scores=blended, plans=plans)


def _weighted_sum(scores: Sequence[Any], weights: Sequence[float], intercept: float) -> Any:
    """The weighted sum of dense or of sparse scores."""
    if not sp.issparse(scores[0]):
        # As in predictions, the constant score of a label that a member does not know counts. Only
        # labels that no member knows are masked.
        total = sum(w * np.ma.getdata(part) for w, part in zip(weights, scores, strict=True))
        unknown = np.logical_and.reduce([np.ma.getmaskarray(part) for part in scores])
        return np.ma.array(np.asarray(total + intercept, dtype=np.float32), mask=unknown)
    # Each member keeps the highest scores of a document; missing ones count as 1 below the lowest.
    base = np.full(scores[0].shape[0], intercept)
    total = sp.csr_matrix(scores[0].shape)
    for weight, part in zip(weights, scores, strict=True):
        rows = rows_of(part)
        lowest = np.full(part.shape[0], np.inf)
        np.minimum.at(lowest, rows, part.data)
        lowest = np.where(np.isfinite(lowest), lowest, 0.0) - 1
        above = sp.csr_matrix((part.data - lowest[rows], part.indices, part.indptr), part.shape)
        total, base = total + weight * above, base + weight * lowest
    total = sp.csr_matrix(total)
    total.data += np.repeat(base, np.diff(total.indptr))
    return total.astype(np.float32)
