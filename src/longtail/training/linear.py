"""A linear head solved to convergence: C x summed loss + half the squared weights.

With more words than documents it is cheaper to solve for A in W = X'A. The labels are independent
problems: a truncated Newton method solves a chunk of them at a time.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from longtail.errors import InputError, LongtailError
from longtail.losses import BalancedLoss, MultiLabelLoss
from longtail.losses.balanced import balanced_sum
from longtail.losses.closed_form import Batch
from longtail.losses.targets import read_targets
from longtail.progress import OnProgress, Progress, ignore
from longtail.training.checkpoints import Checkpoints
from longtail.training.devices import in_threads
from longtail.training.encoded import WHOLE, Partial, csr_tensors
from longtail.training.newton import Problem, minimise

# Labels of a chunk: smaller chunks share fewer steps, larger ones overflow the caches. CHUNK_PAIRS
# limits documents x labels, as a dozen matrices of this size are alive at a time.
CHUNK_LABELS, CHUNK_PAIRS = 32, 50_000_000
# Maximum number of weights for a loss that does not decompose into labels.
WHOLE_WEIGHTS = 200_000_000
LBFGS_STEPS = 200


class Linear(NamedTuple):
    """Weights (labels, features) and biases (labels,)."""

    weight: Tensor
    bias: Tensor


def solve_linear(
    features: sp.csr_matrix,
    Y: sp.csr_matrix,
    loss: MultiLabelLoss,
    C: float,
    *,
    tolerance: float = 1e-3,
    device: str | torch.device = "cpu",
    progress: OnProgress = ignore,
    chunks: Checkpoints | None = None,
    partial: Partial = WHOLE,
) -> Linear:
    """The linear head that minimises C x loss + half the squared weights.

    Args:
        features: documents x features. Y: documents x labels; stored values are ones.
        loss: with reduction "sum".
        tolerance: norm of the final gradient relative to the initial one.
        chunks: where finished chunks are saved, to resume an interrupted solve.
    """
    device = torch.device(device)
    loss = copy.deepcopy(loss).to(device)  # the caller's loss stays on its device
    X = _Products(features, device)
    if not isinstance(loss, BalancedLoss):
        return _solve_whole(X, Y, loss, C, progress, partial)
    n_documents, n_labels = Y.shape
    size = max(1, min(n_labels, CHUNK_LABELS, CHUNK_PAIRS // max(1, n_documents)))
    # Labels of similar frequency converge in a similar number of iterations.
    order = np.argsort(-np.bincount(Y.indices, minlength=n_labels), kind="stable")
    head = Linear(torch.empty(n_labels, X.n_features), torch.empty(n_labels))
    cuts = [(start, min(start + size, n_labels)) for start in range(0, n_labels, size)]
    cost_of = _costs(loss, Y, order, C, X.device, partial)

    def solve(cut: tuple[int, int]) -> tuple[Linear, float]:
        name = f"labels-{cut[0]}-{cut[1]}"
        saved = None if chunks is None else chunks.load(name)
        if saved is not None:
            tensors, facts = saved
            return Linear(tensors["weight"], tensors["bias"]), float(facts["loss"])
        start = torch.zeros(n_documents, cut[1] - cut[0], device=X.device)
        coefficients, bias, value = minimise(Problem(cost_of(*cut), X.kernel), start, tolerance)
        part = Linear(X.transposed(coefficients).T.contiguous().cpu(), bias.cpu())
        if not bool(torch.isfinite(part.weight).all() and torch.isfinite(part.bias).all()):
            raise LongtailError(f"the linear head has no finite solution with C={C:g}. Lower C.")
        if chunks is not None:
            chunks.save(part._asdict(), {"loss": value}, name)
        return part, value

    for (start, stop), (part, value) in zip(cuts, _in_parallel(solve, cuts, X.device), strict=True):
        labels = torch.from_numpy(order[start:stop].copy())
        head.weight[labels], head.bias[labels] = part.weight, part.bias
        progress(Progress("solving", stop, n_labels, "labels", loss=value))
    return head


class _Products:
    """Products of X and of its transpose with matrices that have a column per label.

    On two cores embedding bags were faster than the sparse products of torch and scipy.
    """

    def __init__(self, features: sp.csr_matrix, device: torch.device) -> None:
        self.n_features, self.device = int(features.shape[1]), device
        self._rows = csr_tensors(features, device)
        self._columns = csr_tensors(sp.csr_matrix(features.T), device)

    def times(self, weights: Tensor) -> Tensor:
        return _product(self._rows, weights)

    def transposed(self, coefficients: Tensor) -> Tensor:
        return _product(self._columns, coefficients)

    def kernel(self, coefficients: Tensor) -> Tensor:
        return self.times(self.transposed(coefficients))


def _product(matrix: list[Tensor], values: Tensor) -> Tensor:
    indices, starts, weights = matrix
    return F.embedding_bag(indices, values, starts[:-1], mode="sum", per_sample_weights=weights)


def _in_parallel(
    solve: Callable[[Any], Any], cuts: list[Any], device: torch.device
) -> Iterator[Any]:
    """Solve chunks; on a CPU one per core, each in one thread: on a busy machine threads that share
    a chunk wait for each other ten times as long as they work."""
    if device.type != "cpu":
        yield from map(solve, cuts)
        return
    threads = torch.get_num_threads()
    try:
        yield from in_threads(solve, cuts, initializer=torch.set_num_threads, initargs=(1,))
    finally:
        torch.set_num_threads(threads)


Cost = Callable[[Tensor], tuple[float, Tensor]]
"""Maps logits (documents, some labels) to their summed cost and its gradient."""


def _costs(
    loss: BalancedLoss,
    Y: sp.csr_matrix,
    order: NDArray[Any],
    C: float,
    device: torch.device,
    partial: Partial,
) -> Callable[[int, int], Cost]:
    """A function that returns the cost of the labels start..stop-1, in solving order."""
    outline = torch.empty(1, device=device).expand(*Y.shape)
    mass = loss.document_mass(outline, read_targets(outline, csr_tensors(Y, device)[:2]), None)
    by_label = sp.csc_matrix(Y)[:, order]
    positions = torch.from_numpy(order).to(device)
    terms = loss.terms(torch.float32).map(lambda values: values[positions])

    def cost_of(start: int, stop: int) -> Cost:
        labels = sp.csr_matrix(by_label[:, start:stop])
        targets = read_targets(outline[:, start:stop], csr_tensors(labels, device)[:2])
        mask, weight = partial.tensors(device, labels=order[start:stop])
        batch = Batch(targets, weight, mask, mass)
        some_terms = terms.map(lambda values: values[start:stop])

        def cost(logits: Tensor) -> tuple[float, Tensor]:
            at = logits.detach().requires_grad_(True)
            value = balanced_sum(at, batch, some_terms, C)
            (gradient,) = torch.autograd.grad(value, at)
            return float(value.detach()), gradient

        return cost

    return cost_of


def _solve_whole(
    X: _Products,
    Y: sp.csr_matrix,
    loss: MultiLabelLoss,
    C: float,
    progress: OnProgress,
    partial: Partial,
) -> Linear:
    """L-BFGS for losses that do not decompose into labels."""
    n_labels = int(Y.shape[1])
    if X.n_features * n_labels > WHOLE_WEIGHTS:
        raise InputError(
            f"this loss does not decompose into labels, and {X.n_features:,} features x "
            f"{n_labels:,} labels are too many for it. Use another loss, fewer features "
            "(max_features), or a hidden layer (hidden)."
        )
    weight = torch.zeros(X.n_features, n_labels, device=X.device, requires_grad=True)
    bias = torch.zeros(n_labels, device=X.device, requires_grad=True)
    targets, mask_and_weights = csr_tensors(Y, X.device)[:2], partial.tensors(X.device)
    optimizer = torch.optim.LBFGS(
        [weight, bias], max_iter=LBFGS_STEPS, history_size=10, tolerance_grad=0.0,
        tolerance_change=1e-9, line_search_fn="strong_wolfe",
    )  # fmt: skip
    calls = count(1)

    def closure() -> Tensor:
        with torch.no_grad():
            logits = X.times(weight) + bias
        logits.requires_grad_(True)
        value = C * loss(logits, targets, *mask_and_weights)
        (slope,) = torch.autograd.grad(value, logits)
        with torch.no_grad():
            weight.grad = X.transposed(slope) + weight
            bias.grad = slope.sum(dim=0) + bias
            total = value + 0.5 * (weight.square().sum() + bias.square().sum())
        if not bool(torch.isfinite(total)):
            raise LongtailError(f"the loss became {float(total)} with C={C:g}. Lower C.")
        step = min(next(calls), LBFGS_STEPS)
        progress(Progress("solving", step, LBFGS_STEPS, "steps", loss=float(total)))
        return total.detach()  # type: ignore[no-any-return]

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return Linear(weight.detach().T.contiguous().cpu(), bias.detach().cpu())
