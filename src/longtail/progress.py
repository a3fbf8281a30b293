"""How long work reports where it stands: one value and one kind of callback for all of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Where a piece of work stands; the figures of a training are None elsewhere."""

    stage: str
    """What is being done: "reading news.csv", "training"."""
    done: int = 0
    total: int | None = None
    """None where it is not known beforehand."""
    unit: str = "documents"
    """Of `done` and `total`: documents, bytes, labels or steps."""
    epoch: int | None = None
    epochs: int | None = None
    fold: int = 1
    folds: int = 1
    loss: float | None = None
    documents_per_second: float | None = None
    best: float | None = None

    @property
    def share(self) -> float:
        """How much of the work in all folds is done, from 0 to 1."""
        within = min(1.0, self.done / self.total) if self.total else 0.0
        return min(1.0, (self.fold - 1 + within) / max(1, self.folds))

    def __str__(self) -> str:
        fold = f"fold {self.fold}/{self.folds} " if self.folds > 1 else ""
        return fold + (f"epoch {self.epoch}/{self.epochs}" if self.epochs else self.stage)


OnProgress = Callable[[Progress], None]


def ignore(progress: Progress) -> None:
    """The callback of nobody who watches."""
