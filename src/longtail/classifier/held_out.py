"""What the held-out documents decide: the thresholds, and the figures of the model card."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.classifier.crossfit import Fitted, Trial
from longtail.classifier.ensemble import highest
from longtail.data import TextData
from longtail.evaluation import Scores
from longtail.labels import label_groups
from longtail.metrics import Counts, count
from longtail.thresholds import CrossValidatedF1, Thresholds, cross_validated_score, fit_thresholds

# Pairs of document and label up to which all of them choose thresholds: `auto` takes about 5 s and
# 1 GB for 10 million.
TUNING_PAIRS, ROWS = 10_000_000, 4096


@dataclass(frozen=True)
class Facts:
    """Figures of the training documents, and of the documents held out to choose thresholds."""

    without_labels: int
    """Training documents without any label."""
    most_labels: int
    """The maximum number of labels of a training document."""
    n_validation: int
    """Documents of the validation part that cross-fitting trained on as well."""
    cross_fitted: bool
    """Whether the held-out documents are the training documents, each scored by a model that was
    trained without it; otherwise they are a validation part."""
    held_out: Mapping[str, Scores]
    """`all`, `head`, `medium` and `tail`, at the thresholds chosen on these documents."""
    cross_validated: CrossValidatedF1 | None
    """Cross-validated scores of the thresholds; None if there are too few documents."""
    base_model: str | None = None
    """The pretrained model on the Hugging Face hub, if any."""
    trials: tuple[Trial, ...] = ()
    """The settings that were compared on held-out documents, in this order."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self) | {
            "cross_validated": self.cross_validated and self.cross_validated._asdict(),
            "trials": [trial._asdict() for trial in self.trials],
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Facts:
        """Restore what `to_dict` returned."""
        held_out = {str(name): Scores(**scores) for name, scores in saved["held_out"].items()}
        cross_validated = saved["cross_validated"] and CrossValidatedF1(**saved["cross_validated"])
        trials = tuple(Trial(**trial) for trial in saved["trials"])
        read = {"held_out": held_out, "cross_validated": cross_validated, "trials": trials}
        return cls(**{**saved, **read})


def choose_thresholds(
    data: TextData, fitted: Fitted, params: Mapping[str, Any], base_model: str | None
) -> tuple[Thresholds, Facts]:
    """Choose thresholds as the estimator's parameters say, and evaluate them."""
    # Cross-fitting trains on the validation part too.
    trained = data.stats() if fitted.fold_of is None else fitted.held_out.stats()
    rule = {
        "label_counts": trained.label_counts,
        "method": params["thresholds"],
        "objective": params["objective"],
        "scale": fitted.ensemble.scale,
        "folds": fitted.fold_of,
        "random_state": params["random_state"],
    }
    limits = {name: params[name] for name in ("min_labels", "max_labels")}
    likely = likely_pairs(fitted)
    thresholds = fit_thresholds(likely.scores, likely.held_out.truth, **rule, **limits)
    # The score of a label without a training document is a constant.
    known = fitted.ensemble.known.any(axis=0)
    thresholds = dataclasses.replace(thresholds, values=np.where(known, thresholds.values, np.inf))
    per_document = np.diff(data.Y.indptr)
    facts = Facts(
        int((per_document == 0).sum()),
        int(per_document.max(initial=0)),
        0 if fitted.fold_of is None else len(fitted.held_out) - len(data),
        fitted.fold_of is not None,
        _by_group(likely, thresholds, data),
        _cross_validated(likely, thresholds, **rule),
        base_model,
        fitted.trials,
    )
    return thresholds, facts


def likely_pairs(fitted: Fitted) -> Fitted:
    """The same with the highest scores of each document only, if there are very many pairs.

    A pair without a score is ignored: its label is removed from the document.
    """
    scores, held_out = fitted.scores, fitted.held_out
    if sp.issparse(scores) or scores.size <= TUNING_PAIRS:
        return fitted
    unknown = np.ma.getmaskarray(scores)
    blocks = []
    for start in range(0, len(held_out), ROWS):
        rows = slice(start, start + ROWS)
        kept = highest(np.where(unknown[rows], -np.inf, np.ma.getdata(scores)[rows])).tocoo()
        known = np.isfinite(kept.data)
        pairs = (kept.data[known], (kept.row[known], kept.col[known]))
        blocks.append(sp.csr_matrix(pairs, kept.shape))
    reduced = dataclasses.replace(held_out, Y=held_out.Y.multiply(~unknown))
    return dataclasses.replace(fitted, scores=sp.vstack(blocks, format="csr"), held_out=reduced)


def _by_group(fitted: Fitted, thresholds: Thresholds, data: TextData) -> dict[str, Scores]:
    counts = count(fitted.held_out.truth, thresholds.apply(fitted.scores))
    n_documents = len(fitted.held_out)
    masks = label_groups(data.stats().label_counts)
    return {"all": Scores.of(counts, n_documents)} | {
        name: Scores.of(Counts(*(part[mask] for part in counts)), n_documents)
        for name, mask in masks.items()
    }


def _cross_validated(
    fitted: Fitted, thresholds: Thresholds, label_counts: Any, method: str, **rule: Any
) -> CrossValidatedF1 | None:
    """Scores of the chosen method; `auto` has computed them already, in order to choose."""
    if method == "auto":
        cross_validated = thresholds.details["cross_validated_f1"].get(thresholds.method)
        return None if cross_validated is None else CrossValidatedF1(*cross_validated)
    if len(fitted.held_out) < 2:
        return None
    truth = fitted.held_out.truth
    return cross_validated_score(fitted.scores, truth, label_counts, method, **rule)
