"""Where a classifier goes wrong: the pairs of labels that it confuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp


class ConfusedPair(NamedTuple):
    missed: str
    given: str
    documents: int


def confused_pairs(
    y_true: sp.csr_matrix, y_pred: sp.csr_matrix, label_names: Sequence[str], most: int = 10
) -> list[ConfusedPair]:
    """Pairs (a, b) by the number of documents where a was missed and b wrongly given."""
    true, given = y_true.astype(bool), y_pred.astype(bool)
    missed = (true > given).astype(np.int64)
    wrong = (given > true).astype(np.int64)
    pairs = sp.coo_matrix(missed.T @ wrong)
    order = np.lexsort((pairs.col, pairs.row, -pairs.data))[:most]
    return [
        ConfusedPair(label_names[pairs.row[k]], label_names[pairs.col[k]], int(pairs.data[k]))
        for k in order
    ]
