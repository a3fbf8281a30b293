"""Check labels, decisions and scores, and convert them to the form that all metrics use.

Labels and decisions become sorted CSR matrices without explicit zeros. The caller's matrices are
not modified, and sparse matrices are never made dense.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import InputError
from longtail.metrics.blocks import applies_to, rows_of

FloatArray: TypeAlias = NDArray[np.float64]
WithoutPositives: TypeAlias = Literal["zero", "skip"]
"""Whether a mean counts labels without positives as 0 or leaves them out."""


def _real_matrix(values: Any, what: str, kinds: str = "biuf") -> Any:
    """Convert anything but sparse and masked matrices to a dense one; check its shape and dtype."""
    if not sp.issparse(values) and not np.ma.isMaskedArray(values):
        try:
            values = np.asarray(values)
        except ValueError:  # rows of different lengths
            values = np.asarray(values, dtype=object)
    if len(values.shape) != 2 or values.dtype.kind not in kinds:
        raise InputError(
            f"{what} must be a documents x labels matrix of real numbers, got the type "
            f"{values.dtype} and the shape {values.shape}. Encode label names with "
            "longtail.labels.encode_labels, convert numbers with astype(float), pass a single "
            "document as a matrix of one row."
        )
    return values


def label_matrix(Y: Any, what: str) -> sp.csr_matrix:
    """Convert labels or decisions to a sorted CSR matrix of ones."""
    matrix = sp.csr_matrix(_real_matrix(Y, what), dtype=np.float64, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    wrong = matrix.data[matrix.data != 1]
    if wrong.size:
        advice = "" if what == "labels" else " Turn scores into decisions with a threshold first."
        raise InputError(f"{what} must be 0 or 1, got {wrong[0]:g}.{advice}")
    ones = np.ones(matrix.nnz, dtype=np.int8)
    return sp.csr_matrix((ones, matrix.indices, matrix.indptr), shape=matrix.shape)


def known_labels(Y: Any) -> tuple[sp.csr_matrix, sp.csr_matrix | None]:
    """Labels as from `label_matrix`, and the unknown pairs (NaN or -1) or None."""
    matrix = sp.csr_matrix(_real_matrix(Y, "labels"), dtype=np.float64, copy=True)
    is_unknown = np.isnan(matrix.data) | (matrix.data == -1)
    if not is_unknown.any():
        return label_matrix(matrix, "labels"), None
    if (matrix.data == -1).any() and matrix.count_nonzero() == np.prod(matrix.shape):
        raise InputError(
            "labels are 1 and -1 without any 0, and -1 means that a label is unknown. Write 0 "
            "where a label does not apply, or NaN if all the others really are unknown."
        )
    unknown = sp.csr_matrix((is_unknown, matrix.indices, matrix.indptr), matrix.shape, copy=True)
    unknown.sum_duplicates()
    unknown.eliminate_zeros()
    matrix.data[is_unknown] = 0
    return label_matrix(matrix, "labels"), unknown


def known_documents(unknown: sp.csr_matrix) -> NDArray[np.bool_]:
    """Mask of the documents with at least one known label."""
    return np.asarray(np.diff(unknown.indptr) < unknown.shape[1])


def score_matrix(scores: Any, *, finite: bool = False) -> Any:
    """Check scores: dense, or sorted CSR if some pairs are not scored; never NaN.

    Args:
        finite: also refuse infinite scores, and Booleans, which are decisions rather than logits.
    """
    matrix = _real_matrix(scores, "scores", "iuf" if finite else "biuf")
    if np.ma.isMaskedArray(matrix):
        scored, matrix = ~np.ma.getmaskarray(matrix), np.ma.getdata(matrix)
        if not scored.all():
            values, matrix = matrix[scored], sp.csr_matrix(scored)
            matrix.data = values
    if sp.issparse(matrix):
        if matrix.dtype == np.float16:  # scipy cannot transpose it
            matrix = matrix.astype(np.float32)
        matrix = sp.csr_matrix(matrix)
        if not matrix.has_sorted_indices:
            matrix = matrix.sorted_indices()
        if not matrix.has_canonical_format:
            raise InputError(
                "expected one score per document and label, got sparse scores with duplicate "
                "entries. Keep the best of each, or add them up with scores.sum_duplicates()."
            )
    values = matrix.data if sp.issparse(matrix) else matrix
    # Minimum and maximum propagate NaN, and need no mask as large as the scores.
    limits = np.array([values.min(), values.max()] if values.size else [], dtype=np.float64)
    if np.isnan(limits).any() or (finite and np.isinf(limits).any()):
        raise InputError(
            f"scores must {'be finite, got NaN or infinity' if finite else 'not be NaN'}. Check "
            "whether the loss became NaN or infinite in training."
        )
    return matrix


def without_pairs(scores: Any, unknown: sp.csr_matrix | None) -> Any:
    """Checked scores without those of unknown pairs: CSR if there are any, else unchanged."""
    if unknown is None:
        return scores
    if not sp.issparse(scores):
        return score_matrix(np.ma.array(scores, mask=unknown.toarray()))
    kept = ~applies_to(unknown, scores)
    pairs = scores.data[kept], (rows_of(scores)[kept], scores.indices[kept])
    return sp.csr_matrix(pairs, shape=scores.shape)


def labels_and_scores(y_true: Any, scores: Any) -> tuple[sp.csr_matrix, Any]:
    """Check both and drop unknown pairs, and documents with no known label."""
    truth, unknown = known_labels(y_true)
    checked = score_matrix(scores)
    check_same_shape(truth, checked, "scores")
    if unknown is not None:
        rows = known_documents(unknown)
        truth, checked = truth[rows], without_pairs(checked, unknown)[rows]
    check_not_empty(truth.shape)
    return truth, checked


def check_same_shape(y_true: Any, other: Any, what: str) -> None:
    if y_true.shape != other.shape:
        raise InputError(
            f"labels of shape {y_true.shape} and {what} of shape {other.shape} differ. "
            "Both must be documents x labels."
        )


def check_not_empty(shape: tuple[int, int]) -> None:
    if 0 in shape:
        raise InputError(
            f"expected at least one document and one label, got {shape[0]} documents and "
            f"{shape[1]} labels: a mean over nothing has no value. Leave the empty group out."
        )


def mean_of(values: FloatArray, present: NDArray[np.bool_], absent: WithoutPositives) -> float:
    """Mean over all labels or over those present; 0 if none is left."""
    chosen = values if absent == "zero" else values[present]
    return float(chosen.mean()) if chosen.size else 0.0


def ratio(part: Any, total: Any) -> FloatArray:
    """part / total, 0 where the total is 0."""
    total = np.asarray(total, dtype=np.float64)
    return np.asarray(np.divide(part, total, out=np.zeros_like(total), where=total > 0))
