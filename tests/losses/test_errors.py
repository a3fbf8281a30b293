"""Bad input raises an error of our family that says what was expected, what came, what to do."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from math import inf, nan
from typing import Any

import numpy as np
import pytest
import torch

from longtail.errors import InputError, LongtailError, UnknownNameError
from longtail.labels import LabelStats
from longtail.losses import LOSSES, BalancedLoss, build_loss

from .cases import NAMES, make_batch, make_loss, to_csr, to_offsets

COUNTS = [7, 0, 40, 1, 20]
STATS = LabelStats.from_counts(COUNTS, n_samples=40)
LOGITS = make_batch(3, 5)[0].float()
TARGET = torch.tensor([[1, 0, 0, 1, 0], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0]])


def check_raises(
    call: Callable[[], Any], *words: str, kind: type[LongtailError] = InputError
) -> None:
    """All words must be in the message, in this order: expected, what came, what to do."""
    with pytest.raises(LongtailError, match="(?s)" + ".*".join(map(re.escape, words))) as caught:
        call()
    assert type(caught.value) is kind
    # Code that catches what torch and scikit-learn raise catches ours.
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: build_loss("dbb", STATS), ["unknown loss 'dbb'", "Did you mean 'db'", "Known:"]),
        (lambda: build_loss("focal", STATS), ["unknown loss 'focal'", "Known:", "fl"]),
        (lambda: build_loss("DB", STATS), ["unknown loss 'DB'", "Known:", "db"]),
        (lambda: build_loss(None), ["unknown loss None", "Known:"]),
        (lambda: build_loss(["db"], STATS), ["unknown loss ['db']", "Known:"]),
        (
            lambda: build_loss("db", STATS, constants="reuter"),
            ["unknown set of constants 'reuter'", "Did you mean 'reuters'", "pubmed"],
        ),
        (
            lambda: build_loss("db", STATS, constants={"mu": 0.9}),
            ["unknown set of constants {'mu': 0.9}", "Known: pubmed, reuters"],
        ),
        (
            lambda: build_loss("db", STATS, gama=1),
            ["argument of loss 'db'", "'gama'", "Did you mean", "'gamma'", "Known:"],
        ),
        (lambda: build_loss("zlpr", gamma=1), ["argument of loss 'zlpr'", "'gamma'", "reduction"]),
        (lambda: build_loss("db", STATS, tau=1), ["argument of loss 'db'", "'tau'"]),
        (lambda: build_loss("db", STATS, n_samples=9), ["argument of loss 'db'", "'n_samples'"]),
    ],
)  # fmt: skip
def test_unknown_names(call: Callable[[], Any], words: list[str]) -> None:
    check_raises(call, *words, kind=UnknownNameError)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: build_loss("db"), ["'db' needs the label counts", "LabelStats.from_matrix"]),
        (
            lambda: build_loss("bce", weighting="rebalanced"),
            ["'bce' needs the label counts", "LabelStats.from_matrix"],
        ),
        (
            lambda: BalancedLoss(mu="auto"),
            ["mu must be a finite number, got 'auto'", "'auto' is for build_loss"],
        ),
        (lambda: build_loss("db", COUNTS), ["must be a LabelStats", "got list", "from_counts"]),
        (lambda: build_loss("bce", 5), ["must be a LabelStats", "got int", "from_lists"]),
        (lambda: BalancedLoss(kappa=0.05), ["needs the number", "label_counts and n_samples"]),
        (lambda: BalancedLoss(COUNTS, weighting="rebalanced"), ["needs the number", "n_samples"]),
        (lambda: BalancedLoss(weighting="balanced"), ["weighting must be one of", "'balanced'"]),
        (
            lambda: build_loss("db", STATS, reduction="avg"),
            ["reduction must be one of none, mean, batchmean, sum", "'avg'"],
        ),
        (
            lambda: build_loss("db", STATS, label_weight=torch.ones(4)),
            ["label_weight must hold one number for each of the 5 labels", "got 4"],
        ),
        (
            lambda: build_loss("zlpr", STATS, label_weight=torch.ones(4)),
            ["label_weight must hold one number for each of the 5 labels", "got 4"],
        ),
        (lambda: build_loss("bce", label_weight=["a"]), ["label_weight must be numbers", "['a']"]),
        (
            lambda: build_loss("bce", label_weight=torch.tensor([1.0, -1.0])),
            ["label_weight must be one finite, non-negative number"],
        ),
        (
            lambda: build_loss("bce", label_weight=torch.ones(2, 2)),
            ["label_weight must be one", "got shape (2, 2)"],
        ),
        (
            lambda: build_loss("bce", reduction="none").as_hf(),
            ["as_hf needs a reduction to a number", "'mean'"],
        ),
    ],
)
def test_unusable_settings(call: Callable[[], Any], words: list[str]) -> None:
    check_raises(call, *words)


NUMBERS: list[tuple[str, str, float, str]] = [
    ("fl", "gamma", -1, "of at least 0"),
    ("db", "kappa", inf, ""),
    ("db", "lambda_", 0, "of at least 1e-06"),
    ("cb", "cb_beta", 1, "of at least 0 and below 1"),
    ("db", "alpha", -0.1, "of at least 0"),
    ("db", "beta", -inf, ""),
    ("db", "mu", inf, ""),
    ("db", "negative_scale", -1, "of at least 0"),
    ("asl", "gamma_positive", -1, "of at least 0"),
    ("asl", "gamma_negative", -1, "of at least 0"),
    ("asl", "margin", 1, "of at least 0 and below 1"),
    ("hill", "gamma", -2, "of at least 0"),
    ("hill", "margin", inf, ""),
    ("hill", "peak", 0.5, "of at least 1"),
    ("two-way", "positive_temperature", 0, "of at least 0.001"),
    ("two-way", "negative_temperature", 0, "of at least 0.001"),
    ("dice", "smooth", 0, "of at least 1e-06"),
]


@pytest.mark.parametrize(("name", "constant", "bad", "range_"), NUMBERS)
def test_unusable_constants(name: str, constant: str, bad: float, range_: str) -> None:
    wanted = f"{constant} must be a finite number {range_}".rstrip()
    for value in (bad, nan, "many", True, [1.0], np.ones(2), torch.ones(2)):
        check_raises(
            lambda v=value: build_loss(name, STATS, **{constant: v}), f"{wanted}, got {value!r}."
        )


@pytest.mark.parametrize(("name", "constant", "bad", "range_"), NUMBERS)
def test_absurd_constants(name: str, constant: str, bad: float, range_: str) -> None:
    # In float32 1e300 is infinite, and infinity times 0 NaN; 10**5000 has not even a repr.
    for absurd in (1e7, -1e300, 10**30, 10**400, 10**5000, 3 + 1j, b"1", None):
        if (constant, absurd) != ("negative_scale", None):
            wanted = f"{constant} must be a finite number {range_}".rstrip()
            check_raises(
                lambda v=absurd: build_loss(name, STATS, **{constant: v}), f"{wanted}, got "
            )


@pytest.mark.parametrize(
    ("setting", "values", "words"),
    [
        ("reduction", [None, 3, nan, ["mean"], np.ones(2), "Mean"], ["one of none, mean"]),
        ("check_targets", ["no", None, 1, nan, np.ones(2)], ["must be True or False"]),
        ("dtype", ["float32", None, torch.int64, torch.float16, float], ["dtype must be torch.f"]),
        (
            "label_weight",
            [["a"] * 5, [1j] * 5, np.ones(5, dtype=complex), object(), "12345", [1.0, [2.0]],
             torch.ones(5, device="meta"), [10**400] * 5, torch.ones(5).to_sparse_coo()],
            ["label_weight must be numbers, got"],
        ),
        ("label_weight", [[nan] * 5, [1e300] * 5, [-1.0] * 5], ["finite, non-negative"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["bce", "db", "asl", "zlpr"])
def test_settings_of_the_wrong_type(
    name: str, setting: str, values: list[Any], words: list[str]
) -> None:
    for value in values:
        check_raises(lambda v=value: build_loss(name, STATS, **{setting: v}), *words)


def test_weighting_of_the_wrong_type() -> None:
    for value in (None, 3, ["none"], np.ones(2)):
        check_raises(lambda v=value: BalancedLoss(weighting=v), "weighting must be one of none")


@pytest.mark.parametrize("reduction", ["none", "mean", "batchmean", "sum"])
@pytest.mark.parametrize("name", [name for name in NAMES if not LOSSES[name].needs_stats])
def test_no_labels_cost_nothing(name: str, reduction: str) -> None:
    loss = build_loss(name, reduction=reduction)
    for n_documents in (0, 3):
        logits = torch.zeros(n_documents, 0, requires_grad=True)
        value = loss(logits, torch.zeros(n_documents, 0))
        value.sum().backward()
        assert value.sum() == 0 and logits.grad is not None


def test_labels_of_hugging_face_that_are_no_tensor() -> None:
    compute = build_loss("bce").as_hf()
    check_raises(lambda: compute({"logits": LOGITS}, TARGET.tolist()), "must be a tensor, got list")


@pytest.mark.parametrize("constants", ["reuters", "pubmed"])
@pytest.mark.parametrize("name", [name for name, row in LOSSES.items() if not row.published])
def test_the_papers_constants_are_for_the_papers_losses(name: str, constants: str) -> None:
    words = (f"constants of {constants!r}", f"{name!r} has its own", "Leave constants out")
    check_raises(lambda: build_loss(name, STATS, constants=constants), *words)


@pytest.mark.parametrize(
    ("counts", "n_samples", "words"),
    [
        ([3, -1], 9, ["not negative", "-1", "label 1", "Use 0"]),
        ([3, float("nan")], 9, ["finite", "nan", "label 1"]),
        ([3, 10], 9, ["label 1", "count of 10", "more than the 9", "Count documents"]),
        ([3, 1], 0, ["n_samples must be a whole number of at least 1", "got 0"]),
        ([3, 1], 9.5, ["n_samples must be a whole number", "got 9.5"]),
        ([], 9, ["at least one label", "shape (0,)", "Check that the documents have labels"]),
        ([[3, 1]], 9, ["one count for each", "shape (1, 2)"]),
        (["three"], 9, ["must be numbers", "three"]),
    ],
)
def test_unusable_counts(counts: Any, n_samples: Any, words: list[str]) -> None:
    check_raises(lambda: LabelStats.from_counts(counts, n_samples), *words)
    check_raises(lambda: BalancedLoss(counts, n_samples, kappa=0.05), *words)


def one_weight(weight: float) -> torch.Tensor:
    return torch.tensor([1.0, weight, 1.0], dtype=torch.float64)


def nested(rows: torch.Tensor) -> torch.Tensor:
    with warnings.catch_warnings():
        # torch warns once per process that its nested tensors are a prototype.
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor(list(rows))


LABELS, OFFSETS = to_offsets(TARGET)
MASK = torch.ones(3, 5, dtype=torch.bool)
BATCHES: list[tuple[Any, Any, dict[str, Any], list[str]]] = [
    (LOGITS.long(), TARGET, {}, ["floating-point", "torch.int64", "raw outputs"]),
    (TARGET, LOGITS, {}, ["floating-point", "torch.int64", "first and the targets second"]),
    (LOGITS.tolist(), TARGET, {}, ["floating-point tensor", "got list", "raw outputs"]),
    (LOGITS[0], TARGET[0], {}, ["(documents, labels)", "got (5,)", "unsqueeze(0)"]),
    (LOGITS[None], TARGET[None], {}, ["(documents, labels)", "got (1, 3, 5)"]),
    (LOGITS, TARGET[:2], {}, ["shape (2, 5) do not fit", "(3, 5)", "Pass a"]),
    (LOGITS, TARGET.t(), {}, ["shape (5, 3) do not fit", "(3, 5)", "Pass a"]),
    (LOGITS, TARGET[0], {}, ["shape (5,) do not fit", "(3, 5)", "Pass a"]),
    (LOGITS, to_csr(TARGET.float()[:2]), {}, ["CSR", "shape (2, 5) do not fit", "(3, 5)"]),
    (LOGITS, TARGET.tolist(), {}, ["expected a target tensor", "got list", "Pass a"]),
    (LOGITS, TARGET.numpy(), {}, ["expected a target tensor", "got ndarray", "Pass a"]),
    (LOGITS, TARGET.to_sparse_coo(), {}, ["layout torch.sparse_coo", "to_sparse_csr()"]),
    (LOGITS, TARGET.to(torch.complex64), {}, ["torch.complex64 are not supported", "Pass a"]),
    (LOGITS, TARGET.to(torch.uint16), {}, ["torch.uint16 are not supported", "Pass a"]),
    (LOGITS, to_csr(TARGET.cfloat()), {}, ["torch.complex64 are not supported", "Pass a"]),
    (LOGITS, to_csr(TARGET, torch.uint16), {}, ["torch.uint16 are not supported", "Pass a"]),
    (LOGITS, TARGET * 2, {}, ["lie in [0, 1]", "from 0 to 2", "Use 1 where"]),
    (LOGITS, TARGET - 1.0, {}, ["lie in [0, 1]", "from -1 to 0", "Use 1 where"]),
    (LOGITS, TARGET * 1.5, {}, ["lie in [0, 1]", "to 1.5", "Use 1 where"]),
    (LOGITS, TARGET * -100, {}, ["lie in [0, 1]", "from -100", "unknown labels with mask"]),
    (LOGITS, TARGET * float("nan"), {}, ["lie in [0, 1]", "from nan to nan"]),
    (LOGITS, to_csr(TARGET * 2.0), {}, ["lie in [0, 1]", "from 2 to 2", "Use 1 where"]),
    (LOGITS, to_csr(TARGET * -100.0), {}, ["lie in [0, 1]", "from -100", "with mask"]),
    (LOGITS, to_csr(TARGET * float("nan")), {}, ["lie in [0, 1]", "from nan to nan"]),
    (LOGITS, TARGET, {"mask": TARGET}, ["mask must be a boolean", "int64", "True where"]),
    (LOGITS, TARGET, {"mask": TARGET[0].bool()}, ["mask must be", "(3, 5)", "got (5,)"]),
    (LOGITS, TARGET, {"mask": [[True] * 5] * 3}, ["mask must be a tensor", "got list"]),
    (LOGITS, TARGET, {"sample_weight": torch.ones(5)}, ["each of the 3 documents", "shape (5,)"]),
    (LOGITS, TARGET, {"sample_weight": torch.ones(3, 1)}, ["3 documents", "shape (3, 1)"]),
    (LOGITS, TARGET, {"sample_weight": np.ones(3)}, ["must be a tensor", "got ndarray"]),
    (LOGITS, TARGET, {"sample_weight": torch.ones(3).cfloat()}, ["3 documents", "complex64"]),
    (LOGITS, TARGET, {"sample_weight": one_weight(-0.5)}, ["not negative", "got -0.5"]),
    (LOGITS, TARGET, {"sample_weight": one_weight(nan)}, ["finite", "got nan"]),
    (LOGITS, TARGET, {"sample_weight": one_weight(inf)}, ["finite", "got inf"]),
    (LOGITS.to(torch.float8_e5m2), TARGET, {}, ["floating-point", "torch.float8_e5m2", "raw"]),
    (LOGITS.cfloat(), TARGET, {}, ["floating-point", "torch.complex64", "raw outputs"]),
    (LOGITS.bool(), TARGET, {}, ["floating-point", "torch.bool", "raw outputs"]),
    (None, TARGET, {}, ["floating-point tensor", "got NoneType", "raw outputs"]),
    (LOGITS.numpy(), TARGET, {}, ["floating-point tensor", "got ndarray", "raw outputs"]),
    (LOGITS.to_sparse_coo(), TARGET, {}, ["dense tensor", "torch.sparse_coo", "to_dense()"]),
    (nested(LOGITS), TARGET, {}, ["logits must be a dense tensor", "to_dense()"]),
    (LOGITS, nested(TARGET), {}, ["layout", "not supported", "to_sparse_csr()"]),
    (LOGITS, None, {}, ["expected a target tensor", "got NoneType", "Pass a"]),
    (LOGITS, "01001", {}, ["expected a target tensor", "got str", "Pass a"]),
    (LOGITS, (LABELS, OFFSETS, LABELS), {}, ["expected a target tensor", "got tuple", "Pass a"]),
    (LOGITS, TARGET.to(torch.float8_e5m2), {}, ["float8_e5m2 are not supported", "Pass a"]),
    (LOGITS, TARGET, {"mask": MASK.to_sparse_coo()}, ["mask must be a dense", "sparse_coo"]),
    (
        LOGITS,
        TARGET,
        {"sample_weight": torch.ones(3).to_sparse_coo()},
        ["sample_weight must be a dense", "sparse_coo"],
    ),
    (LOGITS, TARGET, {"sample_weight": torch.ones(3).to(torch.uint16)}, ["3 documents", "uint16"]),
    # Finite as it is, infinite in the float32 of the loss.
    (LOGITS, TARGET, {"sample_weight": one_weight(1e300).double()}, ["finite"]),
    # Another device; every machine has this one.
    (LOGITS, TARGET.to("meta"), {}, ["targets are on meta", "logits on cpu", "target.to("]),
    (LOGITS, to_csr(TARGET).to("meta"), {}, ["targets are on meta", "logits on cpu"]),
    (LOGITS, (LABELS.to("meta"), OFFSETS), {}, ["targets are on meta", "logits on cpu"]),
    (LOGITS, (LABELS, OFFSETS.to("meta")), {}, ["targets are on meta", "logits on cpu"]),
    (LOGITS, TARGET, {"mask": MASK.to("meta")}, ["mask is on meta", "logits on cpu"]),
    (
        LOGITS,
        TARGET,
        {"sample_weight": torch.ones(3, device="meta")},
        ["sample_weight is on meta", "logits on cpu"],
    ),
]


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("name", NAMES)
def test_unusable_batches(name: str, reduction: str) -> None:
    loss = make_loss(name, 5, reduction=reduction)
    for logits, target, arguments, words in BATCHES:
        check_raises(lambda z=logits, y=target, kw=arguments: loss(z, y, **kw), *words)


def pair(
    labels: list[Any], offsets: list[Any], dtype: torch.dtype | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor(labels, dtype=dtype), torch.tensor(offsets, dtype=dtype)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (pair([0, 5], [0, 1, 1]), ["0..4 for 5 labels", "from 0 to 5"]),
        (pair([-1, 2], [0, 1, 1]), ["0..4 for 5 labels", "from -1 to 2"]),
        (pair([0, 3, 3, 1], [0, 1, 3]), ["document 1 lists label 3 twice", "once"]),
        (pair([0, 1], [0, 1]), ["each of the 3 documents", "got 2 numbers"]),
        (pair([0, 1], [0, 1, 1, 2, 2]), ["each of the 3 documents", "got 5 numbers"]),
        (pair([0, 1], [0, 2, 1]), ["rise from 0", "(2)", "[0, 2, 1, 2]"]),
        (pair([0, 1], [1, 1, 2]), ["rise from 0", "(2)", "[1, 1, 2, 2]"]),
        (pair([0, 1], [0, 1, 1, 1]), ["rise from 0", "(2)", "[0, 1, 1, 1]"]),
        # Differences of bytes never fall below 0: they wrap around.
        (pair([0, 1], [0, 2, 1], torch.uint8), ["rise from 0", "(2)", "[0, 2, 1, 2]"]),
        (pair([0, 5], [0, 1, 1], torch.uint8), ["0..4 for 5 labels", "from 0 to 5"]),
        (pair([0, 1], [0, 1, 1], torch.complex64), ["flat tensor of integers", "complex64"]),
        (pair([0.0, 1.0], [0, 1, 1]), ["label_indices must be a flat", "of integers", "float32"]),
        (pair([0, 1], [0.0, 1.0, 1.0]), ["offsets must be a flat tensor of integers", "float32"]),
        (pair([[0, 1]], [0, 1, 1]), ["label_indices must be a flat tensor", "shape (1, 2)"]),
        (([0, 1], [0, 1, 1]), ["expected a target tensor", "got tuple", "(label_indices"]),
    ],
)  # fmt: skip
def test_unusable_label_indices(target: Any, words: list[str]) -> None:
    for name in ("db", "bce", "zlpr"):
        check_raises(lambda n=name: make_loss(n, 5)(LOGITS, target), *words)


@pytest.mark.parametrize("n_labels", [1, 4])
@pytest.mark.parametrize("name", NAMES)
def test_wrong_number_of_labels(name: str, n_labels: int) -> None:
    # Those that have no use for the counts too: the statistics say which labels are meant.
    logits, target = LOGITS[:, :n_labels], TARGET[:, :n_labels]
    words = ("built for 5 labels", f"{n_labels} columns", "same label set")
    check_raises(lambda: make_loss(name, 5)(logits, target), *words)
    check_raises(lambda: make_loss(name, n_labels)(LOGITS, TARGET), f"built for {n_labels} labels")
    if not LOSSES[name].needs_stats:
        assert build_loss(name)(logits, target).isfinite()


def test_logits_on_another_device() -> None:
    logits = LOGITS.to("meta")
    check_raises(
        lambda: make_loss("db", 5)(logits, TARGET), "logits are on meta", "this loss on cpu", "to("
    )
    # A loss without constants is on no device.
    for target in (TARGET, TARGET.to("meta")):
        check_raises(
            lambda y=target: build_loss("bce")(logits, y), "logits are on meta", "no values"
        )


def test_every_label_weight_fixes_the_number_of_labels() -> None:
    loss = build_loss("zlpr", label_weight=torch.ones(4))
    check_raises(lambda: loss(LOGITS, TARGET), "built for 4 labels", "5 columns")


def test_unchecked_targets_are_the_callers_business() -> None:
    loss = build_loss("bce", check_targets=False)
    assert loss(LOGITS, TARGET * 2.0).isfinite()
    assert loss(LOGITS, TARGET, sample_weight=one_weight(-1.0)).isfinite()
    # Shapes are checked all the same: they cost nothing.
    check_raises(lambda: loss(LOGITS, TARGET[:2]), "do not fit")
