"""What every metric does first: check labels, decisions and scores, and bring them to one form.

Labels and decisions become sorted CSR matrices without stored zeros. Nothing of the caller's is
changed, and a sparse matrix is never laid out as a dense one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from longtail.errors import InputError, UnknownNameError
from longtail.metrics.blocks import row_blocks

FloatArray: TypeAlias = NDArray[np.float64]
LeftOut: TypeAlias = Literal["zero", "skip"]
"""What a mean does with a label or document that has no positives: count it 0, or leave it out."""


def label_matrix(Y: Any, what: str) -> sp.csr_matrix:
    """Labels or decisions, dense or sparse, as a CSR matrix of ones with sorted columns."""
    if sp.issparse(Y):
        _check_matrix(Y.shape, what)
        matrix = Y.tocsr()
        _check_indicators(matrix.data, what)
        if not matrix.has_canonical_format or not matrix.data.all():
            matrix = matrix.copy()
            matrix.sum_duplicates()
            _check_indicators(matrix.data, what)
            matrix.eliminate_zeros()
        columns, row_starts = matrix.indices, matrix.indptr
    else:
        matrix = _dense(Y, what)
        columns, row_starts = _nonzero(matrix, what)
    ones = np.ones(len(columns), dtype=np.int8)
    return sp.csr_matrix((ones, columns, row_starts), shape=matrix.shape)


def score_matrix(scores: Any) -> Any:
    """Scores without NaN: a dense array, or a CSR matrix with sorted columns and zeros kept."""
    if np.ma.isMaskedArray(scores) and np.ma.getmaskarray(scores).any():
        # A masked pair was not scored, as an absent one.
        scored = ~np.ma.getmaskarray(scores)
        stored = sp.csr_matrix(scored, dtype=np.float64)
        stored.data = np.asarray(np.ma.getdata(scores)[scored], dtype=np.float64)
        scores = stored
    if not sp.issparse(scores):
        dense = _dense(scores, "scores")
        if dense.size and np.isnan(dense.min()):
            _refuse_nan(int(np.flatnonzero(np.isnan(dense.min(axis=1)))[0]))
        return dense
    if scores.format != "csr":
        raise InputError(
            f"sparse scores must be in CSR format, got {scores.format.upper()}. Convert them with "
            "scores.tocsr(); what is not stored counts as not scored."
        )
    _check_matrix(scores.shape, "scores")
    _check_numbers(scores.dtype, "scores")
    matrix = sorted_csr(scores)
    if matrix.data.size and np.isnan(matrix.data.min()):
        first = int(np.flatnonzero(np.isnan(matrix.data))[0])
        _refuse_nan(int(np.searchsorted(matrix.indptr, first, side="right")) - 1)
    return matrix


def sorted_csr(scores: Any) -> sp.csr_matrix:
    """One score per pair, columns in order, and in a precision that scipy can transpose."""
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
    """Both checked, alike in shape, and not empty."""
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


def check_choice(kind: str, value: str, choices: Any) -> None:
    """Raise unless the value is one of a Literal's."""
    if value not in get_args(choices):
        raise UnknownNameError(kind, value, get_args(choices))


def check_k(k: Any) -> int:
    if isinstance(k, (bool, np.bool_)) or not isinstance(k, (int, np.integer)) or k < 1:
        raise InputError(f"k must be a whole number of at least 1, got {k!r}.")
    return int(k)


def check_ks(ks: Sequence[int]) -> tuple[int, ...]:
    if len(ks) == 0:
        raise InputError("expected at least one k, got none. Pass ks=(1, 3, 5), for example.")
    return tuple(check_k(k) for k in ks)


def mean_of(values: FloatArray, has_positives: NDArray[np.bool_], left_out: LeftOut) -> float:
    """Mean over all, or over those with positives; 0 where nothing is left."""
    chosen = values if left_out == "zero" else values[has_positives]
    return float(chosen.mean()) if chosen.size else 0.0


def _dense(values: ArrayLike, what: str) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(
            f"{what} must be a documents x labels matrix, got rows of different lengths."
        ) from error
    _check_matrix(array.shape, what)
    _check_numbers(array.dtype, what)
    return array


def _check_matrix(shape: tuple[int, ...], what: str) -> None:
    if len(shape) != 2:
        raise InputError(
            f"{what} must be a documents x labels matrix, got the shape {shape}. For one document "
            "pass a matrix of one row."
        )


def _check_numbers(dtype: np.dtype[Any], what: str) -> None:
    if dtype.kind not in "biuf":
        raise InputError(
            f"{what} must be real numbers, got the type {dtype}. Encode label names with "
            "longtail.labels.encode_labels, convert numbers with astype(float)."
        )


def _check_indicators(values: NDArray[Any], what: str) -> None:
    """Scores passed as decisions must not pass for them: the cut is the caller's to choose."""
    _check_numbers(values.dtype, what)
    good = (values == 0) | (values == 1)
    if not good.all():
        raise InputError(
            f"{what} must be 0 or 1, got {values[~good][0]}. Turn scores into decisions with a "
            "threshold first; no metric guesses one."
        )


def _nonzero(dense: NDArray[Any], what: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Columns of the ones row by row, and where each row starts."""
    index_type = sp.get_index_dtype(maxval=dense.shape[1])
    columns = [np.zeros(0, dtype=index_type)]
    row_starts = np.zeros(dense.shape[0] + 1, dtype=np.int64)
    for rows in row_blocks(*dense.shape):
        _check_indicators(dense[rows], what)
        in_row, column = np.nonzero(dense[rows])
        columns.append(column.astype(index_type))
        row_starts[1:][rows] = np.bincount(in_row, minlength=rows.stop - rows.start)
    return np.concatenate(columns), np.cumsum(row_starts)


def _refuse_nan(row: int) -> None:
    raise InputError(
        f"scores must not be NaN, got NaN in document {row}. Check the training: a loss that was "
        "NaN or infinite leaves such scores. Infinite scores are fine, they can be ordered."
    )
