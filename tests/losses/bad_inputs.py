"""Inputs that a loss, its settings or its label counts must refuse, with parts of the messages.

Tests check every row of the tables and the words; the attack draws from them at random.
"""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable, Iterator
from math import inf, nan
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from longtail.labels import LabelEncoder, LabelStats, encode_labels, label_groups
from longtail.losses import LOSSES, MultiLabelLoss, build_loss

from .cases import csr_tensor, edge_stats, to_csr, to_offsets

Call = Callable[[], Any]
Words = tuple[str, ...]
# Beyond float64, and beyond what Python prints.
HUGE = (10**400, 10**5000)
NOT_TENSORS: tuple[Any, ...] = ("labels", 3, 1.5, [[1.0, 0.0]], {}, np.ones((2, 2)), object())
NOT_NUMBERS: tuple[Any, ...] = (
    nan, inf, -inf, "many", True, [1.0], {}, HUGE[0], 1e7, 1e300, -1e300, 3 + 1j, b"1", np.ones(2),
    torch.ones(2), object(),
)  # fmt: skip


def nested(rows: Tensor) -> Tensor:
    with warnings.catch_warnings():
        # torch warns once per process that its nested tensors are a prototype.
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor(list(rows))


def bad_batches(shape: tuple[int, int]) -> Iterator[tuple[dict[str, Any], Words]]:
    """Yield arguments of a loss, one of them bad."""
    n_documents = shape[0]
    logits, hard = torch.zeros(shape), torch.zeros(shape, dtype=torch.int64)
    hard[0, 0] = 1
    known, weight = torch.ones(shape, dtype=torch.bool), torch.ones(n_documents)
    masks = {
        ("mask must be a dense tensor of booleans of shape", str(shape), "got", "Use True where"): (
            *NOT_TENSORS, known.to_sparse_coo(), nested(known.float()), known.to("meta"),
            known.int(), known.float(), known[:, :-1], known[None], known[0],
        ),
    }  # fmt: skip
    weights = {
        ("sample_weight must be a dense tensor of numbers", "on cpu, got", "One per document"): (
            *NOT_TENSORS, weight.to_sparse_coo(), weight.to("meta"),
            weight.cfloat(), weight[None], weight[1:], torch.ones(n_documents + 1), weight.sum(),
            weight.to(torch.float8_e5m2), weight.to(torch.uint16),
        ),
        # 1e300 is infinite in the float32 of the loss.
        ("sample weights must be finite and not negative, got",): [
            torch.cat([weight[1:].double(), torch.tensor([bad], dtype=torch.float64)])
            for bad in (nan, inf, -inf, -1.0, -1e-30, 1e300)
        ],
    }  # fmt: skip
    tables = {"input": _bad_logits(logits), "target": _bad_targets(hard)}
    for name, table in {**tables, "mask": masks, "sample_weight": weights}.items():
        for words, values in table.items():
            yield from (
                ({"input": logits, "target": hard} | {name: value}, words) for value in values
            )


def _bad_logits(logits: Tensor) -> dict[Words, Any]:
    types = (
        torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2,
    )  # fmt: skip
    return {
        ("dense tensor of floating-point numbers", "got", "raw outputs", "targets second"): (
            *(logits.to(t) for t in types), None, *NOT_TENSORS, logits[0], logits[None],
            logits.sum(), nested(logits), logits.to_sparse_coo(), to_csr(logits),
        ),
    }  # fmt: skip


def _bad_targets(hard: Tensor) -> dict[Words, Any]:
    n_documents, n_labels = shape = tuple(hard.shape)
    shapes = ((n_documents + 1, n_labels), (n_documents, n_labels + 1), (1, *shape), (n_labels,),
              ())  # fmt: skip
    outside = [torch.where(hard == 1, bad, 0.0)
               for bad in (nan, inf, -inf, -1e-6, 1.0001, 2.0, -100.0, 1e30)]  # fmt: skip
    labels, offsets = to_offsets(hard)
    starts = (f"offsets must be a dense tensor of integers of shape ({n_documents})", "Pass a")
    flat = "must be a dense tensor of integers of shape"
    return {
        ("target must be a dense tensor of numbers", "got", "Pass a"): (
            None, *NOT_TENSORS, (hard,), (hard, hard, hard), hard.to("meta"),
            *(torch.zeros(shape) for shape in shapes), hard.to_sparse_coo(), nested(hard.float()),
            *(hard.to(dtype) for dtype in (torch.complex64, torch.uint16, torch.float8_e4m3fn)),
        ),
        ("target must have the shape", str(shape), "Pass a"): (to_csr(torch.ones(shapes[0])),),
        ("must be a dense tensor", "got", "check_invariants=True"): (
            to_csr(hard).to("meta"), to_csr(hard.cfloat()), to_csr(hard, torch.uint16),
        ),
        ("lie in [0, 1], got values from", "Use 1 where", "unknown labels with mask"): (
            *outside, *map(to_csr, outside), 2 * hard,
        ),
        ("do not differentiate targets", "target.detach()"): (hard.float().requires_grad_(),),
        ("label_indices " + flat, "Pass a"): [(bad, offsets) for bad in (
            labels.double(), labels.bool(), labels.cfloat(), labels[None], labels.to("meta"),
            to_csr(labels[:, None]), None, [0],
        )],
        ("offsets " + flat, "Pass a"): [(labels, bad) for bad in (
            offsets.double(), offsets.bool(), offsets.cfloat(), offsets[None], offsets.to("meta"),
            None, [0],
        )],
        starts: ((labels, offsets[:0]), (labels, offsets.repeat(3))),
    }  # fmt: skip


def bad_positions(rng: random.Random, shape: tuple[int, int]) -> tuple[str, Any, Words]:
    """Draw a sparse target that points outside the batch, or with inconsistent parts."""
    n_documents, n_labels = shape
    count = rng.randrange(1, n_documents * n_labels + 1)
    flat = torch.tensor(sorted(rng.sample(range(n_documents * n_labels), count)))
    starts = torch.searchsorted(flat // n_labels, torch.arange(n_documents + 1))
    labels, values = flat % n_labels, torch.ones(count)
    form, part = rng.choice(["csr", "offsets"]), rng.choice(["starts", "labels", "sizes"])
    words: Words = ("must be a dense tensor of", "got", "check_invariants=True")
    if part == "starts":
        starts = _bad_starts(rng, starts, count)
        name = "crow_indices" if form == "csr" else "offsets"
        words = (f"{name} must rise from 0 to the number of label indices ({count}), got",)
    elif part == "labels":
        bad = (-1, n_labels, n_labels + 7, 10**9, -(2**62), 2**62)
        labels[rng.randrange(count)] = rng.choice(bad)
        words = (f"label indices must lie in 0..{n_labels - 1} for {n_labels} labels, got values",)
    else:
        form = "csr"
        starts, labels, values = rng.choice([
            (starts[:-1], labels, values), (torch.cat([starts, starts[-1:]]), labels, values),
            (starts, labels, values[1:]), (starts, labels, torch.ones(count + 1)),
            (starts, labels[1:], values), (starts.float(), labels, values),
            (starts[None], labels[None], values[None]),
        ])  # fmt: skip
    if form == "offsets":
        return f"pair with bad {part}", (labels, starts), words
    return f"csr target with bad {part}", csr_tensor(starts, labels, values, shape, False), words


def _bad_starts(rng: random.Random, starts: Tensor, count: int) -> Tensor:
    """Draw starts that do not ascend from 0 to the number of labels."""
    bad = starts.clone()
    where = rng.choice(("first", "last", "inside", "all"))
    if where == "first":
        bad[0] = rng.choice((1, -1, 5, -(10**6)))
    elif where == "last":
        bad[-1] = rng.choice((count + 1, count + 1000, 10**6, count - 1, -1, 2**62))
    elif where == "inside" and len(starts) > 2:
        bad[rng.randrange(1, len(starts) - 1)] = rng.choice((-1, count + 1, 10**9, -(2**62)))
    else:
        bad += rng.choice((1, -1, 10**6))
    return bad


def bad_call(rng: random.Random, loss: MultiLabelLoss, logits: Tensor) -> tuple[str, Call]:
    """Draw a call with one bad argument."""
    shape = (logits.shape[0], logits.shape[1])
    kind, target, words = bad_positions(rng, shape)
    arguments = {"input": logits, "target": target}
    if rng.random() < 0.4:
        arguments, words = rng.choice(list(bad_batches(shape)))
        kind = f"batch: {words[0][:34]}"
    return kind, lambda: loss(**arguments)


# Loss, constant, value just out of range, and the range.
NUMBERS: list[tuple[str, str, float, str]] = [
    ("fl", "gamma", -1, "of at least 0"),
    ("db", "kappa", inf, "of at least -1e+06"),
    ("db", "lambda_", 0, "of at least 1e-06"),
    ("cb", "cb_beta", -1, "of at least 0 and at most 1"),
    ("db", "alpha", -0.1, "of at least 0"),
    ("db", "beta", -inf, "of at least -1e+06"),
    ("db", "mu", inf, "of at least -1e+06"),
    ("db", "negative_scale", -1, "of at least 0"),
    ("asl", "gamma_positive", -1, "of at least 0"),
    ("asl", "gamma_negative", -1, "of at least 0"),
    ("asl", "margin", -0.1, "of at least 0 and at most 1"),
    ("hill", "gamma", -2, "of at least 0"),
    ("hill", "margin", inf, "of at least -1e+06"),
    ("hill", "peak", 0.5, "of at least 1"),
    ("two-way", "positive_temperature", 0, "of at least 0.001"),
    ("two-way", "negative_temperature", 0, "of at least 0.001"),
    ("dice", "smooth", 0, "of at least 1e-06"),
]
SETTINGS: dict[tuple[str, str], tuple[Any, ...]] = {
    ("reduction", "reduction must be one of none, mean, batchmean, sum, got"): (
        "avg", None, 3, nan, ["mean"], np.ones(2), object(), True, "Mean",
    ),
    ("dtype", "dtype must be torch.float32 or torch.float64"): (
        "float32", torch.int64, None, torch.complex64, torch.float16, float, 3,
    ),
    ("label_weight", "label_weight must be one finite, non-negative number per label, got"): (
        ["a"] * 5, object(), "12345", [1.0, [2.0]], torch.ones(5, device="meta"), [HUGE[0]] * 5,
        torch.ones(5).to_sparse_coo(), [nan] * 5, [1e300] * 5, [-1.0] * 5, torch.ones(5, 1),
    ),
    ("label_weight", "label_weight must hold one number for each of the 5 labels, got"): (
        [1.0] * 4, [1.0] * 6,
    ),
    ("gama", "unknown argument of loss"): (1.0, None),
    ("constants", "unknown set of constants"): ("reuter", 3, nan),
    ("stats", "stats must be a LabelStats, got"): (5, "stats", [1, 2], {"a": 1}, LabelStats),
    ("name", "unknown loss"): (
        None, 3, "", "bce ", "focal", "ntr", "r_fl", object(), nan, b"db",
    ),
}  # fmt: skip


def bad_setting(rng: random.Random, name: str) -> tuple[str, Call]:
    """Draw a bad value of one setting of a loss."""
    numbers = [key for key, value in LOSSES[name].constants.items() if isinstance(value, float)]
    arguments: dict[str, Any] = {"name": name, "stats": edge_stats(5)}
    if numbers and rng.random() < 0.4:
        key, value = rng.choice(numbers), rng.choice((None, *NOT_NUMBERS))
    else:
        (key, _), values = rng.choice(list(SETTINGS.items()))
        value = rng.choice(values)
    return f"setting {key}", lambda: build_loss(**arguments | {key: value})


def _refused(function: Callable[[Any], Any], values: Any, *, message: str = "") -> list[Any]:
    return [(lambda value=value: function(value), message) for value in values]


def _with_names(names: Any) -> list[Call]:
    return [
        lambda: LabelStats.from_counts([1, 1], 4, names),
        lambda: LabelStats.from_matrix(np.eye(2), names),
        lambda: LabelStats(np.ones(2), 4, names),
        lambda: encode_labels([], names if names != ["a"] else ["a", "a"]),
    ]


# Label counts, lists, matrices and names that no documents can have: the call, and a pattern of the
# message. numpy reads "3" as 3, None as NaN, and overflows at an integer of 400 digits.
STATS: dict[str, list[tuple[Call, str]]] = {
    "counts": [
        *_refused(lambda v: LabelStats.from_counts(v, 40), (
            "3", ["3"], [HUGE[1]], [3 + 1j], [[1], [1, 2]], object(), {"a": "1"}, {3},
            torch.ones(2, device="meta"), np.array(["2020-01-01"], dtype="datetime64[D]"),
        ), message="label_counts must be numbers, got"),
        *_refused(lambda v: LabelStats.from_counts(v, 40), ([], {}, [[1]], None),
                  message=r"at least one label .* of shape \((0,|1, 1|)\)\. Check that the docum"),
        *_refused(lambda v: LabelStats.from_counts([3, v], 40), (-1, nan, inf, 41, 1e308, None),
                  message=r"between 0 and n_samples \(40\), got .* for label 1\. Count the train"),
        *_refused(lambda v: LabelStats.from_counts([1, 1], v), (
            None, True, 40.0, 2.5, 0, -1, nan, "40", [40], 1e30,
        ), message="n_samples must be a whole number of at least 1, got"),
        *_refused(lambda v: LabelStats(np.ones(2), 4, None, v), (nan, None, "1", True),
                  message="mu must be a finite number, got"),
    ],
    "lists": [
        *[(lambda v=v, f=f: f(v), "expected one list of label names per document, got")
          for v in (None, 3, "abc", object(), nan, HUGE[1])
          for f in (LabelStats.from_lists, encode_labels)],
        *_refused(encode_labels, (["a"], [None], [3], [[], HUGE[1]][1:]),
                  message="document 0: expected a list of labels, got"),
        *_refused(encode_labels, ([[1]], [[None]], [[["a"]]], [b"a"], [[HUGE[1]]]),
                  message=r"document 0: a label must be a string, got .* Convert it with str"),
        (lambda: encode_labels([["a"], ["x"]], ["a"]), "document 1: label 'x' is not one of the 1"),
    ],
    "matrix": [
        *_refused(LabelStats.from_matrix, (
            [1, 0], (3, 4), None, np.ones((2, 2, 2)), 3, "ab", sp.coo_array(np.ones(3)), object(),
            [["1"]], [["a"]], [[1], [1, 2]], [[1j]], [[HUGE[0]]], sp.csr_matrix([[1j]]),
            np.array([["x"]], dtype=object), to_csr(torch.ones(2, 2)),
        ), message="(?s)expected a documents x labels matrix of numbers, got .* use .*from_lists"),
        *_refused(LabelStats.from_matrix, ([[nan]], [[2.0]], [[-1.0]], sp.csr_matrix([[3, 1]])),
                  message=r"lie in \[0, 1\], got values from .* use LabelStats\.from_counts"),
        *_refused(LabelStats.from_matrix, (np.zeros((0, 3)),), message="n_samples must be"),
        *_refused(LabelStats.from_matrix, (np.zeros((3, 0)),), message="at least one label"),
    ],
    "names": [
        *[(call, message) for names, message in (
            ("ab", r"expected a list of labels, got 'ab'\. Write \['ab'\]"),
            (3, "expected a list of labels, got 3"),
            (["a", 1], r"a label must be a string, got 1 \(int\)"),
            ([["a"], ["b"]], r"must be a string, got \['a'\] \(list\)"),
            (b"ab", "must be a string, got 97"),
            ([None, "b"], "must be a string, got None"),
            (["a", "a"], "'a' is given twice"),
            (["a"], "expected 2 label names|given twice"),
        ) for call in _with_names(names)],
        *_refused(lambda v: LabelEncoder().declare(v), ("ab", 3, None, [1]), message="label"),
        *_refused(lambda v: LabelEncoder().add(v), (None, 3, "a", [1], [["a"]]), message="label"),
    ],
    "groups": [
        *_refused(label_groups, (None, "a", [], [nan], [[1]], ["1"], object(), [1j], 3),
                  message="must be numbers|one count per label"),
        *_refused(lambda v: label_groups([1, 2, 3], v), (
            (2, 1), (nan, 1), (1,), (1, 2, 3), "ab", 3, (HUGE[0], 1),
        ), message="cut"),
    ],
}  # fmt: skip


def bad_stats(rng: random.Random, name: str) -> tuple[str, Call]:
    kind = rng.choice(list(STATS))
    return f"label {kind}", rng.choice(STATS[kind])[0]


def pattern(words: Words) -> str:
    """Return a pattern of all words in this order."""
    return "(?s)" + ".*".join(map(re.escape, words))
