"""Dividing documents into parts: at random, with every label in every part, by time, by ids.

An `assign_...` function gives the part of each document; `split`, `folds` and their variants divide
TextData by it. The same random_state gives the same parts on every platform.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.checks import check_integer
from longtail.data.stratify import deal
from longtail.data.textdata import TextData
from longtail.errors import DataError, InputError, UnknownNameError

IntArray = NDArray[np.int64]
ISO_DATE = re.compile(r"\d{4}(-\d{2}(-\d{2}(\D.*)?)?)?$")
Shares = Sequence[float]
"""Positive shares that sum to 1, (0.7, 0.1, 0.2), or whole numbers of documents, (6769, 1000)."""
Pairs = Iterator[tuple[TextData, TextData]]


def split(
    data: TextData, shares: Shares = (0.7, 0.1, 0.2), method: str = "random", random_state: int = 0
) -> tuple[TextData, ...]:
    """One part per share, documents in their old order; see SPLITS for the methods.

    Example:
        >>> data = TextData.from_lists(["a", "b", "c", "d"], [["x"], ["y"], ["x"], ["y"]])
        >>> train, test = split(data, (0.5, 0.5), "stratified")
        >>> train.stats().label_counts.tolist(), test.stats().label_counts.tolist()
        ([1.0, 1.0], [1.0, 1.0])
    """
    parts = _method(method)(data, shares, random_state)
    return tuple(data.select(parts == part) for part in range(len(shares)))


def random_split(
    data: TextData, fraction: float, random_state: int = 0
) -> tuple[TextData, TextData]:
    """Two parts, the second with about `fraction` of the documents and at least one."""
    if not 0 < fraction < 1:
        raise InputError(f"the fraction to split off must lie between 0 and 1, got {fraction}.")
    if len(data) < 2:
        raise DataError(f"cannot split {len(data)} document: at least two are needed.")
    n_second = min(len(data) - 1, max(1, round(len(data) * fraction)))
    return paper_split(data, n_second, random_state)


def paper_split(
    data: TextData, n_held_out: int, random_state: int = 123
) -> tuple[TextData, TextData]:
    """The documents that scikit-learn's train_test_split keeps and holds out, in their old order.

    The paper's Reuters validation part is `paper_split(train, 1000)`, train in numeric id order.
    """
    if not _is_whole(n_held_out) or not 0 < n_held_out < len(data):
        raise InputError(
            f"the number of documents to hold out must be a whole number from 1 to "
            f"{len(data) - 1}, as there are {len(data)} documents, got {n_held_out!r}."
        )
    held_out = np.zeros(len(data), dtype=np.bool_)
    held_out[_generator(random_state).permutation(len(data))[:n_held_out]] = True
    return data.select(~held_out), data.select(held_out)


def split_by_ids(data: TextData, ids: Iterable[str]) -> tuple[TextData, TextData]:
    """The documents not named, and those named, both in the order of the data."""
    chosen = assign_by_ids(data.ids, [ids]) == 0
    return data.select(~chosen), data.select(chosen)


def folds(data: TextData, k: int, method: str = "random", random_state: int = 0) -> Pairs:
    """k times a training part and a held-out part.

    `random` and `stratified` hold out every document once. `time` cuts k + 1 blocks and holds out
    each but the first, training on all that is earlier: never on the future.
    """
    assign = _method(method)
    check_integer("the number of folds", k, 2)
    n_documents, n_parts = len(data), k + (method == "time")
    if k > n_documents:
        raise DataError(f"cannot make {k} folds of {n_documents} documents. Use fewer folds.")
    sizes = [n_documents // n_parts + (p < n_documents % n_parts) for p in range(n_parts)]
    if method == "stratified":
        parts = assign_stratified(data.Y, sizes, random_state, first_is_train=False)
    else:
        parts = assign(data, sizes, random_state)
    if method == "time":
        return ((data.select(parts < fold), data.select(parts == fold)) for fold in range(1, k + 1))
    return _folds(data, parts, k)


def folds_by_ids(data: TextData, groups: Sequence[Iterable[str]]) -> Pairs:
    """A training part and a held-out part for each group of ids; unnamed documents always train."""
    if len(groups) < 2:
        raise InputError(f"expected at least two folds, got {len(groups)}. See split_by_ids.")
    return _folds(data, assign_by_ids(data.ids, groups), len(groups))


def _folds(data: TextData, parts: IntArray, k: int) -> Pairs:
    return ((data.select(parts != fold), data.select(parts == fold)) for fold in range(k))


def part_sizes(n_documents: int, shares: Shares) -> IntArray:
    """Documents per part: shares by largest remainder, with at least one document in each part."""
    if len(shares) < 2:
        raise InputError(f"expected the shares of at least two parts, got {shares!r}.")
    if n_documents < len(shares):
        raise DataError(
            f"cannot split {n_documents} documents into {len(shares)} parts. Use fewer parts."
        )
    if not all(isinstance(share, Real) and share > 0 for share in shares):
        raise InputError(f"shares must be positive numbers, got {tuple(shares)}.")
    if all(map(_is_whole, shares)):
        if sum(shares) != n_documents:
            raise InputError(
                f"whole numbers of documents must sum to the {n_documents} documents that there "
                f"are, got {tuple(shares)} = {sum(shares)}. Shares, such as (0.8, 0.2), sum to 1."
            )
        return np.array(shares, dtype=np.int64)
    if abs(math.fsum(shares) - 1) > 1e-6:
        raise InputError(
            f"shares must sum to 1, got {tuple(shares)} = {math.fsum(shares):g}. Write them like "
            "(0.7, 0.1, 0.2), or give whole numbers of documents."
        )
    # Fractions, because floor(100 * 0.29) is 28 in binary and a sum of floors can pass the total.
    exact = [Fraction(float(share)) for share in shares]
    quotas = [n_documents * share / sum(exact) for share in exact]
    sizes = [math.floor(quota) for quota in quotas]
    by_remainder = sorted(range(len(sizes)), key=lambda part: sizes[part] - quotas[part])
    for part in by_remainder[: n_documents - sum(sizes)]:
        sizes[part] += 1
    for part, size in enumerate(sizes):
        if size == 0:
            sizes[sizes.index(max(sizes))] -= 1
            sizes[part] = 1
    return np.array(sizes, dtype=np.int64)


def assign_random(n_documents: int, shares: Shares, random_state: int) -> IntArray:
    """The part of each document, by a random order of the documents."""
    sizes = part_sizes(n_documents, shares)
    parts = np.empty(n_documents, dtype=np.int64)
    order = _generator(random_state).permutation(n_documents)
    parts[order] = np.repeat(np.arange(len(sizes)), sizes)
    return parts


def assign_by_time(dates: Sequence[str] | None, shares: Shares) -> IntArray:
    """The part of each document, earlier dates in earlier parts; dates are compared as strings.

    Documents of one date stay together, so that a part is as near to its share as dates allow.
    """
    if dates is None:
        raise DataError(
            "a split by time needs the dates of the documents, and these have none. Name their "
            "field with date_field when reading, or use the method 'random' or 'stratified'."
        )
    sizes = part_sizes(len(dates), shares)
    for row, date in enumerate(dates):
        if not date:
            raise DataError(
                f"document {row} has no date, so that it is neither early nor late. "
                "Give it one, or leave it out of a split by time."
            )
        if not ISO_DATE.match(date):
            raise DataError(
                f"the date {date!r} is not in ISO 8601, as 1987, 1987-02 or 1987-02-26, so that "
                "sorting dates would not put them in order. Write ISO dates, or use another method."
            )
    days, day_of, n_of_day = np.unique(dates, return_inverse=True, return_counts=True)
    if len(days) < len(sizes):
        raise DataError(
            f"cannot cut {len(days)} different dates into {len(sizes)} parts without "
            "dividing a date. Use fewer parts or another method."
        )
    # Documents before each day: where a part may begin. Each later part needs a day of its own.
    before = np.cumsum(n_of_day) - n_of_day
    part_of_day = np.zeros(len(days), dtype=np.int64)
    first = 1
    for part, ideal in enumerate(np.cumsum(sizes)[:-1], start=1):
        last = len(days) - (len(sizes) - part)
        first += int(np.argmin(np.abs(before[first : last + 1] - ideal)))
        part_of_day[first:] = part
        first += 1
    return part_of_day[day_of]


def assign_by_ids(ids: Sequence[str] | None, groups: Sequence[Iterable[str]]) -> IntArray:
    """The group that names each document, and -1 for a document that none names."""
    if ids is None:
        raise DataError(
            "a split by ids needs the ids of the documents, and these have none. Name their field "
            "with id_field when reading."
        )
    row_of = {identity: row for row, identity in enumerate(ids)}
    if len(row_of) != len(ids):
        repeated = next(identity for row, identity in enumerate(ids) if row_of[identity] != row)
        raise DataError(
            f"the id {repeated!r} belongs to more than one document. Make the ids unique, or "
            "choose documents by position with select."
        )
    parts = np.full(len(ids), -1, dtype=np.int64)
    unknown: dict[str, None] = {}
    n_named = 0
    for part, group in enumerate(groups):
        if isinstance(group, str):
            raise InputError(f"expected a list of ids, got {group!r}. Write [{group!r}].")
        names = dict.fromkeys(group)
        if not names:
            raise InputError(f"group {part} holds no ids. Name at least one document.")
        n_named += len(names)
        unknown |= {name: None for name in names if name not in row_of}
        for name in names.keys() - unknown.keys():
            if parts[row_of[name]] >= 0:
                raise DataError(
                    f"the id {name!r} is in the groups {parts[row_of[name]]} and {part}. "
                    "Name each document once."
                )
            parts[row_of[name]] = part
    if unknown:
        raise DataError(
            f"{len(unknown)} of {n_named} ids belong to no document, the first of them: "
            f"{', '.join(map(repr, list(unknown)[:3]))}. Check that they are of these documents."
        )
    return parts


def assign_stratified(
    Y: Any, shares: Shares, random_state: int, *, first_is_train: bool = True
) -> IntArray:
    """The part of each document, such that every label is spread over the parts by their sizes.

    See stratify.py. A label with fewer documents than there are parts goes to the first part before
    others, unless `first_is_train` is off.
    """
    matrix = sp.csr_matrix(Y, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    sizes = part_sizes(matrix.shape[0], shares)
    # In a random order of rows "the first document of a label" is a random one and needs no draw.
    order = _generator(random_state).permutation(matrix.shape[0])
    parts = np.empty(len(order), dtype=np.int64)
    parts[order] = deal(matrix[order], sizes, first_is_train)
    return parts


Assign = Callable[[TextData, Shares, int], IntArray]
SPLITS: dict[str, Assign] = {
    "random": lambda data, *how: assign_random(len(data), *how),
    "stratified": lambda data, *how: assign_stratified(data.Y, *how),
    "time": lambda data, shares, random_state: assign_by_time(data.dates, shares),
}


def _method(name: str) -> Assign:
    if name not in SPLITS:
        raise UnknownNameError("split", name, SPLITS)
    return SPLITS[name]


def _generator(random_state: int) -> np.random.RandomState:
    """The legacy generator: numpy has frozen its stream, that of default_rng may change."""
    if not _is_whole(random_state) or not 0 <= random_state < 2**32:
        raise InputError(
            f"random_state must be a whole number from 0 to {2**32 - 1}, got {random_state!r}."
        )
    return np.random.RandomState(int(random_state))


def _is_whole(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
