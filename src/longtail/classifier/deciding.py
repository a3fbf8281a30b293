"""What the held-out documents decide: the thresholds, and what those are worth."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail.classifier.facts import Facts, facts_of
from longtail.data import TextData
from longtail.evaluation import Evaluation, evaluate
from longtail.fitting import Fitted, Plan
from longtail.fitting.ensemble import highest
from longtail.labels import LabelStats
from longtail.thresholds import Thresholds, fit_thresholds

# Pairs of document and label up to which they are evaluated in full: 100 million took 40 s.
EVALUATED_PAIRS = 20_000_000
# And up to which all of them choose thresholds: 39 million took `auto` more than ten minutes, the
# highest 200 of each document, 2 million in all, took it 62 s.
DECIDING_PAIRS, ROWS = 5_000_000, 4096


class Decided(NamedTuple):
    """All that is known after a fit, beside the models."""

    stats: LabelStats
    thresholds: Thresholds
    held_out: Evaluation | None
    """None where there are too many documents and labels; `facts` has the main figures."""
    facts: Facts


def decide(
    plans: Sequence[Plan], data: TextData, fitted: Fitted, arguments: Mapping[str, Any]
) -> Decided:
    """Choose thresholds by the arguments of the estimator, and judge them."""
    stats = data.stats()
    # Cross-fitting trains on the validation part too.
    trained = stats if fitted.fold_of is None else fitted.tuning.stats()
    rule = {
        "label_counts": trained.label_counts,
        "method": arguments["thresholds"],
        "objective": arguments["objective"],
        "scale": fitted.ensemble.scale,
        "folds": fitted.fold_of,
        "seed": arguments["seed"],
    }
    deciding = likely_pairs(fitted)
    thresholds = fit_thresholds(
        deciding.scores,
        deciding.tuning.Y,
        top_k=arguments["max_labels"],
        at_least_one=arguments["at_least_one"],
        **rule,
    )
    # The score of a label without a training document is a constant that says nothing.
    known = fitted.ensemble.known.any(axis=0)
    limits = np.where(known, thresholds.values, np.inf)
    thresholds = dataclasses.replace(thresholds, values=limits)
    held_out = None
    if len(fitted.tuning) * stats.n_labels <= EVALUATED_PAIRS:
        held_out = evaluate(fitted.tuning.Y, fitted.scores, thresholds, stats, n_resamples=0)
    facts = facts_of(plans, data, deciding, thresholds, **rule)
    return Decided(stats, thresholds, held_out, facts)


def likely_pairs(fitted: Fitted) -> Fitted:
    """The same with the highest scores of each document only, where there are very many pairs.

    A pair without a score counts for nothing: its label is taken from the document.
    """
    scores, tuning = fitted.scores, fitted.tuning
    if sp.issparse(scores) or scores.size <= DECIDING_PAIRS:
        return fitted
    unknown = np.ma.getmaskarray(scores)
    blocks = []
    for start in range(0, len(tuning), ROWS):
        rows = slice(start, start + ROWS)
        kept = highest(np.where(unknown[rows], -np.inf, np.ma.getdata(scores)[rows]))
        known = np.isfinite(kept.data)
        counts = np.add.reduceat(known, kept.indptr[:-1]) if kept.nnz else np.zeros(kept.shape[0])
        starts = np.concatenate([[0], np.cumsum(counts)])
        blocks.append(sp.csr_matrix((kept.data[known], kept.indices[known], starts), kept.shape))
    labels = tuning.Y.tocoo()
    seen = ~unknown[labels.row, labels.col]
    pairs = (labels.data[seen], (labels.row[seen], labels.col[seen]))
    judged = dataclasses.replace(tuning, Y=sp.csr_matrix(pairs, tuning.Y.shape))
    return dataclasses.replace(fitted, scores=sp.vstack(blocks, format="csr"), tuning=judged)
