"""A truncated Newton method for many problems at a time, one per column.

Each column minimises cost(K a + b) + a'K a / 2 + b^2 / 2 over a (one coefficient per document) and
a bias b, where K = XX' is available through its products only. Newton's equations are solved
inexactly by conjugate gradients in the K inner product; every column has its own step size and
stopping point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

MAX_ITERATIONS, MAX_CG, MAX_LINE_SEARCH, MAX_BIAS = 60, 100, 10, 30
# Relative residual of Newton's equations; step of the finite difference of gradients.
CG_TOLERANCE, DIFFERENCE = 0.1, 1e-2
# A step is accepted if the slope at its end lies between these multiples of the initial slope.
LOWER_SLOPE, UPPER_SLOPE = -0.7, 0.3
TINY = 1e-30


@dataclass(frozen=True)
class Problem:
    """The function to minimise."""

    cost: Callable[[Tensor], tuple[float, Tensor]]
    """Maps logits (documents, columns) to their summed cost and its gradient."""
    product: Callable[[Tensor], Tensor]
    """Multiplies K by a matrix (documents, columns)."""

    def curvature(self, logits: Tensor, gradient: Tensor) -> Tensor:
        """Element-wise second derivatives of the cost; 0 where it is not convex."""
        ahead = self.cost(logits + DIFFERENCE)[1]
        return ((ahead - gradient) / DIFFERENCE).clamp_(min=0)


@dataclass
class _Iterate:
    """The current point of all columns; `gradient` is the cost's, with respect to the logits."""

    coefficients: Tensor
    bias: Tensor
    logits: Tensor
    gradient: Tensor
    value: float


class _Direction(NamedTuple):
    """A direction for coefficients and bias; `product` is K times the former."""

    coefficients: Tensor
    product: Tensor
    bias: Tensor


def minimise(problem: Problem, zeros: Tensor, tolerance: float) -> tuple[Tensor, Tensor, float]:
    """Return the coefficients (documents, columns), the biases (columns,), and the cost there.

    `zeros`: initial coefficients, which determine shape and device.
    """
    point = _best_bias(problem, zeros)
    initial: Tensor | None = None
    for _ in range(MAX_ITERATIONS):
        gradient = point.coefficients + point.gradient
        bias_gradient = point.gradient.sum(dim=0) + point.bias
        product = problem.product(gradient)
        squared_norm = (gradient * product).sum(dim=0).clamp(min=0) + bias_gradient.square()
        initial = squared_norm.clone() if initial is None else initial
        converged = squared_norm <= tolerance**2 * initial
        if bool(converged.all()):
            break
        curvature = problem.curvature(point.logits, point.gradient)
        direction = _newton_direction(
            problem, gradient, product, bias_gradient, squared_norm, curvature, ~converged
        )
        slope = (product * direction.coefficients).sum(dim=0) + bias_gradient * direction.bias
        _line_search(problem, point, direction, slope, converged)
    return point.coefficients, point.bias, point.value


def _best_bias(problem: Problem, zeros: Tensor) -> _Iterate:
    """The starting point: optimal biases, with all coefficients 0."""
    shape = zeros.shape
    bias = zeros.new_zeros(shape[1])
    value, gradient = problem.cost(bias.expand(shape))
    for _ in range(MAX_BIAS):
        logits = bias.expand(shape)
        curvature = problem.curvature(logits, gradient).sum(dim=0).clamp(min=1e-8) + 1
        step = (-(gradient.sum(dim=0) + bias) / curvature).clamp(-2, 2)
        bias = bias + step
        value, gradient = problem.cost(bias.expand(shape))
        if bool((step.abs() < DIFFERENCE).all()):
            break
    return _Iterate(zeros, bias, bias.expand(shape).clone(), gradient, value)


def _newton_direction(
    problem: Problem,
    gradient: Tensor,
    product: Tensor,
    bias_gradient: Tensor,
    squared_norm: Tensor,
    curvature: Tensor,
    active: Tensor,
) -> _Direction:
    """Newton's direction by conjugate gradients; 0 in columns that are not active."""
    residual, bias_residual = -gradient, -bias_gradient
    search, search_product, search_bias = residual.clone(), -product, bias_residual.clone()
    result = _Direction(
        torch.zeros_like(gradient), torch.zeros_like(gradient), torch.zeros_like(bias_gradient)
    )
    active, norm, enough = active.clone(), squared_norm.clone(), CG_TOLERANCE**2 * squared_norm
    for _ in range(MAX_CG):
        image = curvature * (search_product + search_bias)
        bias_image = image.sum(dim=0) + search_bias
        image += search
        along = (search_product * image).sum(dim=0) + search_bias * bias_image
        step_size = torch.where(active & (along > 0), norm / along.clamp(min=TINY), 0.0)
        result.coefficients.addcmul_(step_size, search)
        result.product.addcmul_(step_size, search_product)
        result.bias.addcmul_(step_size, search_bias)
        residual.addcmul_(step_size, image, value=-1)
        bias_residual = bias_residual - step_size * bias_image
        product = problem.product(residual)
        new_norm = (residual * product).sum(dim=0).clamp(min=0) + bias_residual.square()
        active = active & (new_norm > enough)
        if not bool(active.any()):
            break
        ratio = new_norm / norm.clamp(min=TINY)
        norm = new_norm
        search = residual + ratio * search
        search_product = product + ratio * search_product
        search_bias = bias_residual + ratio * search_bias
    return result


def _line_search(
    problem: Problem, point: _Iterate, direction: _Direction, initial: Tensor, converged: Tensor
) -> None:
    """Move the point along the direction, with step sizes found by interpolating slopes.

    `initial`: the slope at step size 0.
    """
    move = direction.product + direction.bias
    linear = (point.coefficients * direction.product).sum(dim=0) + point.bias * direction.bias
    quadratic = (direction.coefficients * direction.product).sum(dim=0) + direction.bias.square()
    scale = initial.abs()
    step_size = torch.ones_like(initial)
    low, high = torch.zeros_like(initial), torch.full_like(initial, torch.inf)
    low_slope, high_slope = initial.clone(), torch.full_like(initial, torch.inf)
    for _ in range(MAX_LINE_SEARCH):
        accepted = step_size
        logits = point.logits + step_size * move
        value, gradient = problem.cost(logits)
        slope = (gradient * move).sum(dim=0) + linear + step_size * quadratic
        too_short = (slope < LOWER_SLOPE * scale) & torch.isfinite(high)
        rejected = ((slope > UPPER_SLOPE * scale) | too_short) & ~converged
        if not bool(rejected.any()):
            break
        descending = slope < 0
        low = torch.where(rejected & descending, step_size, low)
        low_slope = torch.where(rejected & descending, slope, low_slope)
        high = torch.where(rejected & ~descending, step_size, high)
        high_slope = torch.where(rejected & ~descending, slope, high_slope)
        fraction = (low_slope / (low_slope - high_slope)).clamp(0.1, 0.5)
        step_size = torch.where(rejected, low + (high - low) * fraction, step_size)
    point.coefficients = point.coefficients + accepted * direction.coefficients
    point.bias = point.bias + accepted * direction.bias
    point.logits, point.gradient, point.value = logits, gradient, value
