"""A linear head with very many labels: the fused loss beside F.linear and the loss of all logits.

    python benchmarks/linear_loss.py [--labels 90,670091] [--elements 22,23,24] [--quick]

1. Forward + backward of head and `db`, 128 documents x 768 features in bf16, sparse targets: the
   three matrix products alone, all logits, by chunks in torch and Triton, and steps of SGD.
   Milliseconds (median) and MiB at the peak beyond what is held between passes.
2. Whole training steps of BERT-base's shape, 128 documents of 128 tokens, random weights, with a
   head that updates itself: milliseconds and GiB at the peak. The encoder computes in bf16 and has
   float32 masters and AdamW, as in `longtail train`; with and without gradient checkpointing.

The memory of the head, 768 features in bf16: 0.96 GiB for 670,091 labels, 4.02 for 2,812,281,
12.34 for 8,623,847; momentum takes as much again. That of the encoder's masters, moments, bf16
weights and gradients: 1.8 GiB. The aims for everything, 5.7, 10.4 and 22 GiB, leave room for
momentum at the first number of labels only. --quick: tiny sizes, for a test on a CPU.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from losses import peak_mebibytes
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from longtail import LabelStats, LinearBalancedLoss, Training, build_loss, linear_balanced_loss
from longtail.fused import chunks
from longtail.training.weights import Weights, make_optimizer

LABELS = [90, 18_211, 131_072, 670_091, 2_812_281]
# Labels, momentum and aim in GiB of the whole trainings.
TRAININGS = [(670_091, 0.9, "<= 5.7"), (2_812_281, 0.0, "<= 10.4"), (8_623_847, 0.0, "<= 22")]
LABELS_PER_DOCUMENT = 5
N_SAMPLES = 500_000
Pass = Callable[[], Any]


class Sizes(NamedTuple):
    """What --quick makes small."""

    documents: int = 128
    features: int = 768
    tokens: int = 128
    layers: int = 12
    words: int = 30_522
    repeats: int = 20


QUICK = Sizes(4, 32, 8, 2, 100, 2)


class Head(NamedTuple):
    """Leaves, sparse targets and statistics."""

    features: Tensor
    weight: Tensor
    bias: Tensor
    target: tuple[Tensor, Tensor]
    stats: LabelStats


def make_head(n_labels: int, sizes: Sizes, device: str) -> Head:
    torch.manual_seed(0)
    options: dict[str, Any] = dict(device=device, dtype=torch.bfloat16)
    features = torch.randn(sizes.documents, sizes.features, **options).requires_grad_()
    weight = torch.empty(n_labels, sizes.features, **options).uniform_(-0.03, 0.03)
    bias = torch.zeros(n_labels, **options)
    target, stats = make_targets(n_labels, sizes, device)
    return Head(features, weight.requires_grad_(), bias.requires_grad_(), target, stats)


def make_targets(
    n_labels: int, sizes: Sizes, device: str
) -> tuple[tuple[Tensor, Tensor], LabelStats]:
    """Labels at equal distances from a random first one, so that no document has one twice."""
    first = torch.randint(n_labels, (sizes.documents, 1))
    steps = torch.arange(LABELS_PER_DOCUMENT) * (n_labels // LABELS_PER_DOCUMENT)
    labels = ((first + steps) % n_labels).flatten()
    starts = torch.arange(sizes.documents + 1) * LABELS_PER_DOCUMENT
    counts = (20 * N_SAMPLES / torch.arange(20, 20 + n_labels)).clamp(max=N_SAMPLES / 2).numpy()
    return (labels.to(device), starts.to(device)), LabelStats.from_counts(counts, N_SAMPLES)


def milliseconds(step: Pass, device: str, repeats: int) -> float:
    """The median of some runs, after three."""
    times = []
    for _ in range(repeats + 3):
        synchronize(device)
        begin = time.perf_counter()
        step()
        synchronize(device)
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times[3:])


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def passes(head: Head, sizes: Sizes, device: str) -> Iterator[tuple[str, Pass]]:
    """The rows of the first table; each is built when the one before it is done."""
    features, weight, bias, target, stats = head
    loss = build_loss("db", stats, reduction="batchmean", check_targets=False).to(device)
    leaves = (features, weight, bias)

    def cleared(step: Pass) -> Pass:
        def run() -> None:
            for leaf in leaves:
                leaf.grad = None
            step()

        return run

    def products() -> None:
        with torch.no_grad():
            logits = features @ weight.t()
            logits @ weight
            logits.t() @ features

    yield "three products alone", products
    yield "F.linear + db", cleared(lambda: loss(F.linear(*leaves), target).backward())
    optimizer = torch.optim.SGD([weight, bias], lr=1e-3, momentum=0.9, fused=device == "cuda")

    def plain_step() -> None:
        loss(F.linear(*leaves), target).backward()
        optimizer.step()

    yield "F.linear + db, SGD with momentum", cleared(plain_step)
    optimizer.state.clear()

    def fused(impl: Any) -> Pass:
        def step() -> None:
            linear_balanced_loss(
                features, weight, target, bias, loss=loss, impl=impl
            ).backward()  # fmt: skip

        return cleared(step)

    impls = ("auto", "torch", "triton") if device == "cuda" else ("auto", "torch")
    for impl in impls:
        yield f"linear_balanced_loss, impl={impl}", fused(impl)
    for momentum in (0.0, 0.9):
        module = self_updating(head.weight.shape[0], sizes, device, momentum, stats)
        yield (
            f"update in backward, momentum {momentum:g}",
            cleared(lambda module=module: module(features, target).backward()),
        )


def self_updating(
    n_labels: int, sizes: Sizes, device: str, momentum: float, stats: LabelStats
) -> LinearBalancedLoss:
    loss = build_loss("db", stats, check_targets=False).to(device)
    return LinearBalancedLoss(
        sizes.features, n_labels, loss=loss, update="in_backward", learning_rate=1e-3,
        momentum=momentum, device=device, dtype=torch.bfloat16,
    )  # fmt: skip


def heads(arguments: argparse.Namespace, sizes: Sizes, table: Table) -> None:
    device = arguments.device
    for n_labels in arguments.labels:
        head = make_head(n_labels, sizes, device)
        plain = float("nan")
        for name, step in passes(head, sizes, device):
            repeat = name.endswith(("torch", "triton")) or "update" in name
            for bits in arguments.elements if repeat else arguments.elements[:1]:
                chunks.ELEMENTS = 1 << bits
                print(f"{n_labels:,} labels: {name}, 2^{bits}", file=sys.stderr)
                taken = milliseconds(step, device, sizes.repeats)
                for leaf in head[:3]:
                    leaf.grad = None
                memory = peak_mebibytes(step, device)
                plain = taken if name == "F.linear + db" else plain
                table.add_row(
                    f"{n_labels:,}",
                    name,
                    f"2^{bits}" if repeat else "",
                    f"{taken:.2f}",
                    f"{taken / plain:.2f}",
                    f"{memory:,.0f}",
                )
        table.add_section()
        del head, step
        release(device)


class Encoder(nn.Module):
    """BERT with random weights; the mean over the tokens."""

    def __init__(self, sizes: Sizes, checkpointing: bool) -> None:
        super().__init__()
        config = BertConfig(
            vocab_size=sizes.words, hidden_size=sizes.features, num_hidden_layers=sizes.layers,
            num_attention_heads=max(1, sizes.features // 64),
            intermediate_size=4 * sizes.features,
        )  # fmt: skip
        self.bert = BertModel(config, add_pooling_layer=False)
        if checkpointing:
            self.bert.gradient_checkpointing_enable({"use_reentrant": False})

    def forward(self, tokens: Tensor) -> Tensor:
        mean: Tensor = self.bert(tokens).last_hidden_state.mean(dim=1)
        return mean


def training_step(
    n_labels: int, momentum: float, checkpointing: bool, sizes: Sizes, device: str
) -> Pass:
    """A step of encoder and head."""
    torch.manual_seed(0)
    target, stats = make_targets(n_labels, sizes, device)
    head = self_updating(n_labels, sizes, device, momentum, stats)
    encoder = Encoder(sizes, checkpointing).to(device).train()
    weights = Weights(encoder, half=True)
    settings = Training(learning_rate=1e-4, weight_decay=0.01)
    flat = device == "cuda"
    optimizer = make_optimizer(weights, lambda name: False, settings, torch.device(device), flat)
    tokens = torch.randint(sizes.words, (sizes.documents, sizes.tokens), device=device)

    def step() -> None:
        head(encoder(tokens), target).backward()
        weights.step(optimizer, 1.0)

    return step


def trainings(arguments: argparse.Namespace, sizes: Sizes, table: Table) -> None:
    device = arguments.device
    for n_labels, momentum, aim in arguments.trainings:
        for checkpointing in (False, True):
            name = "BERT-base" + (", checkpointing" if checkpointing else "")
            print(f"{n_labels:,} labels: {name}", file=sys.stderr)
            taken, memory = train(n_labels, momentum, checkpointing, sizes, device)
            table.add_row(f"{n_labels:,}", name, f"{momentum:g}", f"{taken:.1f}", memory, aim)
            release(device)
        table.add_section()


def train(
    n_labels: int, momentum: float, checkpointing: bool, sizes: Sizes, device: str
) -> tuple[float, str]:
    """Milliseconds of a step, and GiB at the peak of all that torch holds."""
    if device != "cuda":
        step = training_step(n_labels, momentum, checkpointing, sizes, device)
        return milliseconds(step, device, sizes.repeats), "-"
    step = training_step(n_labels, momentum, checkpointing, sizes, device)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    taken = milliseconds(step, device, sizes.repeats)
    allocated = torch.cuda.max_memory_allocated() / 2**30
    reserved = torch.cuda.max_memory_reserved() / 2**30
    return taken, f"{allocated:.2f} ({reserved:.2f} reserved)"


def release(device: str) -> None:
    if device == "cuda":
        torch.cuda.empty_cache()


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--labels", type=numbers, default=LABELS, help="of the first table")
    parser.add_argument(
        "--elements", type=numbers, default=[25],
        help="logits of a chunk on a GPU, as powers of 2, to compare",
    )  # fmt: skip
    parser.add_argument("--skip", choices=["heads", "trainings"], help="leave out a table")
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    arguments = parser.parse_args()
    sizes, arguments.trainings = Sizes(), TRAININGS
    if arguments.quick:
        sizes, arguments.labels = QUICK, [90, 300_000]
        arguments.trainings = [(3000, 0.9, ""), (3000, 0.0, "")]
    is_cuda = arguments.device == "cuda"
    hardware = torch.cuda.get_device_name() if is_cuda else platform.processor() or "CPU"
    about = f"{sizes.documents} documents, bf16, {hardware}, torch {torch.__version__}"
    if arguments.skip != "heads":
        table = Table(title=f"head and db, forward + backward, {sizes.features} features, {about}")
        for column in ("labels", "", "chunk", "ms", "ratio to F.linear + db", "MiB"):
            table.add_column(column, justify="left" if not column else "right")
        heads(arguments, sizes, table)
        Console(width=110).print(table)
    if arguments.skip != "trainings":
        table = Table(title=f"training steps, {sizes.tokens} tokens, {about}")
        for column in ("labels", "encoder", "momentum", "ms", "GiB at the peak", "aim"):
            table.add_column(column, justify="left" if column == "encoder" else "right")
        trainings(arguments, sizes, table)
        Console(width=110).print(table)


if __name__ == "__main__":
    main()
