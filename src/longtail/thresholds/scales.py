"""The scale of scores: logits, probabilities or margins, always given and never guessed.

Probabilities are converted to logits; margins are left unchanged. Conversion keeps the order of
scores, so decisions are the same on every scale.
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
"""Logits give probabilities by the sigmoid; margins, such as distances to a hyperplane, do not."""


def to_logits(scores: Any, scale: Scale, truth: sp.csr_matrix | None = None) -> Any:
    """Check scores and convert them to floating-point logits: dense, or CSR if any is missing.

    Args:
        scores: documents x labels. Masked entries, and entries absent from CSR, are not scored.
        scale: the scale of `scores`.
        truth: labels, whose shape the scores must match.
    """
    check_choice("scale", scale, get_args(Scale))
    matrix = score_matrix(scores, finite=True)
    if truth is not None:
        check_same_shape(truth, matrix, "scores")
    if matrix.dtype.kind != "f":  # sorting negates scores, which unsigned integers do not allow
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
    """log(p / (1 - p)), with p clipped to where it is finite."""
    values = np.asarray(probabilities)
    if values.dtype == np.float16:
        values = values.astype(np.float32)  # else neighbouring probabilities get equal logits
    limits = np.finfo(values.dtype)
    values = np.clip(values, limits.tiny, values.dtype.type(1) - limits.epsneg)
    return np.asarray(np.log(values) - np.log1p(-values))
