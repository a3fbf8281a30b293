"""The scale of scores, stated and never guessed: logits, probabilities or margins.

Thresholds and evaluation work with logits; margins stay as they are. The order is kept, so
decisions are the same on every scale.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.checks import check_choice
from longtail.errors import InputError
from longtail.metrics.inputs import check_same_shape, score_matrix

Scale = Literal["logit", "probability", "margin"]
"""Margins, such as distances to a hyperplane, are any real numbers; logits give probabilities."""


def to_logits(scores: Any, scale: Scale, truth: sp.csr_matrix | None = None) -> Any:
    """Checked scores as logits of float type: dense, or CSR where some pairs are not scored.

    Args:
        scores: documents x labels; in a masked array or a CSR matrix some pairs are not scored.
        scale: what the scores are.
        truth: labels whose shape the scores must have.
    """
    check_choice("scale", scale, get_args(Scale))
    matrix = score_matrix(scores, finite=True)
    if truth is not None:
        check_same_shape(truth, matrix, "scores")
    if matrix.dtype.kind != "f":  # unsigned numbers cannot be negated to sort them
        matrix = matrix.astype(np.float64)
    if scale != "probability":
        return matrix
    values = matrix.data if sp.issparse(matrix) else matrix
    if values.size and not (values.min() >= 0 and values.max() <= 1):
        raise InputError(
            f"probabilities must lie in [0, 1], got {values.min():g} to {values.max():g}. If these "
            "are logits, pass scale='logit'."
        )
    logits = logit(values)
    if sp.issparse(matrix):
        return sp.csr_matrix((logits, matrix.indices, matrix.indptr), matrix.shape)
    return logits


def logit(probabilities: Any) -> NDArray[Any]:
    """log(p / (1 - p)); 0 and 1 are moved to the nearest probabilities with a finite logit."""
    values = np.asarray(probabilities)
    if values.dtype == np.float16:
        values = values.astype(np.float32)  # else neighbouring probabilities become the same logit
    limits = np.finfo(values.dtype)
    values = np.clip(values, limits.tiny, values.dtype.type(1) - limits.epsneg)
    return np.asarray(np.log(values) - np.log1p(-values))
