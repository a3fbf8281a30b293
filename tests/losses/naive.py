"""Every loss of LOSSES once more, one number at a time, straight from its published formula.

Plain Python floats and loops, sharing no code with the package: slow, and easy to check by eye.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, inf, log

Matrix = list[list[float]]
# logits, targets, label counts, number of training documents -> the terms of reduction="none"
Naive = Callable[[Matrix, Matrix, list[float], int], "Matrix | list[float]"]


def sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


def focal(gamma: float) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """Costs of a probability where the label applies, and where it does not."""
    return (
        lambda p: -((1 - p) ** gamma) * log(p),
        lambda p: -(p**gamma) * log(1 - p),
    )


def balanced(
    gamma: float = 0, ntr: bool = False, weighting: str = "none", tau: float | None = None
) -> Naive:
    """The paper's family; `tau` adds the label's prior to the logit instead."""
    kappa, lambda_ = (0.05, 2.0) if ntr else (0.0, 1.0)
    positive, negative = focal(gamma)

    def weight(row: int, label: int, targets: Matrix, counts: list[float], n_samples: int) -> float:
        n = [max(count, 0.5) for count in counts]
        if weighting == "class-balanced":
            return (1 - 0.9) / (1 - 0.9 ** n[label])
        if weighting == "rebalanced":
            mu = min(1.0, n_samples / sum(counts))
            mass = sum(y / n_j for y, n_j in zip(targets[row], n, strict=True))
            r = inf if mass == 0 else 1 / n[label] / mass
            return 0.1 + (1.0 if r == inf else sigmoid(10 * (r - mu)))
        return 1.0

    def elements(logits: Matrix, targets: Matrix, counts: list[float], n_samples: int) -> Matrix:
        out: Matrix = []
        for i, row in enumerate(logits):
            out.append([])
            for j, z in enumerate(row):
                n = min(max(counts[j], 0.5), n_samples - 0.5)
                p = n / n_samples
                v = kappa * log(n_samples / n - 1) if tau is None else -tau * log(p / (1 - p))
                y = targets[i][j]
                cost = y * positive(sigmoid(z - v))
                cost += (1 - y) * negative(sigmoid(lambda_ * (z - v))) / lambda_
                out[-1].append(weight(i, j, targets, counts, n_samples) * cost)
        return out

    return elements


def by_element(positive: Callable[[float], float], negative: Callable[[float], float]) -> Naive:
    """y * positive(z) + (1 - y) * negative(z)."""

    def elements(logits: Matrix, targets: Matrix, counts: list[float], n_samples: int) -> Matrix:
        return [
            [y * positive(z) + (1 - y) * negative(z) for z, y in zip(*rows, strict=True)]
            for rows in zip(logits, targets, strict=True)
        ]

    return elements


def asl_negative(z: float) -> float:
    p_m = max(sigmoid(z) - 0.05, 0)
    return -(p_m**4) * log(1 - p_m)


def hill_negative(z: float) -> float:
    p = sigmoid(z)
    return (1.5 - p) * p**2


def zlpr(logits: Matrix, targets: Matrix, counts: list[float], n_samples: int) -> list[float]:
    terms = []
    for row, target_row in zip(logits, targets, strict=True):
        negatives = sum((1 - y) * exp(z) for z, y in zip(row, target_row, strict=True))
        positives = sum(y * exp(-z) for z, y in zip(row, target_row, strict=True))
        terms.append(log(1 + negatives) + log(1 + positives))
    return terms


def dice(logits: Matrix, targets: Matrix, counts: list[float], n_samples: int) -> list[float]:
    terms = []
    for row, target_row in zip(logits, targets, strict=True):
        p = [sigmoid(z) for z in row]
        overlap = sum(a * y for a, y in zip(p, target_row, strict=True))
        squares = sum(a * a for a in p) + sum(y * y for y in target_row)
        terms.append(1 - (2 * overlap + 1) / (squares + 1))
    return terms


def two_way(logits: Matrix, targets: Matrix, counts: list[float], n_samples: int) -> list[float]:
    """Terms of the documents, then of the labels: the same maths on rows and on columns."""

    def one_way(rows: Matrix, target_rows: Matrix) -> list[float]:
        terms = []
        for row, target_row in zip(rows, target_rows, strict=True):
            pairs = list(zip(row, target_row, strict=True))
            negatives = sum((1 - y) * exp(z / 1) for z, y in pairs)
            positives = sum(y * exp(-z / 4) for z, y in pairs)
            # T- lse(z/T-) + T+ lse(-z/T+) in the exponent is a product of powers outside of it.
            terms.append(log(1 + negatives**1 * positives**4))
        return terms

    def turned(matrix: Matrix) -> Matrix:
        return [list(column) for column in zip(*matrix, strict=True)]

    return one_way(logits, targets) + one_way(turned(logits), turned(targets))


NAIVE: dict[str, Naive] = {
    "bce": balanced(),
    "fl": balanced(2),
    "cb": balanced(2, weighting="class-balanced"),
    "r-fl": balanced(2, weighting="rebalanced"),
    "ntr-fl": balanced(2, ntr=True),
    "db-0fl": balanced(0, ntr=True, weighting="rebalanced"),
    "cb-ntr": balanced(2, ntr=True, weighting="class-balanced"),
    "db": balanced(2, ntr=True, weighting="rebalanced"),
    "cb-bce": balanced(0, weighting="class-balanced"),
    "r-bce": balanced(0, weighting="rebalanced"),
    "ntr-bce": balanced(0, ntr=True),
    "asl": by_element(lambda z: -(1 - sigmoid(z)) * log(sigmoid(z)), asl_negative),
    "hill": by_element(lambda z: focal(2)[0](sigmoid(z - 1)), hill_negative),
    "zlpr": zlpr,
    "two-way": two_way,
    "dice": dice,
    "logit-adjusted": balanced(0, tau=1.0),
}
