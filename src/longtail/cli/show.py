"""What the command shows while it works and when it is done: bars, tables, notes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.errors import printable

if TYPE_CHECKING:
    from longtail.training.interrupt import Stop
    from longtail.training.loop import Moment

TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        help="Run the code that an encoder's folder brings along. Only for sources you trust.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def progress_bar(*, in_bytes: bool = False, transient: bool = False) -> Any:
    """A bar on the error output, with amount, rate and time left."""
    from rich import progress
    from rich.console import Console
    from rich.text import Text

    class Rate(progress.ProgressColumn):
        def render(self, task: progress.Task) -> Text:
            return Text(f"{task.speed:,.0f}/s" if task.speed else "")

    in_bytes_columns = (progress.DownloadColumn(), progress.TransferSpeedColumn())
    amount = in_bytes_columns if in_bytes else (progress.MofNCompleteColumn(), Rate())
    columns = (progress.TextColumn("{task.description}"), progress.BarColumn(), *amount)
    console = Console(stderr=True)
    # What disappears when done is only for people: a log keeps nothing of it.
    hidden = transient and not console.is_terminal
    return progress.Progress(
        *columns, progress.TimeRemainingColumn(), console=console, transient=transient,
        disable=hidden,
    )  # fmt: skip


def task_of(bar: Any, description: str) -> Callable[[int, int | None], None]:
    """Shows what is done of a total; the task appears in the bar with the first call."""
    tasks: list[Any] = []

    def show(done: int, total: int | None) -> None:
        if not tasks:
            tasks.append(bar.add_task(description, total=total))
        bar.update(tasks[0], completed=done, total=total)

    return show


def print_table(evaluations: Any, title: str) -> None:
    """Evaluations side by side: micro- and macro-F1 by groups of labels."""
    from dataclasses import replace

    from rich.console import Console

    from longtail.report import label_table, to_terminal

    table = replace(label_table(evaluations), title=title)
    Console().print(to_terminal(table, framed=True))


@contextmanager
def stoppable(command: str, kept: str = "") -> Iterator[Stop]:
    """Stop at the first Ctrl-C or SIGTERM with what is kept and the command that resumes."""
    from longtail.training.interrupt import StoppedError, stopping

    with stopping() as stop:
        try:
            yield stop
        except StoppedError as stopped:
            reason = f"{str(stopped).partition('.')[0]}. {kept}" if kept else str(stopped)
            raise StoppedError(f"{reason} The command: {command}", stopped.exit_code) from None
        except KeyboardInterrupt:
            typer.secho(
                f"\nStopped at once. Resume from the last checkpoint with: {command}", err=True
            )
            raise SystemExit(130) from None


def print_notes(lines: list[str]) -> None:
    """What was skipped or left out, on the error output."""
    for line in lines:
        typer.secho(printable(line), fg="yellow", err=True)


@contextmanager
def training_progress(every_seconds: float = 10.0) -> Iterator[Callable[[Moment], None]]:
    """How a training goes: one moving line on a terminal, else a plain line now and then."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _plain_lines(every_seconds)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[figures]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("training", total=None, figures="")

        def show(moment: Moment) -> None:
            bar.update(
                task,
                completed=(moment.fold - 1) * moment.steps + moment.step,
                total=moment.folds * moment.steps,
                description=_position(moment),
                figures=_figures(moment),
            )

        yield show


def _plain_lines(every_seconds: float) -> Callable[[Moment], None]:
    last = [-math.inf]

    def show(moment: Moment) -> None:
        now = time.monotonic()
        if now - last[0] >= every_seconds or moment.step == moment.steps:
            last[0] = now
            line = f"{_position(moment)}, step {moment.step} of {moment.steps}, {_figures(moment)}"
            typer.echo(line, err=True)

    return show


def _position(moment: Moment) -> str:
    fold = f"fold {moment.fold}/{moment.folds} " if moment.folds > 1 else ""
    return fold + (f"epoch {moment.epoch}/{moment.epochs}" if moment.epochs else "solving")


def _figures(moment: Moment) -> str:
    speed, best = moment.documents_per_second, moment.best
    figures = f"loss {moment.loss:.4g}" + (f", {speed:,.0f} documents/s" if speed else "")
    return figures + ("" if best is None else f", best {100 * best:.2f}")
