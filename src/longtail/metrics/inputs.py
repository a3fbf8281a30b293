"""Checks of labels, decisions and scores, and their conversion to one form for all metrics.

Labels and decisions become sorted CSR matrices without stored zeros. The caller's matrices are not
changed, and a sparse matrix is never made dense.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import InputError
from longtail.metrics.blocks import row_blocks

FloatArray: TypeAlias = NDArray[np.float64]
WithoutPositives: TypeAlias = Literal["zero", "skip"]
"""What a mean does with a label or document without positives: count it as 0, or leave it out."""


def real_matrix(values: Any, what: str, kinds: str = "biuf") -> Any:
    """A matrix of real numbers: sparse and masked ones as they are, everything else dense.

    Args:
        what: its name in error messages.
        kinds: dtype kinds that are allowed.
    """
    if not sp.issparse(values) and not np.ma.isMaskedArray(values):
        try:
            values = np.asarray(values)
        except ValueError as error:
            raise InputError(
                f"{what} must be a documents x labels matrix, got rows of different lengths."
            ) from error
    if len(values.shape) != 2:
        raise InputError(
            f"{what} must be a documents x labels matrix, got the shape {values.shape}. For one "
            "document pass a matrix of one row."
        )
    if values.dtype.kind not in kinds:
        raise InputError(
            f"{what} must be real numbers, got the type {values.dtype}. Encode label names with "
            "longtail.labels.encode_labels, convert numbers with astype(float)."
        )
    return values


def label_matrix(Y: Any, what: str) -> sp.csr_matrix:
    """Labels or decisions, dense or sparse, as a CSR matrix of ones with sorted columns."""
    matrix = real_matrix(Y, what)
    if sp.issparse(matrix):
        matrix = matrix.tocsr()
        _check_indicators(matrix.data, what)
        if not matrix.has_canonical_format or not matrix.data.all():
            matrix = matrix.copy()
            matrix.sum_duplicates()
            _check_indicators(matrix.data, what)
            matrix.eliminate_zeros()
    else:
        dense = np.ma.getdata(matrix)
        for rows in row_blocks(*dense.shape):
            _check_indicators(dense[rows], what)
        blocks = (dense[rows] != 0 for rows in row_blocks(*dense.shape))
        matrix = stack_rows(blocks, dense.shape, np.int8)
    ones = np.ones(matrix.nnz, dtype=np.int8)
    return sp.csr_matrix((ones, matrix.indices, matrix.indptr), shape=matrix.shape)


def score_matrix(scores: Any) -> Any:
    """Scores without NaN: a dense array, or a CSR matrix with sorted columns and zeros kept."""
    matrix = without_mask(real_matrix(scores, "scores"))
    sparse = sp.issparse(matrix)
    if sparse:
        if matrix.format != "csr":
            raise InputError(
                f"sparse scores must be in CSR format, got {matrix.format.upper()}. Convert them "
                "with scores.tocsr(); what is not stored counts as not scored."
            )
        matrix = sorted_csr(matrix)
    values = matrix.data if sparse else matrix
    if values.size and np.isnan(values.min()):
        first = int(np.flatnonzero(np.isnan(values))[0])
        ends = matrix.indptr[1:] if sparse else np.arange(1, len(matrix) + 1) * matrix.shape[1]
        raise InputError(
            "scores must not be NaN, got NaN in document "
            f"{np.searchsorted(ends, first, side='right')}. Check the training: a loss that was "
            "NaN or infinite leaves such scores. Infinite scores are allowed, they can be ordered."
        )
    return matrix


def without_mask(scores: Any) -> Any:
    """A masked array as CSR, whose absent pairs are not scored either; dense without any mask."""
    if not np.ma.isMaskedArray(scores):
        return scores
    scored = ~np.ma.getmaskarray(scores)
    if scored.all():
        return np.ma.getdata(scores)
    matrix = sp.csr_matrix(scored)
    matrix.data = np.ma.getdata(scores)[scored]
    return matrix


def sorted_csr(scores: Any) -> sp.csr_matrix:
    """One score per pair, columns sorted, and in a precision that scipy can transpose."""
    if scores.dtype == np.float16:
        scores = scores.astype(np.float32)
    matrix = sp.csr_matrix(scores)
    if not matrix.has_sorted_indices:
        matrix = matrix.sorted_indices()
    if not matrix.has_canonical_format:
        raise InputError(
            "expected one score per document and label, got two or more for some pair of the "
            "sparse scores. Keep the best, or add them up with scores.sum_duplicates()."
        )
    return matrix


def labels_and_scores(y_true: Any, scores: Any) -> tuple[sp.csr_matrix, Any]:
    """Both checked, of the same shape, and not empty."""
    truth, checked = label_matrix(y_true, "labels"), score_matrix(scores)
    check_same_shape(truth, checked, "scores")
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


def mean_of(
    values: FloatArray, has_positives: NDArray[np.bool_], without_positives: WithoutPositives
) -> float:
    """Mean over all, or over those with positives; 0 where nothing is left."""
    chosen = values if without_positives == "zero" else values[has_positives]
    return float(chosen.mean()) if chosen.size else 0.0


def ratio(part: Any, total: Any) -> FloatArray:
    """part / total, 0 where the total is 0."""
    total = np.asarray(total, dtype=np.float64)
    return np.asarray(np.divide(part, total, out=np.zeros_like(total), where=total > 0))


def stack_rows(blocks: Iterable[Any], shape: tuple[int, int], dtype: Any) -> sp.csr_matrix:
    """All blocks of rows, dense or sparse, as one CSR matrix."""
    parts = [sp.csr_matrix(block, dtype=dtype) for block in blocks]
    return sp.vstack(parts, format="csr") if parts else sp.csr_matrix(shape, dtype=dtype)


def _check_indicators(values: NDArray[Any], what: str) -> None:
    good = (values == 0) | (values == 1)
    if not good.all():
        raise InputError(
            f"{what} must be 0 or 1, got {values[~good][0]}. Turn scores into decisions with a "
            "threshold first; no metric guesses one."
        )
