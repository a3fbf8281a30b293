"""One step of the optimizer: micro-batches, clipping, out of memory, and CUDA graphs.

On a GPU a step of a small network is hundreds of short kernels, and launching them takes longer
than running them. A graph, recorded once for each width, launches them all at once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from longtail.errors import LongtailError
from longtail.losses import MultiLabelLoss
from longtail.training.devices import Processes
from longtail.training.encoded import IntArray
from longtail.training.feed import Feed
from longtail.training.weights import Weights

Note = Callable[[str], None]


@dataclass
class Steps:
    """Trains on one batch at a time.

    Args:
        processes: share each batch.
        autocast: compute in bf16 by autocast, as with several processes.
        forward: the network, or its wrapper for several processes.
        compiled: the same through torch.compile, used as long as that works.
        rates: one learning rate per parameter group, before the schedule.
        micro: documents in memory at a time.
        graphs: record the step of each width as a CUDA graph.
        note: called with a message about each fallback.
    """

    processes: Processes
    autocast: bool
    forward: nn.Module
    compiled: nn.Module | None
    weights: Weights
    loss: MultiLabelLoss
    optimizer: torch.optim.Optimizer
    feed: Feed
    rates: list[float]
    batch_size: int
    micro: int
    max_grad_norm: float
    graphs: bool
    note: Note
    _recorded: dict[int, Any] = field(default_factory=dict)
    _pool: Any = None

    def __call__(self, rows: IntArray, factor: float) -> Tensor:
        """Take the step; returns its loss, still on the device."""
        self._set_rates(factor)
        while True:
            try:
                width = self.feed.width(rows)
                if self.graphs and width is not None and len(rows) == self.batch_size:
                    return self._graphed(rows, width)
                return self._step(self._share(rows), width, len(rows))
            except Exception as error:
                if is_out_of_memory(error):
                    self._halve(error)
                elif "deterministic" in str(error) and torch.are_deterministic_algorithms_enabled():
                    self._disable_determinism(error)
                elif self.compiled is not None:
                    self._disable_compiling(error)
                else:
                    raise

    def _share(self, rows: IntArray) -> Any:
        """The rows of this process, on the device if the feed expects them there."""
        mine = rows[self.processes.rank :: self.processes.count]
        if len(mine) == 0:
            # With fewer documents than processes all still exchange gradients; see `_weight`.
            mine = rows[:1]
        if self.feed.width(rows) is None:
            return mine
        return torch.from_numpy(np.ascontiguousarray(mine)).to(self.processes.device)

    def _step(self, rows: Any, width: int | None, n_rows: int) -> Tensor:
        device = self.processes.device
        total = torch.zeros((), device=device)
        autocast = torch.autocast(device.type, torch.bfloat16, enabled=self.autocast)
        parts = range(0, len(rows), self.micro)
        for start in parts:
            part = rows[start : start + self.micro]
            inputs, targets = self.feed.batch(part, width)
            is_last = start == parts[-1]
            accumulating = self.processes.without_sync(self.forward)
            with nullcontext() if is_last else accumulating, autocast:
                network = self.forward if self.compiled is None else self.compiled
                logits = network(**inputs)
                value = self.loss(logits.float(), targets) * self._weight(len(part), n_rows)
                value.backward()
            total = total + value.detach()
        self.weights.collect()
        if self.max_grad_norm:
            nn.utils.clip_grad_norm_(self.weights.optimized, self.max_grad_norm)
        self.optimizer.step()
        self.weights.spread()
        self.weights.clear()
        # The loss of the whole batch, so that all processes stop for the same one.
        return self.processes.mean(total)

    def _weight(self, n_part: int, n_rows: int) -> float:
        """The weight of a part in the loss of the batch; processes average their gradients."""
        if self.processes.rank >= n_rows:
            return 0.0
        if self.loss.reduction == "sum":
            return float(self.processes.count)
        return self.processes.count * n_part / n_rows

    def _graphed(self, rows: IntArray, width: int) -> Tensor:
        if width not in self._recorded:
            # The first batch of a width takes a normal step, which also warms up the recording.
            kept = torch.from_numpy(rows).to(self.processes.device)
            loss = self._step(kept, width, len(rows))
            try:
                self._record(kept, width)
            except RuntimeError as error:
                self._halve(error) if is_out_of_memory(error) else self._disable_graphs(error)
            return loss
        graph, kept, result = self._recorded[width]
        kept.copy_(torch.from_numpy(rows).pin_memory(), non_blocking=True)
        graph.replay()
        return result.clone()  # type: ignore[no-any-return]

    def _record(self, rows: Tensor, width: int) -> None:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=torch.cuda.current_stream()):
            result = self._step(rows, width, len(rows))
        self._pool = self._pool or graph.pool()
        self._recorded[width] = (graph, rows, result)

    def _set_rates(self, factor: float) -> None:
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * factor)
            else:
                group["lr"] = rate * factor

    def _halve(self, error: BaseException) -> None:
        self._reset()
        if self.micro == 1:
            raise too_large(error) from error
        self.micro = -(-self.micro // 2)
        self.note(f"out of memory: continuing with {self.micro} documents at a time.")

    def _disable_determinism(self, error: BaseException) -> None:
        """A kernel of this model has no deterministic version: continue with the usual ones."""
        self._reset()
        torch.use_deterministic_algorithms(False)
        first = (str(error).splitlines() or ["no reason given"])[0]
        self.note(f"another run may differ in the last digits on this GPU ({first}).")

    def _disable_graphs(self, error: BaseException) -> None:
        self._reset()
        self.graphs = False
        first = (str(error).splitlines() or ["no reason given"])[0]
        self.note(f"CUDA graphs do not work with this model ({first}): continuing without them.")

    def _disable_compiling(self, error: BaseException) -> None:
        self._reset()
        self.compiled = None
        first = (str(error).splitlines() or [type(error).__name__])[0]
        self.note(f"torch.compile does not work with this model ({first}): continuing without it.")

    def _reset(self) -> None:
        self.weights.clear()
        self._recorded.clear()
        self._pool = None
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            torch.cuda.empty_cache()


def too_large(error: BaseException) -> LongtailError:
    """The error for a single document that does not fit in memory."""
    return LongtailError(
        "a single document does not fit in memory. Use a smaller model or a smaller max_length. "
        f"({error})"
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a GPU or the host had no memory left."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
