"""Integrated gradients of several labels at once, by autograd alone.

The steps of all labels share their forward passes; nothing of the network is changed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from longtail.models.explanation import Contributions, relative_error

# Steps of the first attempt, which are doubled up to the last.
FIRST_STEPS, LAST_STEPS = 16, 256
TOLERANCE = 0.01
# Tokens in memory at a time: with a BERT of base size about 1 GB.
TOKENS = 1024
Forward = Callable[[Tensor], Tensor]
"""From embeddings (steps, tokens, size) to logits (steps, labels)."""


def integrated_gradients(forward: Forward, start: Tensor, end: Tensor) -> Contributions:
    """What each token adds to each label on the path from one text's embeddings to another's.

    The steps are doubled until the values of a label sum to the difference of its scores, up to 1 %
    of it; of the attempts on a label the one with the least error counts.

    Args:
        start: embeddings without words, (tokens, size). end: of the text.
    """
    path = end - start
    with torch.no_grad():
        first, last = (forward(each[None])[0].double().cpu().numpy() for each in (start, end))
    values = np.zeros((len(first), len(start)))
    least, steps = np.full(len(first), np.inf), FIRST_STEPS
    open_labels = np.arange(len(first))
    while len(open_labels) and steps <= LAST_STEPS:
        attempt = _sum_steps(forward, start, path, open_labels.tolist(), steps)
        error = relative_error(attempt.sum(axis=1), (last - first)[open_labels])
        better = error < least[open_labels]
        values[open_labels[better]], least[open_labels[better]] = attempt[better], error[better]
        open_labels = open_labels[least[open_labels] > TOLERANCE]
        steps *= 2
    return Contributions(first, values)


def _sum_steps(
    forward: Forward, start: Tensor, path: Tensor, labels: list[int], steps: int
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """The integral by Gauss and Legendre's quadrature, (labels, tokens)."""
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    device, n_tokens = path.device, len(path)
    at = torch.tensor((nodes + 1) / 2, dtype=torch.float32, device=device)
    shares = torch.tensor(weights / 2, dtype=torch.float32, device=device)
    total = torch.zeros(len(labels), n_tokens, dtype=torch.float64, device=device)
    size = max(1, TOKENS // max(1, n_tokens))
    with torch.enable_grad():
        for part, share in zip(torch.split(at, size), torch.split(shares, size), strict=True):
            points = (start + part[:, None, None] * path).requires_grad_()
            logits = forward(points)
            for row, label in enumerate(labels):
                (slope,) = torch.autograd.grad(
                    logits[:, label] @ share, points, retain_graph=row < len(labels) - 1
                )
                total[row] += (slope.sum(dim=0) * path).sum(dim=1)
    return total.cpu().numpy()
