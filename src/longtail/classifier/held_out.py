"""Thresholds chosen on the held-out documents, and the figures of the model card."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.classifier.crossfit import Fitted, Trial
from longtail.classifier.ensemble import KEPT_LABELS
from longtail.classifier.kept_pairs import highest
from longtail.data import TextData
from longtail.evaluation import Scores
from longtail.evaluation.results import f1_of_groups
from longtail.labels import LabelStats, label_groups
from longtail.metrics import Counts, count, precision_recall_f1
from longtail.report.table import plural
from longtail.thresholds import (
    CrossValidatedF1,
    Thresholds,
    cross_validated_decisions,
    fit_thresholds,
)
from longtail.thresholds.scales import Scale

# A label with fewer training documents has "few"; example labels that are named.
FEW, N_EXAMPLES = 10, 3
# Maximum document-label pairs to choose thresholds on: `auto` takes about 5 s and 1 GB for 10
# million. ROWS: documents processed at a time.
TUNING_PAIRS, ROWS = 10_000_000, 4096


@dataclass(frozen=True)
class NeverPredicted:
    """Labels that are never predicted, for one reason."""

    why: str
    n_labels: int
    examples: tuple[str, ...]
    """The most frequent ones."""


@dataclass(frozen=True)
class HalfScore:
    """Cross-validated F1 on one fold of models trained on half of the other documents, and on all.

    `n_half`, `n_all`: the numbers of training documents.
    """

    n_half: int
    n_all: int
    half: CrossValidatedF1
    all: CrossValidatedF1


class LabelCounts(NamedTuple):
    """Numbers of held-out documents for every label, in the order of `classes_`."""

    hits: tuple[int, ...]
    """True positives."""
    predicted: tuple[int, ...]
    actual: tuple[int, ...]


@dataclass(frozen=True, repr=False)
class Facts:
    """Figures on the training documents, and on the documents held out to choose thresholds."""

    without_labels: int
    """Training documents without any label."""
    most_labels: int
    """The maximum number of labels of a training document."""
    n_validation: int
    """Documents of a validation part that cross-fitting also trained on."""
    cross_fitted: bool
    """Whether the held-out documents are the training documents, each scored by a model trained
    without it; otherwise they are a validation part."""
    n_held_out: int
    cross_validated: Mapping[str, Scores] | None
    """Scores of `all`, `head`, `medium` and `tail` labels on held-out documents, with thresholds
    chosen on the others; None if there are too few."""
    never_predicted: tuple[NeverPredicted, ...] = ()
    half: HalfScore | None = None
    """For cross-fitted linear models: F1 with half of the training documents."""
    base_model: str | None = None
    """The pretrained model on the Hugging Face hub, if any."""
    trials: tuple[Trial, ...] = ()
    """The settings that were compared on held-out documents, in this order."""
    label_counts: LabelCounts | None = None
    """Counts behind `cross_validated`; saved in a separate file, so not in `to_dict`."""

    def __repr__(self) -> str:
        names = ", ".join(vars(self))
        return (
            f"Facts({self.n_held_out:,} held-out documents; "
            f"{f1_of_groups(self.cross_validated or {})}; fields: {names})"
        )

    def sentences(self) -> list[str]:
        """Which labels are never predicted, and what more documents may gain, as sentences."""
        lines = [
            f"{plural(group.n_labels, 'label')} ({', '.join(group.examples)}"
            f"{' and others' * (group.n_labels > len(group.examples))}) "
            f"{'was' if group.n_labels == 1 else 'were'} {group.why}."
            for group in self.never_predicted
        ]
        if self.half is not None:
            before, after = (
                f"{100 * f1.micro_f1:.2f} / {100 * f1.macro_f1:.2f}"
                for f1 in (self.half.half, self.half.all)
            )
            lines.append(
                f"Learning curve (micro-F1 / macro-F1 on one fold): {self.half.n_half:,} training "
                f"documents give {before}, {self.half.n_all:,} give {after}."
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        plain = asdict(dataclasses.replace(self, label_counts=None))
        del plain["label_counts"]
        return plain | {"trials": [trial._asdict() for trial in self.trials]}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any], label_counts: LabelCounts | None) -> Facts:
        """Restore what `to_dict` returned, with the counts."""
        groups, half = saved["cross_validated"], saved["half"]
        read = {
            "cross_validated": groups and {str(k): Scores(**part) for k, part in groups.items()},
            "never_predicted": tuple(
                NeverPredicted(part["why"], part["n_labels"], tuple(part["examples"]))
                for part in saved["never_predicted"]
            ),
            "half": half
            and HalfScore(
                half["n_half"],
                half["n_all"],
                CrossValidatedF1(*half["half"]),
                CrossValidatedF1(*half["all"]),
            ),
            "trials": tuple(Trial(**trial) for trial in saved["trials"]),
        }
        return cls(**{**saved, **read, "label_counts": label_counts})


def choose_thresholds(
    data: TextData, fitted: Fitted, params: Mapping[str, Any], base_model: str | None
) -> tuple[Thresholds, Facts]:
    """Choose thresholds by the estimator's parameters, and evaluate them by cross-validation."""
    # Cross-fitting also trains on the validation part.
    trained = data.stats() if fitted.fold_of is None else fitted.held_out.stats()
    rule = threshold_rule(params, trained, fitted.ensemble.scale)
    likely, folds = likely_pairs(fitted), fitted.fold_of
    scores, truth = likely.scores, likely.held_out.truth
    thresholds = fit_thresholds(scores, truth, method=params["thresholds"], folds=folds, **rule)
    # The score of a label without a training document is a constant.
    known = np.asarray(fitted.ensemble.known.any(axis=0))
    thresholds = dataclasses.replace(thresholds, values=np.where(known, thresholds.values, np.inf))
    rule["method"] = thresholds.method
    cross_validated = label_counts = None
    if len(fitted.held_out) > 1:
        decisions = cross_validated_decisions(scores, truth, folds=folds, **rule)
        # All labels count, also those that were unknown to the models of a fold.
        counts = count(fitted.held_out.truth, decisions)
        cross_validated = _by_group(counts, len(fitted.held_out), data)
        label_counts = LabelCounts(*(tuple(part.astype(int).tolist()) for part in counts))
    per_document = np.diff(data.Y.indptr)
    facts = Facts(
        without_labels=int((per_document == 0).sum()),
        most_labels=int(per_document.max(initial=0)),
        n_validation=0 if folds is None else len(fitted.held_out) - len(data),
        cross_fitted=folds is not None,
        n_held_out=len(fitted.held_out),
        cross_validated=cross_validated,
        never_predicted=_never_predicted(likely, thresholds, known, trained),
        half=_half_score(fitted, rule),
        base_model=base_model,
        trials=fitted.trials,
        label_counts=label_counts,
    )
    return thresholds, facts


def threshold_rule(params: Mapping[str, Any], trained: LabelStats, scale: Scale) -> dict[str, Any]:
    """Arguments of `fit_thresholds` other than the method, by the estimator's parameters."""
    names = ("objective", "random_state", "min_labels", "max_labels")
    rule = {name: params[name] for name in names}
    return {"label_counts": trained.label_counts, "scale": scale, **rule}


def held_out_f1(fitted: Fitted, rule: Mapping[str, Any]) -> CrossValidatedF1:
    """F1 on held-out documents, with thresholds chosen on others of them."""
    part = likely_pairs(fitted)
    decisions = cross_validated_decisions(part.scores, part.held_out.truth, **rule)
    counts = count(fitted.held_out.truth, decisions)
    f1 = [precision_recall_f1(counts, average).f1 for average in ("micro", "macro")]
    return CrossValidatedF1(*f1)


def likely_pairs(fitted: Fitted) -> Fitted:
    """Keep only the highest scores of each document if there are too many pairs.

    Masked pairs are ignored: their labels are removed from the documents.
    """
    scores, held_out = fitted.scores, fitted.held_out
    if sp.issparse(scores) or scores.size <= TUNING_PAIRS:
        return fitted
    unknown = np.ma.getmaskarray(scores)
    blocks = []
    for start in range(0, len(held_out), ROWS):
        rows = slice(start, start + ROWS)
        scored = np.where(unknown[rows], -np.inf, np.ma.getdata(scores)[rows])
        blocks.append(highest(scored, KEPT_LABELS))
    reduced = dataclasses.replace(held_out, Y=held_out.Y.multiply(~unknown))
    return dataclasses.replace(fitted, scores=sp.vstack(blocks, format="csr"), held_out=reduced)


def _by_group(counts: Counts, n_documents: int, data: TextData) -> dict[str, Scores]:
    masks = label_groups(data.stats().label_counts)
    return {"all": Scores.of(counts, n_documents)} | {
        name: Scores.of(Counts(*(part[mask] for part in counts)), n_documents)
        for name, mask in masks.items()
    }


def _never_predicted(
    likely: Fitted, thresholds: Thresholds, known: NDArray[np.bool_], trained: LabelStats
) -> tuple[NeverPredicted, ...]:
    """Labels that cannot be predicted, and labels that no held-out document gets."""
    counts, finite = trained.label_counts, np.isfinite(thresholds.values)
    reached = count(likely.held_out.Y, thresholds.apply(likely.scores)).predicted > 0
    unreached = known & finite & ~reached
    n_few, n_unreached = int((counts[unreached] < FEW).sum()), int(unreached.sum())
    few = f"{n_few:,} of them {'has' if n_few == 1 else 'have'}"
    if n_few == n_unreached:
        few = "it has" if n_few == 1 else "all have"
    reasons = {
        "never predicted for lack of training documents": ~known,
        "never predicted, as no threshold improves F1": known & ~finite,
        f"never predicted on held-out documents; {few} fewer than {FEW} training documents": (
            unreached
        ),
    }
    names = likely.held_out.label_names
    result = []
    for why, labels in reasons.items():
        if labels.any():
            columns = np.flatnonzero(labels)
            first = columns[np.argsort(-counts[columns], kind="stable")][:N_EXAMPLES]
            examples = tuple(names[k] for k in first)
            result.append(NeverPredicted(why, len(columns), examples))
    return tuple(result)


def _half_score(fitted: Fitted, rule: Mapping[str, Any]) -> HalfScore | None:
    """Compare half with all, both with thresholds cross-validated within the first fold."""
    if fitted.half is None or fitted.fold_of is None:
        return None
    rows = np.flatnonzero(fitted.fold_of == 0)
    held_out = fitted.held_out.select(rows)
    results = [
        held_out_f1(dataclasses.replace(fitted, scores=scores, held_out=held_out), rule)
        for scores in (fitted.half.scores, fitted.scores[rows])
    ]
    return HalfScore(fitted.half.n_documents, len(fitted.fold_of) - len(rows), *results)
