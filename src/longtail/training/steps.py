"""Optimizer steps and predictions; both go on with smaller batches when memory runs out.

On a GPU a step of a small network is hundreds of short kernels, and launching them takes longer
than running them. A CUDA graph, recorded once per width, launches them all at once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.errors import InputError, LongtailError
from longtail.fused.chunks import most_logits
from longtail.fused.linear import linear_balanced_loss
from longtail.losses import MultiLabelLoss
from longtail.losses.base import ElementwiseLoss
from longtail.random_bits import mix
from longtail.training.devices import SHARED
from longtail.training.encoded import (
    DeviceFeed,
    Encoded,
    EncodedTokens,
    Feed,
    HostFeed,
    IntArray,
    sorted_batches,
)
from longtail.training.packed import has_kernels
from longtail.training.processes import Processes
from longtail.training.settings import Training
from longtail.training.weights import Weights, make_optimizer

Note = Callable[[str], None]
Widths = tuple[int | None, ...]
# Tokens of a prediction batch on a CPU, whose caches are small: per CPU second all-MiniLM-L6-v2
# scores 59 texts of 60 tokens in batches of 8, 39 in batches of 32; of 13 tokens 109 texts one by
# one, 250 in batches of 16 or 32.
CPU_TOKENS = 512
# Tokens of a packed prediction batch: 256 texts of 512.
PACKED_TOKENS = 131_072


class Steps:
    """Takes one optimizer step per batch.

    Args:
        processes: those that share each batch.
        known: number of known labels of each document, if the loss is a mean over them.
        is_head: whether a parameter, by name, belongs to the head.
        note: called with a message about each fallback.
    """

    def __init__(
        self,
        network: nn.Module,
        weights: Weights,
        loss: MultiLabelLoss,
        feed: Feed,
        training: Training,
        *,
        processes: Processes,
        known: IntArray | None,
        is_head: Callable[[str], bool],
        note: Note,
    ) -> None:
        assert training.batch_size is not None
        self.weights, self.loss, self.feed, self.training = weights, loss, feed, training
        self.network, self.processes, self.known, self.note = network, processes, known, note
        self.packed = isinstance(feed, DeviceFeed) and feed.packed
        self.seed = torch.initial_seed() & 0x7FFFFFFF
        self.taken = torch.zeros(1, dtype=torch.int32, device=processes.device)
        """Number of steps taken; on the device, so that a CUDA graph counts too."""
        flat = self.packed and weights.half and has_kernels(processes.device)
        self.optimizer = make_optimizer(weights, is_head, training, processes.device, flat)
        self.batch_size = training.batch_size
        # Documents in memory at a time.
        self.micro = min(training.micro_batch or self.batch_size, self.batch_size)
        self.graphs = training.acceleration != "off" and isinstance(feed, DeviceFeed)
        # A graph would record the weights of the parts of a batch as constants.
        self.graphs = self.graphs and processes.count == 1 and known is None
        self._recorded: dict[tuple[int, Widths], Any] = {}
        self._pool: Any = None

    def __call__(self, rows: IntArray, factor: float) -> Tensor:
        """Take a step at `factor` times the peak learning rate; the loss stays on the device."""
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(group["peak"] * factor)
            else:
                group["lr"] = group["peak"] * factor
        with self.processes.step():
            return self._repeated(rows)

    def _repeated(self, rows: IntArray) -> Tensor:
        """Take a step, again and in another way if it fails."""
        while True:
            try:
                mine = self._share(rows)
                widths = tuple(map(self.feed.width, self._parts(mine)))
                if self.graphs and None not in widths:
                    return self._graphed(rows, widths)
                shares = self._shares(mine, rows)
                with SHARED if self.packed else nullcontext():
                    return self._step(self._on_device(mine), widths, shares)
            except Exception as error:
                if not self.processes.is_awaited:
                    raise
                if is_out_of_memory(error):
                    self._halve(error)
                elif "deterministic" in str(error) and torch.are_deterministic_algorithms_enabled():
                    # A kernel of this model has no deterministic version.
                    torch.use_deterministic_algorithms(False)
                    reason = _first_line(error)
                    self._reset(
                        f"another run may differ in the last digits on this GPU ({reason})."
                    )
                elif getattr(getattr(self.network, "packed", None), "is_compiled", False):
                    self.network.packed.reset()  # type: ignore[union-attr, operator]
                    reason = _first_line(error)
                    self._reset(f"continuing with layers that are not compiled: {reason}.")
                else:
                    raise

    def _share(self, rows: IntArray) -> IntArray:
        """This process's rows."""
        mine = rows[self.processes.rank :: self.processes.count]
        # Every process takes part, even without a document; see `_shares`.
        return mine if len(mine) else rows[:1]

    def _parts(self, rows: Any) -> list[Any]:
        """Rows to be in memory at a time."""
        return [rows[start : start + self.micro] for start in range(0, len(rows), self.micro)]

    def _on_device(self, rows: IntArray) -> Any:
        """The rows, on the device if the feed expects them there."""
        if isinstance(self.feed, HostFeed):
            return rows
        return torch.from_numpy(np.ascontiguousarray(rows)).to(self.processes.device)

    def _step(self, rows: Any, widths: Widths, shares: list[float]) -> Tensor:
        total = torch.zeros((), device=self.processes.device)
        parts = zip(self._parts(rows), widths, shares, strict=True)
        for number, (part, width, share) in enumerate(parts, start=1):
            inputs, targets = self.feed.batch(part, width)
            if self.packed:
                inputs["seed"] = mix(self.taken * len(rows) + number, self.seed)
            value: Any = self._loss(inputs, targets, len(part)) * share
            value.backward()
            total = total + value.detach()
        total = self.processes.add_up(self.weights.used, total)
        self.weights.step(self.optimizer, self.training.max_grad_norm)
        self.taken += 1
        return total

    def _loss(self, inputs: dict[str, Any], targets: Any, n_documents: int) -> Tensor:
        """The loss of some documents; for very many labels without all their logits at once."""
        network: Any = self.network
        if isinstance(self.loss, ElementwiseLoss) and hasattr(network, "pooled"):
            head = network.labels
            if n_documents * head.out_features > most_logits(self.processes.device):
                target, mask, weight = targets
                return linear_balanced_loss(
                    network.pooled(**inputs),
                    head.weight,
                    target,
                    head.bias,
                    loss=self.loss,
                    mask=mask,
                    sample_weight=weight,
                )
        value: Tensor = self.loss(network(**inputs).float(), *targets)
        return value

    def _shares(self, mine: IntArray, rows: IntArray) -> list[float]:
        """The weight of each part of this process's rows in the loss of the batch."""
        if self.processes.rank >= len(rows):
            return [0.0]
        known = self.known
        sizes = [len(part) if known is None else known[part].sum() for part in self._parts(mine)]
        whole = len(rows) if known is None else known[rows].sum()
        return [self.loss.share(size, whole) for size in sizes]

    def _graphed(self, rows: IntArray, widths: Widths) -> Tensor:
        shape = len(rows), widths
        if shape not in self._recorded:
            with SHARED:
                return self._record(rows, widths)
        graph, static_rows, result = self._recorded[shape]
        static_rows.copy_(torch.from_numpy(rows).pin_memory(), non_blocking=True)
        graph.replay()
        return result.clone()  # type: ignore[no-any-return]

    def _record(self, rows: IntArray, widths: Widths) -> Tensor:
        # The first batch of a shape takes an eager step, which also warms up for the capture.
        static_rows, shares = self._on_device(rows), self._shares(rows, rows)
        loss, graph = self._step(static_rows, widths, shares), torch.cuda.CUDAGraph()
        stream = torch.cuda.current_stream()
        try:
            # Other threads may allocate memory meanwhile.
            mode = "thread_local"
            with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode=mode):
                result = self._step(static_rows, widths, shares)
            self._pool = self._pool or graph.pool()
            self._recorded[len(rows), widths] = (graph, static_rows, result)
        except RuntimeError as error:
            if is_out_of_memory(error):
                self._halve(error)
            else:
                self.graphs = False
                # A failed capture leaves the generator in the state of a capture.
                generator = torch.cuda.default_generators[stream.device_index]
                generator.graphsafe_set_state(generator.clone_state())
                reason = _first_line(error.__context__ or error)
                self._reset(f"continuing without CUDA graphs: {reason}.")
        return loss

    def _halve(self, error: BaseException) -> None:
        if self.micro == 1:
            raise _too_large(error) from error
        self.micro = -(-self.micro // 2)
        self._reset(f"out of memory: continuing with {self.micro} documents at a time.")

    def _reset(self, note: str) -> None:
        """Discard the failed step and all recorded graphs."""
        self.weights.clear()
        self._recorded.clear()
        self._pool = None
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        self.note(note)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _too_large(error: BaseException) -> LongtailError:
    return LongtailError(
        "a single document does not fit in memory. Use a smaller model or a smaller max_length. "
        f"({error})"
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a GPU or the host ran out of memory."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def predict_logits(
    network: nn.Module, encoded: Encoded, batch_size: int = 256
) -> NDArray[np.float32]:
    """Logits, (documents, labels); batches are halved when memory runs out.

    The network must be in eval mode and computes on its device. Safe to call from several threads.
    """
    if network.training:
        raise InputError("the network is in training mode, with dropout. Call network.eval().")
    while True:
        try:
            return _predict(network, encoded, batch_size)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if batch_size == 1:
                raise _too_large(error) from error
            batch_size = -(-min(batch_size, len(encoded)) // 2)
            torch.cuda.empty_cache()


def prediction_batches(
    encoded: Encoded, batch_size: int, n_tokens: int | None = CPU_TOKENS
) -> list[IntArray]:
    """Batches of similar lengths, with at most about `n_tokens` tokens."""
    batches = sorted_batches(encoded.lengths, batch_size)
    if n_tokens is None or not isinstance(encoded, EncodedTokens):
        return batches
    parts = []
    for rows in batches:
        start = 0
        while start < len(rows):
            end = start + max(1, n_tokens // max(1, int(encoded.lengths[rows[start]])))
            parts.append(rows[start:end])
            start = end
    return parts


def _predict(network: nn.Module, encoded: Encoded, batch_size: int) -> NDArray[np.float32]:
    device = next(network.parameters()).device
    logits: NDArray[np.float32] | None = None
    # As in training: on a GPU an encoder computes in bf16.
    half = device.type == "cuda" and isinstance(encoded, EncodedTokens)
    half = half and torch.cuda.is_bf16_supported()
    packs = isinstance(encoded, EncodedTokens) and getattr(network, "packed", None) is not None
    most = PACKED_TOKENS if packs else CPU_TOKENS if device.type == "cpu" else None
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=half):
        for rows in prediction_batches(encoded, batch_size, most):
            if packs and encoded.lengths[rows].min() > 0:
                assert isinstance(encoded, EncodedTokens)
                inputs = encoded.packed_batch(rows, device)
            else:
                inputs = {k: v.to(device) for k, v in encoded.batch(rows).items()}
            batch = network(**inputs).float().cpu().numpy()
            if logits is None:
                logits = np.empty((len(encoded), batch.shape[1]), dtype=np.float32)
            logits[rows] = batch
    assert logits is not None
    return logits
