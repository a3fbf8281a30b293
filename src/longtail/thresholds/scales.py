"""What scores mean, said and never guessed: logits, probabilities or margins, checked once.

All of judging works on the scale of logits; margins stay what they are. The order is kept, so
decisions are the same on every scale.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import InputError
from longtail.metrics.blocks import CACHED, row_blocks
from longtail.metrics.inputs import check_same_shape, sorted_csr

Scale = Literal["logit", "probability", "margin"]
"""Margins, such as distances to a hyperplane, are any real numbers; logits give probabilities."""
SCALES = ("logit", "probability", "margin")


def to_logits(scores: Any, scale: Scale, truth: sp.csr_matrix | None = None) -> Any:
    """Checked scores on the scale of logits: dense, masked or CSR, as they came.

    Args:
        scores: documents x labels; in a masked array or a CSR matrix some pairs are not scored.
        scale: what the scores are.
        truth: labels whose shape the scores must have.
    """
    if scale not in SCALES:
        raise InputError(f"scale must be one of {', '.join(SCALES)}, got {scale!r}.")
    matrix = _numbers(scores)
    if truth is not None:
        check_same_shape(truth, matrix, "scores")
    if sp.issparse(matrix):
        matrix = sorted_csr(matrix)
    masked = np.ma.isMaskedArray(matrix)
    values = matrix.data if sp.issparse(matrix) else matrix.compressed() if masked else matrix
    if not all_finite(values):
        raise InputError("scores must be finite, got NaN or infinity. Check the training.")
    if scale != "probability":
        return matrix
    if values.size and not (values.min() >= 0 and values.max() <= 1):
        raise InputError(
            f"probabilities must lie in [0, 1], got {values.min():g} to {values.max():g}. If these "
            "are logits, say scale='logit'."
        )
    if sp.issparse(matrix):
        return sp.csr_matrix((logit(matrix.data), matrix.indices, matrix.indptr), matrix.shape)
    if masked:
        return np.ma.MaskedArray(logit(matrix.filled(0.5)), np.ma.getmaskarray(matrix))
    return logit(matrix)


def logit(probabilities: Any) -> NDArray[Any]:
    """log(p / (1 - p)); 0 and 1 become the ends of what the precision can tell apart."""
    values = np.asarray(probabilities)
    if values.dtype == np.float16:
        values = values.astype(np.float32)  # else neighbouring probabilities become the same logit
    tiny = np.finfo(values.dtype).tiny
    top = values.dtype.type(1) - np.finfo(values.dtype).epsneg
    values = np.clip(values, tiny, top)
    result: NDArray[Any] = np.log(values) - np.log1p(-values)
    return result


def sigmoid(logits: Any) -> NDArray[np.float64]:
    """The way back, 1 / (1 + exp(-x)) without overflow, in double precision."""
    values = np.asarray(logits, dtype=np.float64)
    return np.asarray(0.5 * (1 + np.tanh(0.5 * values)), dtype=np.float64)


def all_finite(scores: NDArray[Any]) -> bool:
    """Without a mask as large as the scores."""
    blocks = row_blocks(len(scores), scores[:1].size, CACHED)
    return all(bool(np.isfinite(scores[rows]).all()) for rows in blocks)


def _numbers(scores: Any) -> Any:
    """A matrix of floats, its kind as it came."""
    if not sp.issparse(scores) and not np.ma.isMaskedArray(scores):
        try:
            scores = np.asarray(scores)
        except ValueError as error:
            raise InputError(
                "scores must be a documents x labels matrix of numbers, got rows of different "
                "lengths. Give every document one score per label, or pass a CSR matrix."
            ) from error
    if scores.dtype.kind not in "fiu" or scores.ndim != 2:
        raise InputError(
            f"scores must be a documents x labels matrix of numbers, got {scores.ndim} "
            f"dimensions of {scores.dtype}. For one document pass a matrix of one row."
        )
    # Unsigned numbers have no negatives to sort by.
    return scores if scores.dtype.kind == "f" else scores.astype(np.float64)
