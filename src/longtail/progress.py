"""How long work reports where it stands: one value and one kind of callback for all of it, and the
bar or the lines that show it."""

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
Watch = OnProgress | Literal["auto"] | bool | None
"""A callback; "auto" or True: a bar in a terminal or a notebook; None or False: nothing."""


def ignore(progress: Progress) -> None:
    """The callback of nobody who watches."""


@contextmanager
def watching(watch: Watch) -> Iterator[OnProgress]:
    """The callback that was asked for; in a worker of joblib, whose bars would mix, no bar."""
    if watch == "auto" or watch is True:
        if current_process().name != "MainProcess":
            yield ignore
            return
        with show_progress(every_seconds=None) as show:
            yield show
    elif callable(watch):
        yield watch
    elif watch:
        raise InputError(f"progress must be a function, 'auto' or None, got {watch!r}.")
    else:
        yield ignore


@contextmanager
def show_progress(every_seconds: float | None = 10.0) -> Iterator[OnProgress]:
    """A bar in a terminal or a notebook, gone when done; else a plain line now and then, or, with
    `every_seconds` of None, nothing."""
    from rich.console import Console

    console = Console(stderr=True)
    # In a notebook without ipywidgets rich would warn instead.
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
    """A line at the start and the end of every training, and for all work every few seconds."""
    last = time.monotonic()
    seen = False

    def show(progress: Progress) -> None:
        nonlocal last, seen
        now = time.monotonic()
        ends = progress.loss is not None and (not seen or progress.done == progress.total)
        if ends or now - last >= every_seconds:
            last, seen = now, progress.loss is not None
            line = f"{_where(progress)}, {_figures(progress)}".removesuffix(", ")
            print(line, file=sys.stderr, flush=True)

    return show


def _where(progress: Progress) -> str:
    """The position, after the stage if that says more than "training"."""
    where = str(progress)
    says_all = progress.stage == "training" or progress.stage in where
    return where if says_all else f"{progress.stage}, {where}"


def _figures(progress: Progress) -> str:
    done, total = progress.done, progress.total
    if total is None and not done:
        return ""
    from rich.filesize import decimal

    if progress.unit == "bytes":
        figures = decimal(done) + ("" if total is None else f" of {decimal(total)}")
    else:
        figures = f"{done:,}" + ("" if total is None else f" of {total:,}") + f" {progress.unit}"
    if progress.loss is not None:
        figures += f", loss {progress.loss:.4g}"
    if progress.documents_per_second:
        figures += f", {progress.documents_per_second:,.0f} documents/s"
    return figures + ("" if progress.best is None else f", best {100 * progress.best:.2f}")
