"""`Thresholds`: one number per label, how they decide, and their form in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.checks import check_integer
from longtail.errors import DataError, InputError
from longtail.metrics.blocks import row_blocks
from longtail.metrics.inputs import stack_rows
from longtail.metrics.ranking import top_entries, top_k
from longtail.thresholds.scales import Scale, to_logits


@dataclass(frozen=True, eq=False)
class Thresholds:
    """Predicts every label whose score, as a logit, is at least the label's value.

    Fitted by `fit_thresholds`; saved as JSON by `to_dict`.
    """

    values: NDArray[np.float64]
    """As logits; infinity: never predicted."""
    method: str = "given"
    objective: str = "given"
    top_k: int | None = None
    """Maximum number of labels per document: those furthest above their thresholds."""
    at_least_one: bool = False
    """A document without any label gets the one nearest to its threshold; none if all its scored
    labels have infinite thresholds, as those are never predicted."""
    scale: Scale = "logit"
    """Of the scores that they were fitted on, and that they expect."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What the method chose, for reports."""

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64)
        if values.ndim != 1 or np.isnan(values).any() or np.isneginf(values).any():
            raise InputError(
                "thresholds must be one number per label, none of them NaN or minus infinity."
            )
        check_integer("top_k", self.top_k, 1, optional=True)
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
        """Decisions, documents x labels, as a sparse matrix of ones."""
        logits = to_logits(scores, self.scale if scale is None else scale)
        if logits.shape[1] != self.n_labels:
            raise InputError(
                f"these thresholds are for {self.n_labels} labels, got scores of {logits.shape[1]}."
            )
        if sp.issparse(logits):
            return _decide(self.margins(logits, only_decide=True))
        blocks = (
            _decide(self.margins(logits[rows], only_decide=True))
            for rows in row_blocks(*logits.shape)
        )
        return stack_rows(blocks, logits.shape, np.float32)

    def margins(self, logits: Any, only_decide: bool = False) -> Any:
        """How far scores lie above the thresholds, with `top_k` and `at_least_one` applied.

        A label is predicted where its margin is at least 0; if all thresholds were higher by s,
        where it is at least s. Minus infinity: never predicted, because the pair is not scored
        (masked), the threshold is infinite, or `top_k` other labels of the document lie higher.
        Infinity: always predicted, as the highest of its document under `at_least_one`. Of equal
        margins the lower column is the higher.

        Args:
            logits: checked scores of `to_logits`.
            only_decide: apply the two rules only where they change what is predicted at 0, which
                is fewer documents.

        Returns:
            Margins in float64: a CSR matrix for a CSR matrix, else a dense array.
        """
        sparse = sp.issparse(logits)
        if sparse:
            above = np.subtract(logits.data, self.values[logits.indices], dtype=np.float64)
            margins = sp.csr_matrix((above, logits.indices, logits.indptr), logits.shape)
        else:
            # Masked scores may be anything, infinity too.
            margins = np.subtract(np.ma.filled(logits, 0), self.values, dtype=np.float64)
            margins[np.ma.getmask(logits)] = -np.inf
        if self.top_k is None and not self.at_least_one:
            return margins
        affected = np.ones(logits.shape[0], dtype=np.bool_)
        if only_decide:
            if sparse:
                n_predicted = np.diff(_decide(margins).indptr)
            else:
                n_predicted = np.count_nonzero(margins >= 0, axis=1)
            affected = (n_predicted == 0) & self.at_least_one
            if self.top_k is not None:
                affected |= n_predicted > self.top_k
        part: Any = margins[affected]
        if 0 in part.shape:
            return margins
        if sparse:
            self._limit(part.data, top_entries(part, self._depth(np.diff(part.indptr).max())))
            margins.data[np.repeat(affected, np.diff(margins.indptr))] = part.data
        else:
            part = np.ascontiguousarray(part)
            best = top_k(part, self._depth(self.n_labels))
            first = np.arange(len(part))[:, np.newaxis] * self.n_labels
            self._limit(part.reshape(-1), first + best)
            margins[affected] = part
        return margins

    def _depth(self, n_scored: int) -> int:
        return max(1, min(self.top_k or 1, int(n_scored)))

    def _limit(self, margins: NDArray[np.float64], best: NDArray[np.int64]) -> None:
        """Apply both rules in place; `best`: positions of each document's best, -1 for none."""
        first = best[:, 0][best[:, 0] >= 0]
        first = first[np.isfinite(margins[first])]
        if self.top_k is not None:
            dropped = np.ones(len(margins), dtype=np.bool_)
            dropped[best[best >= 0]] = False
            margins[dropped] = -np.inf
        if self.at_least_one:
            margins[first] = np.inf

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON; one number where all labels share it, null for infinity."""
        values = self.values if self.value is None else self.values[:1]
        return {
            "method": self.method,
            "objective": self.objective,
            "n_labels": self.n_labels,
            "values": [value if np.isfinite(value) else None for value in values.tolist()],
            "top_k": self.top_k,
            "at_least_one": self.at_least_one,
            "scale": self.scale,
            "details": dict(self.details),
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


def _decide(margins: Any) -> sp.csr_matrix:
    """Ones where the margin is at least 0."""
    if not sp.issparse(margins):
        return sp.csr_matrix(margins >= 0, dtype=np.float32)
    reached = (margins.data >= 0).astype(np.float32)
    decided = sp.csr_matrix((reached, margins.indices, margins.indptr), margins.shape, copy=True)
    decided.eliminate_zeros()
    return decided
