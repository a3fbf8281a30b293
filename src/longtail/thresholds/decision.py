"""`Thresholds`: one number per label, with what was fitted kept beside it, and how they decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.errors import DataError, InputError
from longtail.metrics.blocks import row_blocks
from longtail.thresholds.margins import FloatArray, margins_of
from longtail.thresholds.scales import Scale, to_logits


@dataclass(frozen=True, eq=False)
class Thresholds:
    """Predicts every label whose score, as a logit, is at least the label's value.

    Made by `fit_thresholds`; saved as JSON by `to_dict`.
    """

    values: FloatArray
    """On the scale of logits; infinity: never predicted."""
    method: str = "given"
    objective: str = "given"
    top_k: int | None = None
    """At most so many labels per document, those furthest above their thresholds."""
    at_least_one: bool = False
    """A document without any label gets the one that comes nearest to its threshold; none where all
    its scored labels have infinite thresholds, as those are never predicted."""
    scale: Scale = "logit"
    """Of the scores that they were fitted on, and that they expect."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What the method found, for people and reports."""

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64)
        if values.ndim != 1 or np.isnan(values).any() or np.isneginf(values).any():
            raise InputError(
                "thresholds must be one number per label, none of them NaN or minus infinity."
            )
        whole = isinstance(self.top_k, int | np.integer) and not isinstance(self.top_k, bool)
        if self.top_k is not None and (not whole or self.top_k < 1):
            raise InputError(f"top_k must be a whole number of at least 1, got {self.top_k!r}.")
        values.setflags(write=False)
        object.__setattr__(self, "values", values)

    @property
    def n_labels(self) -> int:
        return len(self.values)

    @property
    def value(self) -> float | None:
        """The threshold of all labels, where they share one."""
        same = len(self.values) > 0 and bool((self.values == self.values[0]).all())
        return float(self.values[0]) if same else None

    def apply(self, scores: Any, scale: Scale | None = None) -> sp.csr_matrix:
        """The decisions, documents x labels, as a sparse matrix of ones."""
        logits = to_logits(scores, self.scale if scale is None else scale)
        if logits.shape[1] != self.n_labels:
            raise InputError(
                f"these thresholds are for {self.n_labels} labels, got scores of {logits.shape[1]}."
            )
        if sp.issparse(logits):
            return self._decide(logits)
        blocks = [self._decide(logits[rows]) for rows in row_blocks(*logits.shape)]
        if not blocks:
            return sp.csr_matrix(logits.shape, dtype=np.float32)
        return sp.vstack(blocks, format="csr")

    def margins(self, logits: Any, only_decide: bool = False) -> Any:
        """How far scores lie above the thresholds, both options worked in; see `margins_of`."""
        return margins_of(logits, self.values, self.top_k, self.at_least_one, only_decide)

    def _decide(self, logits: Any) -> sp.csr_matrix:
        margins = self.margins(logits, only_decide=True)
        if not sp.issparse(margins):
            return sp.csr_matrix(margins >= 0, dtype=np.float32)
        given = margins.data >= 0
        starts = np.concatenate([[0], np.cumsum(given)])[margins.indptr]
        ones = np.ones(int(starts[-1]), dtype=np.float32)
        return sp.csr_matrix((ones, margins.indices[given], starts), shape=margins.shape)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON; one number where all labels share it, null for infinity."""
        values = [None if not np.isfinite(v) else float(v) for v in self.values]
        shared = self.value
        return {
            "method": self.method,
            "objective": self.objective,
            "n_labels": self.n_labels,
            "values": values[:1] if shared is not None else values,
            "top_k": self.top_k,
            "at_least_one": self.at_least_one,
            "scale": self.scale,
            "details": dict(self.details),
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Thresholds:
        """What `to_dict` gave."""
        try:
            values = [np.inf if v is None else float(v) for v in saved["values"]]
            n_labels = int(saved["n_labels"])
            if len(values) == 1:
                values *= n_labels
            if len(values) != n_labels:
                raise ValueError(f"{len(values)} values for {n_labels} labels")
            return cls(
                np.array(values, dtype=np.float64),
                str(saved["method"]),
                str(saved["objective"]),
                saved["top_k"],
                bool(saved["at_least_one"]),
                saved["scale"],
                saved["details"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"these are no saved thresholds ({error!r}).") from error
