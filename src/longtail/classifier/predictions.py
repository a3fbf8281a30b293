"""Predictions for a block of texts: decisions and rankings from scores computed once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit

from longtail.errors import MissingExtraError
from longtail.metrics import top_k
from longtail.metrics.blocks import rows_of
from longtail.models.base import Floats
from longtail.thresholds import Thresholds


class Pairs(NamedTuple):
    """Document-label pairs, by document and descending score."""

    documents: NDArray[np.int64]
    labels: NDArray[np.int64]
    """Columns of the score matrix."""
    values: NDArray[np.float64]
    """Probabilities, or the scores if they are margins."""
    thresholds: NDArray[np.float64]
    """Thresholds of the labels, on the same scale."""
    predicted: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Predictions:
    """The scores of a block of documents, and the thresholds that turn them into decisions."""

    first: int
    """Position of the block's first document among all."""
    scores: Any
    """Dense or, of many labels, CSR with the scores that can be predicted or ranked."""
    thresholds: Thresholds
    known: NDArray[np.int64]
    """Columns of the labels with training documents: scores of others cannot be ranked."""

    @cached_property
    def decisions(self) -> sp.csr_matrix:
        """Decisions, documents x labels."""
        return self.thresholds.apply(self.scores)

    def best(self, k: int) -> NDArray[np.int64]:
        """Columns of the k best known labels of each document, or of all if there are fewer."""
        # CSR has no scores of other labels.
        all_known = len(self.known) == self.scores.shape[1] or sp.issparse(self.scores)
        if all_known:
            return np.asarray(top_k(self.scores, min(k, len(self.known))), dtype=np.int64)
        best = top_k(self.scores[:, self.known], min(k, len(self.known)))
        return np.asarray(self.known[best], dtype=np.int64)

    def at(self, rows: NDArray[Any], labels: NDArray[Any]) -> Floats:
        """The scores of pairs that are predicted or among the best."""
        return np.asarray(self.scores[rows, labels]).ravel()

    def pairs(self, k: int | None = None) -> Pairs:
        """The pairs of each document with its predicted labels, and with its k best labels.

        The first k pairs of a document are those of its k best labels.
        """
        marked = 2 * self.decisions
        if k is not None:
            best = self.best(k)
            starts = np.arange(len(best) + 1) * best.shape[1]
            ones = np.ones(best.size, dtype=np.float32)
            marked = marked + sp.csr_matrix((ones, best.ravel(), starts), marked.shape)
        rows, labels = rows_of(marked), marked.indices.astype(np.int64)
        scores = self.at(rows, labels)
        order = np.lexsort((labels, -scores, rows))
        rows, labels, scores = rows[order], labels[order], scores[order]
        thresholds = self.thresholds.values[labels]
        is_logit = self.thresholds.scale == "logit"
        values = scores.astype(np.float64)
        if is_logit:
            values, thresholds = expit(values), expit(thresholds)
        return Pairs(self.first + rows, labels, values, thresholds, marked.data[order] >= 2)

    def records(self, classes: NDArray[Any], k: int | None = None) -> list[dict[str, Any]]:
        """One dict of lists per document, with the fields of `record_columns`."""
        pairs = self.pairs(k)
        positions = np.arange(self.first, self.first + self.scores.shape[0] + 1)
        ends = np.searchsorted(pairs.documents, positions).tolist()
        names = classes[pairs.labels].tolist()
        values, thresholds = (_short(part) for part in (pairs.values, pairs.thresholds))
        predicted = np.flatnonzero(pairs.predicted)
        inner = np.searchsorted(predicted, ends).tolist()
        fields = list(record_columns(self.thresholds, k))
        records = []
        for row in range(self.scores.shape[0]):
            chosen = predicted[inner[row] : inner[row + 1]].tolist()
            best = range(ends[row], ends[row + 1])[:k]
            lists = [[part[n] for n in chosen] for part in (names, values, thresholds)]
            if k is not None:
                lists += [[part[n] for n in best] for part in (names, values)]
            records.append(dict(zip(fields, lists, strict=True)))
        return records


def record_columns(thresholds: Thresholds, k: int | None = None) -> dict[str, Any]:
    """The fields of records and their types: predicted labels, then the k best labels."""
    values = "probabilities" if thresholds.scale == "logit" else "scores"
    columns: dict[str, Any] = {"labels": list[str], values: list[float], "thresholds": list[float]}
    return (
        columns if k is None else columns | {"top_labels": list[str], f"top_{values}": list[float]}
    )


def _short(values: NDArray[np.float64]) -> list[float]:
    """Round to six significant digits, the precision of a float32."""
    return [float(f"{value:.6g}") for value in values.tolist()]


def as_frame(pairs: Iterable[Pairs], classes: NDArray[Any], thresholds: Thresholds) -> Any:
    """A pandas DataFrame with a row per pair; without pandas it raises before computing pairs."""
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtraError("predict_frame", "pandas", "pandas") from error
    empty = Pairs(*(np.zeros(0, dtype) for dtype in (int, int, float, float, bool)))
    joined = Pairs(*map(np.concatenate, zip(empty, *pairs, strict=True)))
    return pd.DataFrame(
        {
            "document": joined.documents,
            "label": pd.Series(classes[joined.labels], dtype="str"),
            "probability" if thresholds.scale == "logit" else "score": joined.values,
            "threshold": joined.thresholds,
            "predicted": joined.predicted,
        }
    )
