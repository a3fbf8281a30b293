"""Inputs that a loss, its settings or its label counts must refuse, made at random from good ones.

Each maker returns what was damaged, in a few words, and a call that must raise a LongtailError.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from math import inf, nan
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from longtail.labels import LabelEncoder, LabelStats, encode_labels, label_groups
from longtail.losses import LOSSES, MultiLabelLoss, build_loss

Call = Callable[[], Any]
HUGE = 10**400
NOT_TENSORS: tuple[Any, ...] = (None, "labels", 3, 1.5, [[1.0, 0.0]], {}, np.ones((2, 2)), object())
NOT_NUMBERS: tuple[Any, ...] = (
    nan, inf, -inf, "many", True, None, [1.0], {}, HUGE, 10**5000, 1e300, 3 + 1j, b"1", np.ones(2),
    torch.ones(2), object(),
)  # fmt: skip


def damaged_call(
    rng: random.Random, loss: MultiLabelLoss, logits: Tensor, check_values: bool
) -> tuple[str, Call]:
    """A call with one argument damaged; only where labels lie, unless values are checked."""
    makers = [damaged_csr, damaged_offsets]
    if check_values:
        makers += [damaged_target, damaged_logits, damaged_weights]
    kind, call = rng.choice(makers)(rng, loss, logits)

    def run() -> Any:
        loss.check_targets = check_values
        try:
            return call()
        finally:
            loss.check_targets = True

    return f"{kind}{'' if check_values else ', unchecked values'}", run


def damaged_csr(rng: random.Random, loss: MultiLabelLoss, logits: Tensor) -> tuple[str, Call]:
    n_rows, n_labels = logits.shape
    count = rng.randrange(1, n_rows * n_labels + 1)
    places = torch.tensor(sorted(rng.sample(range(n_rows * n_labels), count)))
    starts = torch.searchsorted(places // n_labels, torch.arange(n_rows + 1))
    labels, values = places % n_labels, torch.ones(count)
    part = rng.choice(["crow_indices", "col_indices", "sizes"])
    if part == "crow_indices":
        starts = bad_starts(rng, starts, count)
    elif part == "col_indices":
        labels = labels.clone()
        bad = (-1, n_labels, n_labels + 7, 10**9, -(2**62), 2**62)
        labels[rng.randrange(count)] = rng.choice(bad)
    elif rng.random() < 0.5:
        values = rng.choice(
            (values[1:], torch.ones(count + 1), torch.ones(0), torch.ones(count, 2))
        )
    else:
        short = starts[:-1] if n_rows > 1 else starts[:0]
        starts = rng.choice((short, torch.cat([starts, starts[-1:]]), starts.repeat(2, 1)))

    def call() -> Any:
        try:
            damaged = torch.sparse_csr_tensor(
                starts, labels, values, logits.shape, check_invariants=False
            )
        except Exception:
            # torch itself refuses to make it: no call of ours.
            damaged = None
        return loss(logits, damaged)

    return f"csr target with damaged {part}", call


def bad_starts(rng: random.Random, starts: Tensor, count: int) -> Tensor:
    """Starts that do not rise from 0 to the number of labels."""
    bad = starts.clone()
    end = rng.choice((count + 1, count + 1000, 10**6, count - 1, -1, 2**62))
    where = rng.choice(("first", "last", "inside", "all"))
    if where == "first":
        bad[0] = rng.choice((1, -1, 5, -(10**6)))
    elif where == "last":
        bad[-1] = end
    elif where == "inside" and len(starts) > 2:
        bad[rng.randrange(1, len(starts) - 1)] = rng.choice((-1, count + 1, 10**9, -(2**62)))
    else:
        bad += rng.choice((1, -1, 10**6))
    return bad


def damaged_offsets(rng: random.Random, loss: MultiLabelLoss, logits: Tensor) -> tuple[str, Call]:
    n_rows, n_labels = logits.shape
    labels = torch.arange(n_labels).repeat(n_rows)
    starts = torch.arange(0, n_rows * n_labels + 1, n_labels)
    part = rng.choice(["offsets", "label_indices", "types"])
    pair: tuple[Any, Any] = (labels, starts)
    if part == "offsets":
        pair = (labels, bad_starts(rng, starts, len(labels)))
    elif part == "label_indices":
        labels[rng.randrange(len(labels))] = rng.choice((-1, n_labels, 10**9, -(2**62)))
    else:
        wrong = rng.choice(
            (starts.double(), starts.bool(), starts.cfloat(), starts[None], starts[:0],
             starts.repeat(3), starts.to("meta"), starts[:, None].to_sparse_csr())
        )  # fmt: skip
        pair = (labels, wrong) if rng.random() < 0.5 else (wrong, starts)
        if pair[0] is wrong and wrong.dtype == starts.dtype:
            pair = (labels, torch.cat([starts, starts]))
    return f"damaged {part} of a pair", lambda: loss(logits, pair)


def damaged_target(rng: random.Random, loss: MultiLabelLoss, logits: Tensor) -> tuple[str, Call]:
    good = torch.zeros(logits.shape)
    part = rng.choice(["values", "shape", "type"])
    bad: Any
    if part == "values":
        bad = good.clone()
        bad[rng.randrange(bad.shape[0]), rng.randrange(bad.shape[1])] = rng.choice(
            (nan, inf, -inf, -1e-6, 1.0001, 2.0, -100.0, 1e30)
        )
        bad = bad if rng.random() < 0.7 else bad.to_sparse_csr()
    elif part == "shape":
        rows, labels = good.shape
        shapes = ((rows + 1, labels), (rows, labels + 1), (1, rows, labels), (labels,), ())
        bad = torch.zeros(rng.choice(shapes))
    else:
        types = (torch.complex64, torch.uint16, torch.float8_e4m3fn, torch.uint32)
        tensors = [good.to(dtype) for dtype in types]
        tensors += [good.to("meta"), good.to_sparse_coo(), good.to_sparse_csc(), nested(good)]
        pairs = ((good,), (good, good, good), [good, None])
        bad = rng.choice((*tensors, *NOT_TENSORS, *pairs))
    return f"target of damaged {part}", lambda: loss(logits, bad)


def nested(rows: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor(list(rows))


def damaged_logits(rng: random.Random, loss: MultiLabelLoss, logits: Tensor) -> tuple[str, Call]:
    types = (
        torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2,
    )  # fmt: skip
    plain = torch.zeros(logits.shape)
    tensors = [plain.to(dtype) for dtype in types]
    tensors += [plain[0], plain[None], plain.sum(), plain.to("meta"), nested(plain)]
    tensors += [plain.to_sparse_coo(), plain.to_sparse_csr()]
    bad = rng.choice((*tensors, *NOT_TENSORS))
    same = torch.zeros(logits.shape)
    return "damaged logits", lambda: loss(bad, same)


def damaged_weights(rng: random.Random, loss: MultiLabelLoss, logits: Tensor) -> tuple[str, Call]:
    rows = logits.shape[0]
    clean = torch.zeros(logits.shape)
    if rng.random() < 0.5:
        good = torch.ones(logits.shape, dtype=torch.bool)
        bad: Any = rng.choice(
            (good.int(), good.float(), good[:, :-1], good[None], good.to("meta"), good[0],
             good.to_sparse_coo(), nested(good.float()), *NOT_TENSORS[1:])
        )  # fmt: skip
        return "damaged mask", lambda: loss(logits, clean, mask=bad)
    weight = torch.ones(rows)
    wrong = weight.double()
    wrong[rng.randrange(rows)] = rng.choice((nan, inf, -inf, -1.0, -1e-30))
    bad = rng.choice(
        (wrong, weight.cfloat(), weight[None], weight[1:], torch.ones(rows + 1), weight.sum(),
         weight.to("meta"), weight.to(torch.float8_e5m2), weight.to_sparse_coo(), *NOT_TENSORS[1:])
    )  # fmt: skip
    return "damaged sample_weight", lambda: loss(logits, clean, sample_weight=bad)


def damaged_setting(rng: random.Random, name: str, stats: LabelStats) -> tuple[str, Call]:
    """An absurd value of one setting of a loss, or absurd statistics."""
    numbers = [key for key, value in LOSSES[name].constants.items() if isinstance(value, float)]
    part = rng.choice(["number", "word", "label_weight", "stats", "name"])
    if part == "number" and numbers:
        bad = {rng.choice(numbers): rng.choice(NOT_NUMBERS)}
        return f"setting of a {part}", lambda: build_loss(name, stats, **bad)
    if part == "label_weight":
        weight = rng.choice(
            ([1.0] * 4, [1.0] * 6, [nan] * 5, [-1.0] * 5, ["a"] * 5, [1j] * 5, torch.ones(5, 1),
             torch.ones(5).to("meta"), [1.0, [2.0]], object(), "12345", [HUGE] * 5, [1e300] * 5,
             torch.ones(5).to_sparse_coo(), np.ones(5, dtype=complex))
        )  # fmt: skip
        return f"setting of {part}", lambda: build_loss(name, stats, label_weight=weight)
    if part == "stats":
        wrong = rng.choice((5, "stats", [1, 2], stats.label_counts, {"a": 1}, object(), LabelStats))
        return "statistics of another type", lambda: build_loss(name, wrong)
    if part == "name":
        wrong = rng.choice((None, 3, "", "DB", "bce ", ["db"], object(), nan, b"db"))
        return "name of a loss", lambda: build_loss(wrong, stats)
    words: dict[str, tuple[Any, ...]] = {
        "reduction": ("avg", None, 3, nan, ["mean"], np.ones(2), object(), True, "Mean"),
        "check_targets": ("no", None, 2, nan, [], np.ones(2)),
        "dtype": ("float32", torch.int64, None, torch.complex64, torch.float16, float, 3),
        "gama": (1.0, None),
        "constants": ("reuter", 3, {}, nan, np.ones(2)),
    }
    key = rng.choice(list(words))
    value = rng.choice(words[key])
    return f"setting {key}", lambda: build_loss(name, stats, **{key: value})


def damaged_stats(rng: random.Random, name: str, stats: LabelStats) -> tuple[str, Call]:
    """Label counts, lists, matrices and names that no documents can have."""
    part = rng.choice(["from_counts", "n_samples", "from_lists", "from_matrix", "names", "groups"])
    make = LabelStats
    if part == "from_counts":
        bad = rng.choice(
            (None, "3", ["3"], [nan], [inf], [-1], [41], [HUGE], [10**5000], [1e308] * 3, [3 + 1j],
             [[1]], [], {}, {1: 3}, {"a": None}, {"a": "1"}, object(), [object()], [[1], [1, 2]],
             torch.ones(2, requires_grad=True) * 50, torch.ones(2, device="meta"), {3}, [None],
             np.array(["2020-01-01"], dtype="datetime64[D]"), np.ones(2, dtype=complex))
        )  # fmt: skip
        return part, lambda: make.from_counts(bad, 40)
    if part == "n_samples":
        bad = rng.choice(
            (None, True, 40.0, 0, -1, HUGE, 10**5000, 2**53 + 1, nan, "40", [40], 1e30)
        )
        return part, lambda: make.from_counts([1, 1], bad)
    if part == "from_lists":
        bad = rng.choice(
            (None, 3, "abc", ["a"], [None], [[1]], [[["a"]]], [["a"], 3], object(), nan, [[None]],
             [{"a": 1}, 2], [b"a"], 10**5000, [10**5000], [[10**5000]])
        )  # fmt: skip
        function = rng.choice((make.from_lists, encode_labels))
        return part, lambda: function(bad)
    if part == "from_matrix":
        return part, lambda: make.from_matrix(bad_matrix(rng))
    if part == "names":
        bad = rng.choice(("ab", ["a"], ["a", "a"], ["a", 1], [["a"], ["b"]], 3, [None, "a"], b"ab"))
        two = rng.choice((lambda n: make.from_counts([1, 1], 4, n), lambda n: make([1, 1], 4, n)))
        calls = (
            lambda: two(bad),
            lambda: make.from_matrix(np.eye(2), bad),
            lambda: LabelEncoder(bad if bad != ["a"] else "a"),
            lambda: LabelEncoder().declare(rng.choice(("ab", 3, None, [1], [None]))),
            lambda: LabelEncoder().extend(rng.choice((None, 3, []))),
            lambda: LabelEncoder().add(rng.choice((None, 3, "a", [1], [["a"]]))),
        )
        return part, rng.choice(calls)
    bad = rng.choice((None, "a", [], [nan], [[1]], ["1"], object(), [1j], 3))
    cuts = rng.choice(((2, 1), (nan, 1), (1,), (1, 2, 3), "ab", 3, (None, 1), (HUGE, 1)))
    return part, rng.choice((lambda: label_groups(bad), lambda: label_groups([1, 2, 3], cuts)))


def bad_matrix(rng: random.Random) -> Any:
    good = sp.csr_matrix(np.eye(3))
    kind = rng.choice(["plain", "csr", "coo", "csc"])
    if kind == "plain":
        return rng.choice(
            (None, "ab", [["1"]], [["a"]], [1, 2], np.ones((2, 2, 2)), [[nan]], [[1], [1, 2]],
             [[1j]], [[HUGE]], [[2.0]], [[-1.0]], np.zeros((0, 3)), np.zeros((3, 0)), object(), 3,
             torch.ones(2, 2, requires_grad=True) * 2, torch.ones(2, 2).to_sparse_csr(),
             good.astype(complex), good * nan, np.array([["x"]], dtype=object))
        )  # fmt: skip
    damaged = good.asformat(kind)
    if kind == "coo":
        rng.choice((damaged.row, damaged.col))[1] = rng.choice((-1, 3, 10**6))
    elif rng.random() < 0.5:
        damaged.indices[1] = rng.choice((-1, 3, 10**6))
    else:
        damaged.indptr[rng.randrange(4)] = rng.choice((-5, 10**6, 17))
    return damaged
