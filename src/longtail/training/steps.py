"""One step of the optimizer: micro-batches, clipping, out of memory, and CUDA graphs.

On a GPU a step of a small network is hundreds of short kernels, and launching them takes longer
than running them. A graph, recorded once for each width, launches them all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from longtail.errors import LongtailError
from longtail.losses import MultiLabelLoss
from longtail.models.base import IntArray
from longtail.training.feed import Feed
from longtail.training.weights import Weights

Note = Callable[[str], None]


@dataclass
class Steps:
    """Trains on one batch at a time.

    Args:
        accelerator: of Hugging Face Accelerate; shares each batch among its processes.
        device: where the network is.
        forward: the network as it is called: itself, or wrapped for several processes.
        compiled: the same through torch.compile, used as long as that works.
        rates: one learning rate per group of the optimizer, before the schedule.
        micro: documents in memory at a time.
        graphs: record the step of each width as a CUDA graph.
        note: told what was changed on the way.
    """

    accelerator: Any
    device: torch.device
    forward: nn.Module
    compiled: nn.Module | None
    weights: Weights
    loss: MultiLabelLoss
    optimizer: torch.optim.Optimizer
    feed: Feed
    rates: list[float]
    batch_size: int
    micro: int
    clip: float
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
                return self._step(self._own(rows), width, len(rows))
            except Exception as error:
                if is_out_of_memory(error):
                    self._halve(error)
                elif "deterministic" in str(error) and torch.are_deterministic_algorithms_enabled():
                    self._give_up_exactness(error)
                elif self.compiled is not None:
                    self._give_up_compiling(error)
                else:
                    raise

    def _own(self, rows: IntArray) -> Any:
        """This process's share of the rows, on the device where the feed wants them there."""
        mine = rows[self.accelerator.process_index :: self.accelerator.num_processes]
        if len(mine) == 0:
            # With fewer documents than processes all still exchange gradients; see `_share`.
            mine = rows[:1]
        if self.feed.width(rows) is None:
            return mine
        return torch.from_numpy(np.ascontiguousarray(mine)).to(self.device)

    def _step(self, rows: Any, width: int | None, n_rows: int) -> Tensor:
        total = torch.zeros((), device=self.device)
        parts = range(0, len(rows), self.micro)
        for start in parts:
            part = rows[start : start + self.micro]
            inputs, targets = self.feed.batch(part, width)
            with self._gathering(last=start == parts[-1]), self.accelerator.autocast():
                network = self.forward if self.compiled is None else self.compiled
                logits = network(**inputs)
                value = self.loss(logits.float(), targets) * self._share(len(part), n_rows)
                self.accelerator.backward(value)
            total = total + value.detach()
        self.weights.collect()
        if self.clip:
            nn.utils.clip_grad_norm_(self.weights.moved, self.clip)
        self.optimizer.step()
        self.weights.spread()
        self.weights.clear()
        if self.accelerator.num_processes > 1:
            # The loss of the whole batch: what one process sees, all see and stop for.
            total = self.accelerator.reduce(total, reduction="mean")
        return total

    def _share(self, n_part: int, n_rows: int) -> float:
        """What a part's loss counts for in that of the batch; processes average gradients."""
        if self.accelerator.process_index >= n_rows:
            return 0.0
        if self.loss.reduction == "sum":
            return float(self.accelerator.num_processes)
        return self.accelerator.num_processes * n_part / n_rows  # type: ignore[no-any-return]

    @contextmanager
    def _gathering(self, last: bool) -> Iterator[None]:
        """Processes exchange gradients after the last part only."""
        if last or self.accelerator.num_processes == 1:
            yield
        else:
            with self.accelerator.no_sync(self.forward):
                yield

    def _graphed(self, rows: IntArray, width: int) -> Tensor:
        if width not in self._recorded:
            # The first batch of a width is trained on as ever, which also warms up; then recorded.
            kept = torch.from_numpy(rows).to(self.device)
            loss = self._step(kept, width, len(rows))
            try:
                self._record(kept, width)
            except RuntimeError as error:
                self._halve(error) if is_out_of_memory(error) else self._give_up_graphs(error)
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
        self._forget()
        if self.micro == 1:
            raise too_large(error) from error
        self.micro = -(-self.micro // 2)
        self.note(f"out of memory: going on with {self.micro} documents at a time.")

    def _give_up_exactness(self, error: BaseException) -> None:
        """A kernel of this model has no exact version: go on with the usual ones."""
        self._forget()
        torch.use_deterministic_algorithms(False)
        first = (str(error).splitlines() or ["no reason given"])[0]
        self.note(f"another run may differ in the last digits on this GPU ({first}).")

    def _give_up_graphs(self, error: BaseException) -> None:
        self._forget()
        self.graphs = False
        first = (str(error).splitlines() or ["no reason given"])[0]
        self.note(f"CUDA graphs do not work with this model ({first}): going on without them.")

    def _give_up_compiling(self, error: BaseException) -> None:
        self._forget()
        self.compiled = None
        first = (str(error).splitlines() or [type(error).__name__])[0]
        self.note(f"torch.compile does not work with this model ({first}): going on without it.")

    def _forget(self) -> None:
        self.weights.clear()
        self._recorded.clear()
        self._pool = None
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            torch.cuda.empty_cache()


def too_large(error: BaseException) -> LongtailError:
    """What to say when even a single document is too much."""
    return LongtailError(
        "one document at a time does not fit into memory. Use a smaller model or read less of "
        f"each text (max_length). ({error})"
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a GPU or the host had no memory left."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
