"""A linear head solved to convergence: C x summed loss + half the squared weights.

With more words than documents it is cheaper to solve for A in W = X'A. The labels are independent
problems: a truncated Newton method solves a chunk of them at a time.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, NamedTuple

import joblib
import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from longtail.errors import InputError, LongtailError
from longtail.losses import BalancedLoss, MultiLabelLoss
from longtail.losses.balanced import Batch, balanced_sum
from longtail.losses.targets import read_targets
from longtail.progress import OnProgress, Progress, ignore
from longtail.training.checkpoints import Checkpoints
from longtail.training.encoded import csr_tensors
from longtail.training.newton import Problem, minimise

# Labels of a chunk: fewer share fewer steps, more fill the caches. Of many documents fewer labels,
# as a dozen matrices of documents x labels are alive at a time.
CHUNK_LABELS, CHUNK_PAIRS = 32, 50_000_000
# Numbers in the weights of a loss that cannot be cut into chunks.
WHOLE_WEIGHTS = 200_000_000
LBFGS_STEPS = 200
# Exponent of a feature's information, and the pseudo-documents of average labels that are added to
# each feature; features whose pairs with labels are in memory at the same time.
POWER, PRIOR, BLOCK_FEATURES = 0.25, 3.0, 4096


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
    informed: bool = True,
    tolerance: float = 1e-3,
    device: str | torch.device = "cpu",
    progress: OnProgress = ignore,
    chunks: Checkpoints | None = None,
) -> Linear:
    """The linear head that minimises C x loss + half the squared weights.

    Args:
        features: documents x features. Y: documents x labels.
        loss: with reduction "sum".
        informed: the L2 term is half the sum of (w / s)^2 with s of `label_information`, so that
            informative words are regularised less; False: s = 1.
        tolerance: norm of the final gradient relative to the first.
        chunks: keeps finished chunks, so that an interrupted solution resumes after them.
    """
    if loss.reduction != "sum":
        raise InputError(f"expected a loss with reduction 'sum', got {loss.reduction!r}.")
    Y = _check(features, Y, C)
    device = torch.device(device)
    loss = copy.deepcopy(loss).to(device)  # the caller's stays where it is
    scale = label_information(features, Y) if informed else None
    if scale is not None:
        features = sp.csr_matrix(features @ sp.diags(scale), dtype=np.float32)
    X = _Products(features, device)
    if isinstance(loss, BalancedLoss):
        head = _solve_in_chunks(X, Y, loss, C, tolerance, progress, chunks)
    else:
        head = _solve_whole(X, Y, loss, C, progress)
    if scale is not None:
        head.weight.mul_(torch.from_numpy(scale))
    return head


def _check(features: sp.csr_matrix, Y: sp.csr_matrix, C: float) -> sp.csr_matrix:
    """The labels without stored zeros; an error for what cannot be solved."""
    if features.shape[0] != Y.shape[0]:
        raise InputError(f"{features.shape[0]} rows of features, but {Y.shape[0]} of labels.")
    if not (math.isfinite(C) and C > 0):
        raise InputError(f"C must be a finite number above 0, got {C!r}.")
    if not np.isfinite(features.data).all():
        raise InputError("the features hold NaN or infinite values. Check how they were made.")
    labels = sp.csr_matrix(Y, copy=True)
    labels.sum_duplicates()
    labels.eliminate_zeros()
    if not bool((labels.data == 1).all()):
        raise InputError("the labels must be 0 or 1. Round soft labels before solving.")
    return labels


class _Products:
    """Products with the features and their transpose as embedding bags, the fastest way on two
    cores of those that torch and scipy offer."""

    def __init__(self, features: sp.csr_matrix, device: torch.device) -> None:
        self.n_documents, self.n_features = features.shape
        self.device = device
        self._rows = csr_tensors(features, device)
        self._columns = csr_tensors(sp.csr_matrix(features.T), device)

    def times(self, weights: Tensor) -> Tensor:
        """X W: (features, labels) to (documents, labels)."""
        return self._product(self._rows, weights)

    def transposed(self, coefficients: Tensor) -> Tensor:
        """X'A: (documents, labels) to (features, labels)."""
        return self._product(self._columns, coefficients)

    def kernel(self, coefficients: Tensor) -> Tensor:
        """XX'A: (documents, labels) to (documents, labels)."""
        return self.times(self.transposed(coefficients))

    @staticmethod
    def _product(matrix: list[Tensor], values: Tensor) -> Tensor:
        indices, starts, weights = matrix
        return F.embedding_bag(indices, values, starts[:-1], mode="sum", per_sample_weights=weights)


def _solve_in_chunks(
    X: _Products,
    Y: sp.csr_matrix,
    loss: BalancedLoss,
    C: float,
    tolerance: float,
    progress: OnProgress,
    chunks: Checkpoints | None,
) -> Linear:
    n_documents, n_labels = Y.shape
    size = max(1, min(n_labels, CHUNK_LABELS, CHUNK_PAIRS // max(1, n_documents)))
    # Labels of similar frequency converge in a similar number of iterations.
    order = np.argsort(-np.bincount(Y.indices, minlength=n_labels), kind="stable")
    head = Linear(torch.empty(n_labels, X.n_features), torch.empty(n_labels))
    cuts = [(start, min(start + size, n_labels)) for start in range(0, n_labels, size)]
    cost_of = _costs(loss, Y, order, C, X.device)

    def solve(cut: tuple[int, int]) -> tuple[Linear, float]:
        name = f"labels-{cut[0]}-{cut[1]}"
        saved = None if chunks is None else chunks.load(name)
        if saved is not None:
            tensors, facts = saved
            return Linear(tensors["weight"], tensors["bias"]), float(facts["loss"])
        problem = Problem(X.n_documents, cut[1] - cut[0], cost_of(*cut), X.kernel, X.device)
        coefficients, bias, value = minimise(problem, tolerance)
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


def _in_parallel(
    solve: Callable[[Any], Any], cuts: list[Any], device: torch.device
) -> Iterator[Any]:
    """Solve chunks; on a CPU one per core with one thread each, as threads that share a chunk wait
    for each other, on a busy machine ten times as long as they work."""
    if device.type != "cpu":
        yield from map(solve, cuts)
        return
    threads, workers = torch.get_num_threads(), min(len(cuts), joblib.cpu_count())
    executor = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield from executor.map(solve, cuts)
    finally:
        executor.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)


Cost = Callable[[Tensor], tuple[float, Tensor]]
"""From logits (documents, some labels) to their summed cost and its gradient."""


def _costs(
    loss: BalancedLoss, Y: sp.csr_matrix, order: NDArray[Any], C: float, device: torch.device
) -> Callable[[int, int], Cost]:
    """The cost of the labels start..stop-1 in the order of solving."""
    outline = torch.empty(1, device=device).expand(*Y.shape)
    mass = loss.document_mass(outline, read_targets(outline, csr_tensors(Y, device)[:2]), None)
    sorted_Y = sp.csr_matrix(sp.csc_matrix(Y)[:, order])
    sorted_Y.sort_indices()
    targets = read_targets(outline, csr_tensors(sorted_Y, device)[:2])
    positions = torch.from_numpy(order).to(device)
    terms = loss.terms(torch.float32).map(lambda values: values[positions])

    def cost_of(start: int, stop: int) -> Cost:
        batch = Batch(targets.columns(start, stop), document_mass=mass)
        some_terms = terms.map(lambda values: values[start:stop])

        def cost(logits: Tensor) -> tuple[float, Tensor]:
            at = logits.detach().requires_grad_(True)
            value = balanced_sum(at, batch, some_terms, C)
            (gradient,) = torch.autograd.grad(value, at)
            return float(value.detach()), gradient

        return cost

    return cost_of


def _solve_whole(
    X: _Products, Y: sp.csr_matrix, loss: MultiLabelLoss, C: float, progress: OnProgress
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
    targets = csr_tensors(Y, X.device)[:2]
    optimizer = torch.optim.LBFGS(
        [weight, bias],
        max_iter=LBFGS_STEPS,
        history_size=10,
        tolerance_grad=0.0,
        tolerance_change=1e-9,
        line_search_fn="strong_wolfe",
    )
    calls = count(1)

    def closure() -> Tensor:
        with torch.no_grad():
            logits = X.times(weight) + bias
        logits.requires_grad_(True)
        value = C * loss(logits, targets)
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


def label_information(features: sp.csr_matrix, Y: sp.csr_matrix) -> NDArray[np.float32]:
    """One weight per feature: its information about the labels to the power 1/4, of mean energy 1.

    That is the Kullback-Leibler divergence, summed over labels, of the label's frequency in the
    feature's documents from its frequency in all; three pseudo-documents of average labels are
    added, so that a word of two documents has little information.
    """
    n_documents, n_features = features.shape
    present = sp.csc_matrix(features, copy=True)
    present.eliminate_zeros()
    energy = np.asarray(present.multiply(present).sum(axis=0)).ravel()
    present.data = np.ones_like(present.data, dtype=np.float32)
    df = np.diff(present.indptr).astype(np.float64)
    counts = np.asarray(Y.sum(axis=0)).ravel()
    prior = np.clip(counts / n_documents, 0.5 / n_documents, 1 - 0.5 / (n_documents + 1))
    shrinkage = PRIOR / (df + PRIOR)
    # A label absent from all documents of a feature changes by the shrinkage alone, so absent pairs
    # are one sum per document frequency, and only the present ones are visited.
    values, inverse = np.unique(df, return_inverse=True)
    absent = np.array([_divergence(s * prior, prior).sum() for s in PRIOR / (values + PRIOR)])
    information = absent[inverse]
    gains = np.zeros(n_features)
    for start in range(0, n_features, BLOCK_FEATURES):
        stop = min(start + BLOCK_FEATURES, n_features)
        both = sp.coo_matrix(present[:, start:stop].T @ Y)
        rows, q = both.row + start, prior[both.col]
        posterior = (both.data + q * PRIOR) / (df[rows] + PRIOR)
        gain = _divergence(posterior, q) - _divergence(shrinkage[rows] * q, q)
        gains[start:stop] = np.bincount(both.row, gain, minlength=stop - start)
    weight = np.maximum(gains + information, 1e-3) ** POWER
    total = float((energy * weight**2).sum())
    if total > 0:
        weight *= math.sqrt(energy.sum() / total)
    return np.asarray(weight, dtype=np.float32)


def _divergence(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Kullback-Leibler divergence of Bernoulli variables, with p clipped."""
    p = np.clip(p, 1e-12, 1 - 1e-9)
    return np.asarray(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)))
