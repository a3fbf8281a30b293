"""Splits and folds: stratified, random, by time, by ids.

The same random_state gives the same parts on every platform. `stratified` is iterative
stratification (Sechidis et al. 2011) on sparse labels, rarest label first, after a pass that puts a
document of every label with enough documents into each part.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from numbers import Integral, Real

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.checks import check_integer, check_number
from longtail.data.textdata import TextData
from longtail.errors import DataError, InputError, UnknownNameError

IntArray = NDArray[np.int64]
ISO_DATE = re.compile(r"\d{4}(-\d{2}(-\d{2}(\D.*)?)?)?$")
Shares = Sequence[float]
"""Positive shares that sum to 1, (0.7, 0.1, 0.2), or whole numbers of documents, (6769, 1000)."""
DEFAULT_SPLIT = "stratified"
# Documents of a label compared for a part that lacks it: more are slower and add little.
CANDIDATES = 64
Pairs = Iterator[tuple[TextData, TextData]]


def split(
    data: TextData,
    shares: Shares = (0.7, 0.1, 0.2),
    method: str = DEFAULT_SPLIT,
    random_state: int = 0,
) -> tuple[TextData, ...]:
    """Split into one part per share, in the order of the data; methods: see SPLITS."""
    parts = _assign(data, shares, method, random_state)
    return tuple(data.select(parts == part) for part in range(len(shares)))


def paper_split(
    data: TextData, n_held_out: int, random_state: int = 123
) -> tuple[TextData, TextData]:
    """Split like scikit-learn's train_test_split, but in the order of the data.

    The paper's Reuters validation part is `paper_split(train, 1000)`, train in numeric id order.
    """
    check_integer("the number of documents to hold out", n_held_out, 1)
    if n_held_out >= len(data):
        raise InputError(f"cannot hold out {n_held_out} of {len(data)} documents.")
    held_out = np.zeros(len(data), dtype=np.bool_)
    held_out[_generator(random_state).permutation(len(data))[:n_held_out]] = True
    return data.select(~held_out), data.select(held_out)


def split_by_ids(data: TextData, ids: Iterable[str]) -> tuple[TextData, TextData]:
    """Split into the documents without and with one of these ids, in the order of the data."""
    if isinstance(ids, str):
        raise InputError(f"expected a list of ids, got {ids!r}. Write [{ids!r}].")
    if data.ids is None:
        raise DataError(
            "a split by ids needs the ids of the documents, and these have none. Name their field "
            "with id_field (--id-field) when reading."
        )
    known, names = Counter(data.ids), dict.fromkeys(ids)
    if not names:
        raise InputError("expected the id of at least one document, got none.")
    if unknown := [name for name in names if name not in known]:
        raise DataError(
            f"{len(unknown)} of {len(names)} ids belong to no document, the first of them: "
            f"{', '.join(map(repr, unknown[:3]))}. Check that the ids are from these data."
        )
    if repeated := [name for name in names if known[name] > 1]:
        raise DataError(f"the id {repeated[0]!r} belongs to more than one document.")
    chosen = np.array([identity in names for identity in data.ids])
    return data.select(~chosen), data.select(chosen)


def folds(data: TextData, k: int, method: str = DEFAULT_SPLIT, random_state: int = 0) -> Pairs:
    """Return k pairs of a training part and a held-out part.

    `random` and `stratified` hold out every document once. `time` cuts k + 1 blocks and holds out
    each but the first, training on the earlier ones.
    """
    check_integer("the number of folds", k, 2)
    n_documents, n_parts = len(data), k + (method == "time")
    if k > n_documents:
        raise DataError(f"cannot make {k} folds of {n_documents} documents. Use fewer folds.")
    sizes = [n_documents // n_parts + (p < n_documents % n_parts) for p in range(n_parts)]
    if method == "stratified":
        parts = assign_stratified(data.Y, sizes, random_state, first_is_train=False)
    else:
        parts = _assign(data, sizes, method, random_state)
    if method == "time":
        return ((data.select(parts < fold), data.select(parts == fold)) for fold in range(1, k + 1))
    return ((data.select(parts != fold), data.select(parts == fold)) for fold in range(k))


def folds_by_ids(data: TextData, groups: Iterable[Iterable[str]]) -> Pairs:
    """Return a training part and a held-out part per group of ids; other documents always train."""
    pairs = [split_by_ids(data, group) for group in groups]
    if len(pairs) < 2:
        raise InputError(f"expected at least two folds, got {len(pairs)}. See split_by_ids.")
    held_out = Counter(name for _, fold in pairs for name in fold.ids or ())
    if shared := [name for name, count in held_out.items() if count > 1]:
        raise DataError(f"the id {shared[0]!r} is in two groups. Name each document once.")
    return iter(pairs)


def part_sizes(n_documents: int, shares: Shares) -> IntArray:
    """Return the documents per part: by largest remainder, and at least one."""
    if len(shares) < 2 or not all(isinstance(share, Real) and share > 0 for share in shares):
        raise InputError(f"shares must be two or more positive numbers, got {tuple(shares)}.")
    if n_documents < len(shares):
        raise DataError(
            f"cannot split {n_documents:,} document{'s' * (n_documents != 1)} into {len(shares)} "
            "parts, each with at least one. Give more documents, or a folder of parts: train, "
            "validation, test."
        )
    is_whole = all(isinstance(share, Integral) for share in shares)
    if is_whole and sum(shares) == n_documents:
        return np.array(shares, dtype=np.int64)
    if is_whole or abs(math.fsum(shares) - 1) > 1e-6:
        raise InputError(
            f"shares must sum to 1, as in (0.7, 0.1, 0.2), or be whole numbers that sum to the "
            f"{n_documents} documents, got {tuple(shares)} = {math.fsum(shares):g}."
        )
    # Fractions: floor(100 * 0.29) is 28 in floats, and a sum of floors may exceed the total.
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
    """Return a random part for each document."""
    sizes = part_sizes(n_documents, shares)
    parts = np.empty(n_documents, dtype=np.int64)
    order = _generator(random_state).permutation(n_documents)
    parts[order] = np.repeat(np.arange(len(sizes)), sizes)
    return parts


def assign_by_time(dates: Sequence[str] | None, shares: Shares) -> IntArray:
    """Return the part of each document, earlier dates in earlier parts.

    Dates are compared as strings. Documents of one date stay together, so sizes only approximate
    the shares.
    """
    if dates is None:
        raise DataError(
            "a split by time needs the dates of the documents, and these have none. Name their "
            "field with date_field (--date-field) when reading, or choose another split_method "
            "(--split-method): random or stratified."
        )
    sizes = part_sizes(len(dates), shares)
    for row, date in enumerate(dates):
        if not ISO_DATE.match(date):
            raise DataError(
                f"document {row + 1:,} has the date {date!r}, expected a date such as 1987, "
                "1987-02 or 1987-02-26. Correct the dates, or choose another split_method "
                "(--split-method)."
            )
    days, day_of, n_of_day = np.unique(dates, return_inverse=True, return_counts=True)
    if len(days) < len(sizes):
        raise DataError(
            f"cannot split {len(days)} different dates into {len(sizes)} parts without splitting "
            "a date. Use fewer parts or another method."
        )
    # Documents before each day, where a part may begin; every later part needs a day.
    before = np.cumsum(n_of_day) - n_of_day
    part_of_day = np.zeros(len(days), dtype=np.int64)
    first = 1
    for part, ideal in enumerate(np.cumsum(sizes)[:-1], start=1):
        last = len(days) - (len(sizes) - part)
        first += int(np.argmin(np.abs(before[first : last + 1] - ideal)))
        part_of_day[first:] = part
        first += 1
    return part_of_day[day_of]


def assign_stratified(
    Y: sp.csr_matrix, shares: Shares, random_state: int, *, first_is_train: bool = True
) -> IntArray:
    """Return the part of each document such that labels are spread in proportion to part sizes.

    `first_is_train`: labels with fewer documents than parts go to the first part first.
    """
    sizes = part_sizes(Y.shape[0], shares)
    # Shuffled rows: the first document of a label is a random one.
    order = _generator(random_state).permutation(Y.shape[0])
    dealing = _Dealing(Y[order], sizes, first_is_train)
    rarest_first = np.argsort(dealing.left, kind="stable")
    if first_is_train:
        # First: a label without training documents cannot be learnt.
        dealing.cover(rarest_first, [0])
    # Most frequent first: a part too small for all labels lacks the rarest.
    dealing.cover(rarest_first[::-1], range(len(sizes)))
    dealing.balance()
    without_label = dealing.parts < 0
    dealing.parts[without_label] = np.repeat(np.arange(len(sizes)), dealing.capacity)
    parts = np.empty(len(order), dtype=np.int64)
    parts[order] = dealing.parts
    return parts


Assign = Callable[[TextData, Shares, int], IntArray]
SPLITS: dict[str, Assign] = {
    "random": lambda data, *how: assign_random(len(data), *how),
    "stratified": lambda data, *how: assign_stratified(data.Y, *how),
    "time": lambda data, shares, random_state: assign_by_time(data.dates, shares),
}


def _assign(data: TextData, shares: Shares, method: str, random_state: int) -> IntArray:
    if method not in SPLITS:
        raise UnknownNameError("split", method, SPLITS)
    return SPLITS[method](data, shares, random_state)


def _generator(random_state: int) -> np.random.RandomState:
    """Return the legacy generator, whose stream numpy has frozen; default_rng's may change."""
    check_integer("random_state", random_state, 0)
    check_number("random_state", random_state, 0, 2**32 - 1)
    return np.random.RandomState(int(random_state))


class _Dealing:
    """The state of stratification: per part its capacity and the documents it wants of each label.

    `wanted` counts sixteenths of a document: integers, whose ties are the same on every platform,
    and coarse enough that folds whose sizes differ by one document tie; otherwise the larger ones
    would get all rare labels.
    """

    one = 16

    def __init__(self, matrix: sp.csr_matrix, sizes: IntArray, first_is_train: bool) -> None:
        by_label = matrix.tocsc()
        self.labels_at, self.labels_from = matrix.indices, matrix.indptr
        self.rows_at, self.rows_from = by_label.indices, by_label.indptr
        self.capacity = sizes.copy()
        self.left = np.diff(by_label.indptr).astype(np.int64)
        n_documents = matrix.shape[0]
        self.parts = np.full(n_documents, -1, dtype=np.int64)
        self.wanted = (2 * self.one * self.left[:, None] * sizes + n_documents) // (2 * n_documents)
        self.lacking = np.repeat(self.left[:, None] >= len(sizes), len(sizes), axis=1)
        self.lacking[:, 0] |= first_is_train

    def cover(self, labels: IntArray, parts: Sequence[int]) -> None:
        """Give each of these parts a document of every label it lacks."""
        for label in labels:
            for part in parts:
                if self.lacking[label, part] and self.capacity[part]:
                    rows = self._rows_left(label)[:CANDIDATES]
                    if len(rows):
                        best = self._most_useful(rows, part)
                        self._give(rows[best : best + 1], np.array([part]))

    def balance(self) -> None:
        """Assign the remaining documents, rarest label first."""
        heap = self._by_count()
        while heap:
            count, label = heapq.heappop(heap)
            if count != self.left[label]:
                continue  # outdated: pushed again when the count fell
            fallen = np.unique(self._deal_label(label))
            if len(heap) + len(fallen) > 4 * len(self.left):
                # Bounds the outdated entries, else up to one per label of each document.
                heap = self._by_count()
            else:
                for other in fallen[self.left[fallen] > 0].tolist():
                    heapq.heappush(heap, (int(self.left[other]), other))

    def _by_count(self) -> list[tuple[int, int]]:
        return sorted((count, label) for label, count in enumerate(self.left.tolist()) if count)

    def _deal_label(self, label: int) -> IntArray:
        """Give each document of a label to the part that wants it most; ties: by capacity."""
        rows = self._rows_left(label)
        want, free = self.wanted[label].tolist(), self.capacity.tolist()
        dealt = np.empty(len(rows), dtype=np.int64)
        for k in range(len(rows)):
            open_parts = (part for part in range(len(free)) if free[part])
            dealt[k] = part = max(open_parts, key=lambda part: (want[part], free[part]))
            want[part] -= self.one
            free[part] -= 1
        return self._give(rows, dealt)

    def _rows_left(self, label: int) -> IntArray:
        rows: IntArray = self.rows_at[self.rows_from[label] : self.rows_from[label + 1]]
        return rows[self.parts[rows] < 0]

    def _labels_of(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Return the concatenated labels of these documents, and the number of each."""
        labels = [self.labels_at[self.labels_from[row] : self.labels_from[row + 1]] for row in rows]
        return np.concatenate(labels), np.array([len(part) for part in labels], dtype=np.int64)

    def _most_useful(self, rows: IntArray, part: int) -> int:
        """Return the index of the document whose labels this part lacks most, compared to others.

        Rare labels count more.
        """
        labels, lengths = self._labels_of(rows)
        lacking = self.lacking[labels].astype(np.int64)
        use = len(self.capacity) * lacking[:, part] - lacking.sum(axis=1)
        weighted = (use << 20) // self.left[labels]
        total = np.add.reduceat(weighted, np.cumsum(lengths) - lengths)
        # The sum would give small parts the documents with the most labels.
        return int((total // lengths).argmax())

    def _give(self, rows: IntArray, parts: IntArray) -> IntArray:
        """Assign documents to parts, and return their labels."""
        labels, lengths = self._labels_of(rows)
        label_parts = np.repeat(parts, lengths)
        self.parts[rows] = parts
        self.capacity -= np.bincount(parts, minlength=len(self.capacity))
        self.lacking[labels, label_parts] = False
        np.subtract.at(self.left, labels, 1)
        np.subtract.at(self.wanted, (labels, label_parts), self.one)
        return labels
