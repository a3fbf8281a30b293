"""Groups of documents by how many labels they carry, as in the paper's second table."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]


def document_groups(truth: sp.csr_matrix) -> dict[str, BoolArray]:
    """Single- and multi-label documents, and terciles of the number of labels.

    Documents without labels are in neither of the first two.
    """
    each = np.diff(truth.indptr)
    return {"single_label": each == 1, "multi_label": each > 1, **terciles(each)}


def terciles(each: NDArray[np.int64]) -> dict[str, BoolArray]:
    """Documents by their number of labels in three parts, where there are three."""
    if not len(each):
        return {}
    low, high = (int(q) for q in np.quantile(each, [1 / 3, 2 / 3], method="lower"))
    middle = f"{high} labels" if high == low + 1 else f"{low + 1} to {high} labels"
    groups = {
        f"up to {low} label{'s' * (low != 1)}": each <= low,
        middle: (each > low) & (each <= high),
        f"{high + 1} or more labels": each > high,
    }
    return groups if all(rows.any() for rows in groups.values()) else {}
