"""A linear head solved to convergence: C x summed loss + half the squared weights.

With more words than documents it is cheaper to solve for A in W = X'A. The labels are independent
problems: a truncated Newton method solves a chunk of them at a time.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from longtail.errors import InputError, LongtailError
from longtail.losses import BalancedLoss, MultiLabelLoss
from longtail.losses.analytic import balanced_sum
from longtail.losses.targets import Targets, read_targets
from longtail.losses.terms import BalancedTerms, BatchWeights
from longtail.progress import OnProgress, Progress, ignore
from longtail.training.information import label_information
from longtail.training.newton import Problem, minimise

# Labels of a chunk: fewer share fewer steps, more fill the caches. Of many documents fewer labels,
# as a dozen matrices of documents x labels are alive at a time.
CHUNK_LABELS, CHUNK_PAIRS = 32, 50_000_000
# Numbers in the weights of a loss that cannot be cut into chunks.
WHOLE_WEIGHTS = 200_000_000
LBFGS_STEPS = 200


class ChunkStore(Protocol):
    """Keeps finished chunks, so that an interrupted solution resumes after them."""

    def save(self, tensors: Mapping[str, Tensor], facts: Any = None, name: str = ...) -> None: ...

    def load(self, name: str = ...) -> tuple[dict[str, Tensor], dict[str, Any]] | None: ...


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
    chunks: ChunkStore | None = None,
) -> Linear:
    """The linear head that minimises C x loss + half the squared weights.

    Args:
        features: documents x features. Y: documents x labels.
        loss: with reduction "sum".
        informed: the L2 term is half the sum of (w / s)^2 with s of `label_information`, so that
            informative words are regularised less; False: s = 1.
        tolerance: norm of the final gradient relative to the first.
        chunks: keeps finished chunks.
    """
    if loss.reduction != "sum":
        raise InputError(f"expected a loss with reduction 'sum', got {loss.reduction!r}.")
    Y = _check(features, Y, C)
    device = torch.device(device)
    loss = copy.deepcopy(loss).to(device)  # the caller's stays where it is
    if informed:
        scale = label_information(features, Y)
        scaled = sp.csr_matrix(features @ sp.diags(scale), dtype=np.float32)
        options: Any = dict(tolerance=tolerance, device=device, progress=progress, chunks=chunks)
        head = solve_linear(scaled, Y, loss, C, informed=False, **options)
        return Linear(head.weight.mul_(torch.from_numpy(scale)), head.bias)
    data = Products.of(features, device)
    if not isinstance(loss, BalancedLoss):
        return _solve_whole(data, Y, loss, C, progress)
    n_documents, n_labels = Y.shape
    size = max(1, min(n_labels, CHUNK_LABELS, CHUNK_PAIRS // max(1, n_documents)))
    # Labels of similar frequency converge in a similar number of iterations.
    order = np.argsort(-np.bincount(Y.indices, minlength=n_labels), kind="stable")
    costs = _Costs.of(loss, Y, order, C, device)
    head = Linear(torch.empty(n_labels, features.shape[1]), torch.empty(n_labels))
    cuts = [(start, min(start + size, n_labels)) for start in range(0, n_labels, size)]

    def solve(cut: tuple[int, int]) -> tuple[Linear, float]:
        return _solve_chunk(data, costs, *cut, tolerance, chunks)

    for (start, stop), (part, value) in zip(cuts, _in_parallel(solve, cuts, device), strict=True):
        labels = torch.from_numpy(order[start:stop].copy())
        head.weight[labels], head.bias[labels] = part.weight, part.bias
        progress(Progress("solving", stop, n_labels, "labels", loss=value))
    return head


def _in_parallel(
    solve: Callable[[Any], Any], cuts: list[Any], device: torch.device
) -> Iterator[Any]:
    """Solve chunks; on a CPU one per core with one thread each, as threads that share a chunk wait
    for each other, on a busy machine ten times as long as they work."""
    workers = min(len(cuts), _cores()) if device.type == "cpu" else 1
    threads = torch.get_num_threads()
    executor = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield from executor.map(solve, cuts) if device.type == "cpu" else map(solve, cuts)
    finally:
        executor.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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


@dataclasses.dataclass(frozen=True)
class Products:
    """Products with the features and their transpose as embedding bags, the fastest way on two
    cores of those that torch and scipy offer."""

    n_documents: int
    n_features: int
    rows: tuple[Tensor, Tensor, Tensor]
    columns: tuple[Tensor, Tensor, Tensor]

    @classmethod
    def of(cls, features: sp.csr_matrix, device: torch.device) -> Products:
        transposed = sp.csr_matrix(features.T)
        n_documents, n_features = features.shape
        return cls(n_documents, n_features, _bags(features, device), _bags(transposed, device))

    def times(self, weights: Tensor) -> Tensor:
        """X W: (features, labels) to (documents, labels)."""
        return _product(self.rows, weights)

    def transposed(self, coefficients: Tensor) -> Tensor:
        """X'A: (documents, labels) to (features, labels)."""
        return _product(self.columns, coefficients)


def _bags(matrix: sp.csr_matrix, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    indices = torch.from_numpy(matrix.indices.astype(np.int64)).to(device)
    starts = torch.from_numpy(matrix.indptr[:-1].astype(np.int64)).to(device)
    return indices, starts, torch.from_numpy(matrix.data.astype(np.float32)).to(device)


def _product(bags: tuple[Tensor, Tensor, Tensor], values: Tensor) -> Tensor:
    indices, starts, weights = bags
    return F.embedding_bag(indices, values, starts, mode="sum", per_sample_weights=weights)


@dataclasses.dataclass(frozen=True)
class _Costs:
    """The loss of all documents, by label, with the labels in the order of solving."""

    targets: Targets
    terms: BalancedTerms
    mass: Tensor | None
    C: float

    @classmethod
    def of(
        cls, loss: BalancedLoss, Y: sp.csr_matrix, order: Any, C: float, device: torch.device
    ) -> _Costs:
        outline = torch.empty(1, device=device).expand(*Y.shape)
        mass = loss.document_mass(outline, read_targets(outline, _flat(Y, device)), None)
        sorted_Y = sp.csr_matrix(sp.csc_matrix(Y)[:, order])
        sorted_Y.sort_indices()
        targets = read_targets(outline, _flat(sorted_Y, device))
        terms = loss.terms(torch.float32)
        positions = torch.from_numpy(np.asarray(order)).to(device)
        per_label = {
            name: value[positions]
            for name in ("shift", "label_weight", "inverse_counts")
            if (value := getattr(terms, name)) is not None
        }
        return cls(targets, dataclasses.replace(terms, **per_label), mass, C)

    def columns(self, start: int, stop: int) -> Callable[[Tensor], tuple[float, Tensor]]:
        """From logits (documents, some labels) to their summed cost and its gradient."""
        targets, terms = self.targets.columns(start, stop), self.terms.columns(start, stop)

        def cost(logits: Tensor) -> tuple[float, Tensor]:
            at = logits.detach().requires_grad_(True)
            value = balanced_sum(at, targets, terms, BatchWeights(self.mass), self.C)
            (gradient,) = torch.autograd.grad(value, at)
            return float(value.detach()), gradient

        return cost


def _flat(Y: sp.csr_matrix, device: torch.device) -> tuple[Tensor, Tensor]:
    labels = torch.from_numpy(Y.indices.astype(np.int64)).to(device)
    return labels, torch.from_numpy(Y.indptr.astype(np.int64)).to(device)


def _solve_chunk(
    data: Products,
    costs: _Costs,
    start: int,
    stop: int,
    tolerance: float,
    chunks: ChunkStore | None,
) -> tuple[Linear, float]:
    name = f"labels-{start}-{stop}"
    saved = None if chunks is None else chunks.load(name)
    if saved is not None:
        tensors, facts = saved
        return Linear(tensors["weight"], tensors["bias"]), float(facts["loss"])
    problem = Problem(
        data.n_documents,
        stop - start,
        costs.columns(start, stop),
        lambda a: data.times(data.transposed(a)),
        data.rows[2].device,
    )
    coefficients, bias, value = minimise(problem, tolerance)
    head = Linear(data.transposed(coefficients).T.contiguous().cpu(), bias.cpu())
    if not bool(torch.isfinite(head.weight).all() and torch.isfinite(head.bias).all()):
        raise LongtailError(f"the linear head has no finite solution with C={costs.C:g}. Lower C.")
    if chunks is not None:
        chunks.save(head._asdict(), {"loss": value}, name)
    return head, value


def _solve_whole(
    data: Products, Y: sp.csr_matrix, loss: MultiLabelLoss, C: float, progress: OnProgress
) -> Linear:
    """L-BFGS for losses that do not decompose into labels."""
    n_labels = int(Y.shape[1])
    if data.n_features * n_labels > WHOLE_WEIGHTS:
        raise InputError(
            f"this loss does not decompose into labels, and {data.n_features:,} features x "
            f"{n_labels:,} labels are too many for it. Use another loss, fewer features "
            "(max_features), or a hidden layer (hidden)."
        )
    device = data.rows[2].device
    weight = torch.zeros(data.n_features, n_labels, device=device)
    bias = torch.zeros(n_labels, device=device, requires_grad=True)
    weight.requires_grad_(True)
    targets = _flat(Y, device)
    optimizer = torch.optim.LBFGS(
        [weight, bias],
        max_iter=LBFGS_STEPS,
        history_size=10,
        tolerance_grad=0.0,
        tolerance_change=1e-9,
        line_search_fn="strong_wolfe",
    )
    done = [0]

    def closure() -> Tensor:
        with torch.no_grad():
            logits = data.times(weight) + bias
        logits.requires_grad_(True)
        value = C * loss(logits, targets)
        (slope,) = torch.autograd.grad(value, logits)
        with torch.no_grad():
            weight.grad = data.transposed(slope) + weight
            bias.grad = slope.sum(dim=0) + bias
            total = value + 0.5 * (weight.square().sum() + bias.square().sum())
        if not bool(torch.isfinite(total)):
            raise LongtailError(f"the loss became {float(total)} with C={C:g}. Lower C.")
        done[0] += 1
        step = min(done[0], LBFGS_STEPS)
        progress(Progress("solving", step, LBFGS_STEPS, "steps", loss=float(total)))
        return total.detach()  # type: ignore[no-any-return]

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return Linear(weight.detach().T.contiguous().cpu(), bias.detach().cpu())
