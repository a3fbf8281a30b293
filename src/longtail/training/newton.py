"""A truncated Newton method for many problems of one shape at a time, one per column.

Each column minimises cost(K a + b) + half a'K a + half b squared over a (one number per document)
and b, where K = XX' is given by its products alone. Newton's equations are solved roughly by
conjugate gradients in the geometry of K; every column has its own step and its own end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

MOST_STEPS, MOST_INNER, MOST_SEARCH, MOST_BIAS = 60, 100, 10, 30
# How well Newton's equations are solved, and the distance for second derivatives by difference.
INNER_TOLERANCE, DIFFERENCE = 0.1, 1e-2
# A step is taken when the slope at its end is between these shares of the slope at its beginning.
STEEPEST_DOWN, STEEPEST_UP = -0.7, 0.3
TINY = 1e-30


@dataclass(frozen=True)
class Problem:
    """What is minimised.

    Args:
        cost: from logits (documents, columns) to their summed cost and its gradient.
        product: from (documents, columns) to K times that.
    """

    n_documents: int
    n_columns: int
    cost: Callable[[Tensor], tuple[float, Tensor]]
    product: Callable[[Tensor], Tensor]
    device: torch.device

    def curvature(self, logits: Tensor, gradient: Tensor) -> Tensor:
        """Second derivatives of the cost, element by element; where it bends down, 0."""
        ahead = self.cost(logits + DIFFERENCE)[1]
        return ((ahead - gradient) / DIFFERENCE).clamp_(min=0)


@dataclass
class _Point:
    """Where the columns stand."""

    sums: Tensor
    bias: Tensor
    logits: Tensor
    gradient: Tensor
    value: float


@dataclass(frozen=True)
class _Step:
    """A direction: in the sums, in the logits without the bias, and in the bias."""

    sums: Tensor
    logits: Tensor
    bias: Tensor


def minimise(problem: Problem, tolerance: float) -> tuple[Tensor, Tensor, float]:
    """The sums (documents, columns), the biases (columns,), and the cost there."""
    at = _only_bias(problem)
    first: Tensor | None = None
    for _ in range(MOST_STEPS):
        slope, bias_slope = at.sums + at.gradient, at.gradient.sum(dim=0) + at.bias
        image = problem.product(slope)
        length = (slope * image).sum(dim=0).clamp(min=0) + bias_slope.square()
        first = length.clone() if first is None else first
        done = length <= tolerance**2 * first
        if bool(done.all()):
            break
        bend = problem.curvature(at.logits, at.gradient)
        step = _direction(problem, slope, image, bias_slope, length, bend, ~done)
        start = (image * step.sums).sum(dim=0) + bias_slope * step.bias
        _walk(problem, at, step, start, done)
    return at.sums, at.bias, at.value


def _only_bias(problem: Problem) -> _Point:
    """The best biases with no weights at all: where the columns begin."""
    shape = (problem.n_documents, problem.n_columns)
    bias = torch.zeros(problem.n_columns, device=problem.device)
    value, gradient = problem.cost(bias.expand(shape))
    for _ in range(MOST_BIAS):
        logits = bias.expand(shape)
        bend = problem.curvature(logits, gradient).sum(dim=0).clamp(min=1e-8) + 1
        move = (-(gradient.sum(dim=0) + bias) / bend).clamp(-2, 2)
        bias = bias + move
        value, gradient = problem.cost(bias.expand(shape))
        if bool((move.abs() < DIFFERENCE).all()):
            break
    return _Point(torch.zeros_like(gradient), bias, bias.expand(shape).clone(), gradient, value)


def _direction(
    problem: Problem,
    slope: Tensor,
    image: Tensor,
    bias_slope: Tensor,
    length: Tensor,
    bend: Tensor,
    live: Tensor,
) -> _Step:
    """Newton's step by conjugate gradients; columns that are done stay where they are."""
    left, left_bias = -slope, -bias_slope
    way, way_image, way_bias = left.clone(), -image, left_bias.clone()
    found = _Step(torch.zeros_like(slope), torch.zeros_like(slope), torch.zeros_like(bias_slope))
    sums, logits, bias = found.sums, found.logits, found.bias
    open_, size, enough = live.clone(), length.clone(), INNER_TOLERANCE**2 * length
    for _ in range(MOST_INNER):
        bent = bend * (way_image + way_bias)
        bent_bias = bent.sum(dim=0) + way_bias
        bent += way
        along = (way_image * bent).sum(dim=0) + way_bias * bent_bias
        share = torch.where(open_ & (along > 0), size / along.clamp(min=TINY), 0.0)
        sums.addcmul_(share, way)
        logits.addcmul_(share, way_image)
        bias.addcmul_(share, way_bias)
        left.addcmul_(share, bent, value=-1)
        left_bias = left_bias - share * bent_bias
        image = problem.product(left)
        now = (left * image).sum(dim=0).clamp(min=0) + left_bias.square()
        open_ = open_ & (now > enough)
        if not bool(open_.any()):
            break
        ratio = now / size.clamp(min=TINY)
        size = now
        way = left + ratio * way
        way_image = image + ratio * way_image
        way_bias = left_bias + ratio * way_bias
    return found


def _walk(problem: Problem, at: _Point, step: _Step, start: Tensor, done: Tensor) -> None:
    """Go along the step as far as its slope says, each column by itself."""
    move = step.logits + step.bias
    fixed = (at.sums * step.logits).sum(dim=0) + at.bias * step.bias
    growing = (step.sums * step.logits).sum(dim=0) + step.bias.square()
    size = start.abs()
    far = torch.ones_like(start)
    low, high = torch.zeros_like(start), torch.full_like(start, torch.inf)
    low_slope, high_slope = start.clone(), torch.full_like(start, torch.inf)
    for _ in range(MOST_SEARCH):
        taken = far
        logits = at.logits + far * move
        value, gradient = problem.cost(logits)
        slope = (gradient * move).sum(dim=0) + fixed + far * growing
        short = (slope < STEEPEST_DOWN * size) & torch.isfinite(high)
        open_ = ((slope > STEEPEST_UP * size) | short) & ~done
        if not bool(open_.any()):
            break
        falls = slope < 0
        low = torch.where(open_ & falls, far, low)
        low_slope = torch.where(open_ & falls, slope, low_slope)
        high = torch.where(open_ & ~falls, far, high)
        high_slope = torch.where(open_ & ~falls, slope, high_slope)
        part = (low_slope / (low_slope - high_slope)).clamp(0.1, 0.5)
        far = torch.where(open_, low + (high - low) * part, far)
    at.sums = at.sums + taken * step.sums
    at.bias = at.bias + taken * step.bias
    at.logits, at.gradient, at.value = logits, gradient, value
