"""Every loss of LOSSES once more, one number at a time, straight from its published formula.

Plain Python floats and loops, sharing no code with the package: slow, and easy to check by eye.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, inf, log

Matrix = list[list[float]]


@dataclass(frozen=True)
class Case:
    """One batch, what is known of its labels, and all weights; 1 where nothing is weighed."""

    logits: Matrix
    targets: Matrix
    counts: list[float]
    n_samples: int
    label_weight: list[float]
    sample_weight: list[float]
    known: Matrix
    """1 where the element counts, 0 where it is masked."""

    def turned(self) -> Case:
        """Documents and labels change places."""
        columns = range(len(self.label_weight))

        def turn(matrix: Matrix) -> Matrix:
            return [[row[column] for row in matrix] for column in columns]

        return Case(
            turn(self.logits),
            turn(self.targets),
            self.counts,
            self.n_samples,
            self.sample_weight,
            self.label_weight,
            turn(self.known),
        )


# The terms of reduction="none".
Naive = Callable[[Case], "Matrix | list[float]"]


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

    def weight(case: Case, row: int, label: int) -> float:
        n = [max(count, 0.5) for count in case.counts]
        if weighting == "class-balanced":
            return (1 - 0.9) / (1 - 0.9 ** n[label])
        if weighting == "rebalanced":
            mu = min(1.0, case.n_samples / sum(case.counts))
            # The document's labels: of an unknown one nobody knows whether it is among them.
            labels = zip(case.targets[row], case.known[row], n, strict=True)
            mass = sum(known * y / n_j for y, known, n_j in labels)
            r = inf if mass == 0 else 1 / n[label] / mass
            return 0.1 + (1.0 if r == inf else sigmoid(10 * (r - mu)))
        return 1.0

    def elements(case: Case) -> Matrix:
        out: Matrix = []
        for i, row in enumerate(case.logits):
            out.append([])
            for j, z in enumerate(row):
                n = min(max(case.counts[j], 0.5), case.n_samples - 0.5)
                p = n / case.n_samples
                v = kappa * log(case.n_samples / n - 1) if tau is None else -tau * log(p / (1 - p))
                y = case.targets[i][j]
                cost = y * positive(sigmoid(z - v))
                cost += (1 - y) * negative(sigmoid(lambda_ * (z - v))) / lambda_
                out[-1].append(weight(case, i, j) * cost)
        return weighed(out, case)

    return elements


def by_element(positive: Callable[[float], float], negative: Callable[[float], float]) -> Naive:
    """y * positive(z) + (1 - y) * negative(z)."""

    def elements(case: Case) -> Matrix:
        costs = [
            [y * positive(z) + (1 - y) * negative(z) for z, y in zip(*rows, strict=True)]
            for rows in zip(case.logits, case.targets, strict=True)
        ]
        return weighed(costs, case)

    return elements


def weighed(costs: Matrix, case: Case) -> Matrix:
    """Every element times the weight of its label and of its document, 0 where it is unknown."""
    return [
        [
            cost * case.label_weight[j] * case.sample_weight[i] * case.known[i][j]
            for j, cost in enumerate(row)
        ]
        for i, row in enumerate(costs)
    ]


def asl_negative(z: float) -> float:
    p_m = max(sigmoid(z) - 0.05, 0)
    return -(p_m**4) * log(1 - p_m)


def hill_negative(z: float) -> float:
    p = sigmoid(z)
    return (1.5 - p) * p**2


def document_rows(case: Case) -> list[list[tuple[float, float, float]]]:
    """Per document the (weight, logit, target) of its elements.

    A set-wise loss weighs the elements inside its sums by their label and by whether they are
    known; the document's own weight multiplies the whole term.
    """
    return [
        [
            (weight * known, z, y)
            for weight, known, z, y in zip(case.label_weight, *rows, strict=True)
        ]
        for rows in zip(case.known, case.logits, case.targets, strict=True)
    ]


def zlpr(case: Case) -> list[float]:
    terms = []
    for own, row in zip(case.sample_weight, document_rows(case), strict=True):
        negatives = sum(w * (1 - y) * exp(z) for w, z, y in row)
        positives = sum(w * y * exp(-z) for w, z, y in row)
        terms.append(own * (log(1 + negatives) + log(1 + positives)))
    return terms


def dice(case: Case) -> list[float]:
    terms = []
    for own, row in zip(case.sample_weight, document_rows(case), strict=True):
        overlap = sum(w * sigmoid(z) * y for w, z, y in row)
        squares = sum(w * sigmoid(z) ** 2 for w, z, y in row) + sum(w * y * y for w, z, y in row)
        terms.append(own * (1 - (2 * overlap + 1) / (squares + 1)))
    return terms


def two_way(case: Case) -> list[float]:
    """Terms of the documents, then of the labels: the same maths on rows and on columns."""

    def one_way(case: Case) -> list[float]:
        terms = []
        for own, row in zip(case.sample_weight, document_rows(case), strict=True):
            negatives = sum(w * (1 - y) * exp(z / 1) for w, z, y in row)
            positives = sum(w * y * exp(-z / 4) for w, z, y in row)
            # T- lse(z/T-) + T+ lse(-z/T+) in the exponent is a product of powers outside of it.
            terms.append(own * log(1 + negatives**1 * positives**4))
        return terms

    return one_way(case) + one_way(case.turned())


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
