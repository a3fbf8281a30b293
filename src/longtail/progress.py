"""Progress of long work: what callbacks receive, and the bar or log lines that show it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import current_process
from typing import Literal

from longtail.errors import InputError


@dataclass(frozen=True)
class Progress:
    """The state of long-running work; only training sets `epoch`, `loss` and `best`."""

    stage: str
    """Such as "reading news.csv" or "training"."""
    done: int = 0
    total: int | None = None
    """None if unknown in advance."""
    unit: str = "documents"
    """Unit of `done` and `total`: documents, bytes, labels or steps."""
    epoch: int | None = None
    epochs: int | None = None
    fold: int = 1
    folds: int = 1
    loss: float | None = None
    documents_per_second: float | None = None
    best: float | None = None

    @property
    def share(self) -> float:
        """The fraction done over all folds, from 0 to 1."""
        within = min(1.0, self.done / self.total) if self.total else 0.0
        return min(1.0, (self.fold - 1 + within) / max(1, self.folds))

    def __str__(self) -> str:
        fold = f"fold {self.fold}/{self.folds} " if self.folds > 1 else ""
        return fold + (f"epoch {self.epoch}/{self.epochs}" if self.epochs else self.stage)


OnProgress = Callable[[Progress], None]
Watch = OnProgress | Literal["auto"] | bool | None
"""A callback; "auto" or True for a bar in a terminal or notebook; None or False for nothing."""


def ignore(progress: Progress) -> None:
    """The callback that does nothing."""


@contextmanager
def watching(watch: Watch) -> Iterator[OnProgress]:
    """Yield the callback for a `progress` argument; in joblib workers, no bar."""
    if callable(watch):
        yield watch
    elif watch not in ("auto", True, False, None):
        raise InputError(f"progress must be a function, 'auto' or None, got {watch!r}.")
    elif watch and current_process().name == "MainProcess":
        with show_progress(every_seconds=None) as show:
            yield show
    else:
        yield ignore


@contextmanager
def show_progress(every_seconds: float | None = 10.0) -> Iterator[OnProgress]:
    """Yield a callback that shows a bar in a terminal or notebook, and elsewhere logs plain lines.

    `every_seconds`: between two lines; None for no lines.
    """
    from rich.console import Console

    console = Console(stderr=True)
    # In a notebook without ipywidgets rich warns instead of showing a bar.
    if not console.is_terminal and not (console.is_jupyter and find_spec("ipywidgets")):
        yield ignore if every_seconds is None else _plain_lines(every_seconds)
        return
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console, transient=True) as bars:
        bar = bars.add_task("", total=None, figures="")
        current = ""

        def show(progress: Progress) -> None:
            nonlocal current
            if progress.stage != current:
                current = progress.stage
                bars.reset(bar)
            total = progress.total and progress.folds * progress.total
            done = (progress.fold - 1) * (progress.total or 0) + progress.done
            where, figures = _where(progress), _figures(progress)
            bars.update(bar, description=where, completed=done, total=total, figures=figures)

        yield show


def _plain_lines(every_seconds: float) -> OnProgress:
    """Print a line at the start and end of each training, else every `every_seconds`."""
    last = time.monotonic()
    was_training = False

    def show(progress: Progress) -> None:
        nonlocal last, was_training
        now = time.monotonic()
        is_training = progress.loss is not None
        is_first_or_last = is_training and (not was_training or progress.done == progress.total)
        if is_first_or_last or now - last >= every_seconds:
            last, was_training = now, is_training
            line = f"{_where(progress)}, {_figures(progress)}".removesuffix(", ")
            print(line, file=sys.stderr, flush=True)

    return show


def _where(progress: Progress) -> str:
    """The fold and epoch, after the stage if that says more than "training"."""
    where = str(progress)
    is_enough = progress.stage == "training" or progress.stage in where
    return where if is_enough else f"{progress.stage}, {where}"


def _figures(progress: Progress) -> str:
    done, total = progress.done, progress.total
    if total is None and not done:
        return ""
    from rich.filesize import decimal

    if progress.unit == "bytes":
        figures = decimal(done) + ("" if total is None else f" of {decimal(total)}")
    else:
        figures = f"{done:,}" + ("" if total is None else f" of {total:,}") + f" {progress.unit}"
    if progress.unit == "settings":
        figures = f"setting {done:,}"  # the one at work, and not a count
    if progress.loss is not None:
        figures += f", loss {progress.loss:.4g}"
    if progress.documents_per_second:
        figures += f", {progress.documents_per_second:,.0f} documents/s"
    return figures + ("" if progress.best is None else f", best {100 * progress.best:.2f}")
