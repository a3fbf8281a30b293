"""`Thresholds`: one number per label, the decisions they make, and their JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict, Unpack

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.checks import check_integer, check_number
from longtail.errors import DataError, InputError
from longtail.metrics.blocks import row_blocks
from longtail.metrics.ranking import top_entries, top_k
from longtail.thresholds.scales import Scale, logit, to_logits

SAVED = ("method", "objective", "min_labels", "max_labels", "scale", "details")


class Overrides(TypedDict, total=False):
    """The arguments of `Thresholds.override`."""

    threshold: float
    """One probability for all labels; infinite thresholds are kept."""
    min_labels: int
    max_labels: int | None


@dataclass(frozen=True, eq=False, repr=False)
class Thresholds:
    """Predict every label whose score, as a logit, is at least the label's threshold.

    Fit them with `fit_thresholds`; save them as JSON with `to_dict`.
    """

    values: NDArray[np.float64]
    """One logit per label; infinity: never predicted."""
    method: str = "given"
    objective: str = "given"
    min_labels: int = 0
    """Documents with fewer labels also get those nearest to their thresholds, except labels that
    are not scored or have infinite thresholds."""
    max_labels: int | None = None
    """Documents with more labels keep those furthest above their thresholds."""
    scale: Scale = "logit"
    """The scale of the scores they were fitted on, and the default in `apply`."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Details of the fit, for reports."""

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64)
        if values.ndim != 1 or np.isnan(values).any() or np.isneginf(values).any():
            raise InputError(
                "thresholds must be one number per label, none of them NaN or minus infinity."
            )
        check_integer("min_labels", self.min_labels, 0)
        check_integer("max_labels", self.max_labels, 1, optional=True)
        if self.max_labels is not None and self.min_labels > self.max_labels:
            raise InputError(
                f"min_labels is {self.min_labels}, more than max_labels, which is "
                f"{self.max_labels}. Lower one or raise the other."
            )
        values.setflags(write=False)
        object.__setattr__(self, "values", values)

    def __repr__(self) -> str:
        limits = f"min_labels={self.min_labels}, max_labels={self.max_labels}"
        return f"Thresholds({self.n_labels:,} labels, method={self.method!r}, {limits})"

    @property
    def n_labels(self) -> int:
        return len(self.values)

    def override(self, **changes: Unpack[Overrides]) -> Thresholds:
        """A copy with some decisions changed; `details["overridden"]` lists which."""
        if not changes:
            return self
        changed: dict[str, Any] = dict(changes)
        overridden = sorted({*self.details.get("overridden", ()), *changed})
        if "threshold" in changed:
            threshold = changed.pop("threshold")
            check_number("threshold", threshold, 0, 1, exclusive=True)
            if self.scale == "margin":
                raise InputError(
                    "a threshold is a probability, and margins have none. Leave it out, or use a "
                    "model that gives probabilities."
                )
            changed["values"] = np.where(np.isinf(self.values), np.inf, logit(float(threshold)))
            changed["method"] = "given"
        return replace(self, **changed, details={**self.details, "overridden": overridden})

    def apply(self, scores: Any, scale: Scale | None = None) -> sp.csr_matrix:
        """Decisions, documents x labels, as a sparse 0/1 matrix."""
        logits = to_logits(scores, self.scale if scale is None else scale)
        if logits.shape[1] != self.n_labels:
            raise InputError(
                f"these thresholds are for {self.n_labels} labels, got scores of {logits.shape[1]}."
            )
        if not sp.issparse(logits):
            blocks = (self.margins(logits[rows]) >= 0 for rows in row_blocks(*logits.shape))
            return sp.vstack([sp.csr_matrix(block, dtype=np.float32) for block in blocks], "csr")
        margins = self.margins(logits)
        reached = (margins.data >= 0).astype(np.float32)
        decided = sp.csr_matrix((reached, margins.indices, margins.indptr), logits.shape, copy=True)
        decided.eliminate_zeros()
        return decided

    def margins(self, logits: Any) -> Any:
        """Scores minus thresholds, with `min_labels` and `max_labels` applied.

        Takes the result of `to_logits`; returns float64, CSR if that is. A label is predicted where
        its margin is at least 0, or at least s if all thresholds were raised by s. Minus infinity
        means never predicted: the threshold is infinite, or `max_labels` other labels of the
        document rank higher. Infinity means always predicted: one of the `min_labels` highest.
        Ties go to the lower column.
        """
        depth = min(self.max_labels or self.min_labels, self.n_labels)
        margins: Any
        if sp.issparse(logits):
            flat = np.subtract(logits.data, self.values[logits.indices], dtype=np.float64)
            margins = sp.csr_matrix((flat, logits.indices, logits.indptr), logits.shape)
        else:
            margins = np.subtract(logits, self.values, dtype=np.float64, order="C")
            flat = margins.reshape(-1)
        if not depth or not len(flat):
            return margins
        # Positions of the highest margins of each document; -1 where it has fewer.
        if sp.issparse(logits):
            best = top_entries(margins, min(depth, int(np.diff(margins.indptr).max())))
        else:
            best = top_k(margins, depth) + np.arange(len(margins))[:, np.newaxis] * self.n_labels
        forced = best[:, : self.min_labels]
        forced = forced[forced >= 0]
        forced = forced[np.isfinite(flat[forced])]
        if self.max_labels is not None:
            dropped = np.ones(len(flat), dtype=np.bool_)
            dropped[best[best >= 0]] = False
            flat[dropped] = -np.inf
        flat[forced] = np.inf
        return margins

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: a shared threshold is stored once, infinity as null."""
        shared = (self.values == self.values[:1]).all()
        values = self.values[:1] if shared else self.values
        return {
            **{name: getattr(self, name) for name in SAVED},
            "n_labels": self.n_labels,
            "values": [value if np.isfinite(value) else None for value in values.tolist()],
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Thresholds:
        """The inverse of `to_dict`."""
        try:
            values = [np.inf if value is None else float(value) for value in saved["values"]]
            n_labels = int(saved["n_labels"])
            if len(values) == 1:
                values *= n_labels
            if len(values) != n_labels:
                raise ValueError(f"{len(values)} values for {n_labels} labels")
            return cls(np.array(values), **{name: saved[name] for name in SAVED})
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"these are not saved thresholds ({error!r}).") from error
