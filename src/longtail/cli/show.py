"""What the command shows while it works and when it is done: bars, tables, notes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.errors import printable
from longtail.runs.model import check_model

if TYPE_CHECKING:
    from longtail.progress import OnProgress, Progress
    from longtail.training.interrupt import Stop


def _check_runs(folders: list[Path] | Path) -> list[Path] | Path:
    """Raise for a folder without a model, before anything is imported or read."""
    for folder in [folders] if isinstance(folders, Path) else folders:
        check_model(folder)
    return folders


Run = Annotated[
    Path, typer.Argument(help="A folder written by `longtail train`.", callback=_check_runs)
]
Runs = Annotated[
    list[Path], typer.Argument(help="Folders written by `longtail train`.", callback=_check_runs)
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        help="Run the code that an encoder's folder brings along. Only for sources you trust.",
    ),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace files that longtail did not make.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


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
def show_progress(every_seconds: float = 10.0) -> Iterator[OnProgress]:
    """A bar on a terminal, gone when done; else a plain line now and then."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _plain_lines(every_seconds)
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
            typer.echo(f"{_where(progress)}, {_figures(progress)}".removesuffix(", "), err=True)

    return show


def _where(progress: Progress) -> str:
    """The position, after the stage if that says more than "training"."""
    where = str(progress)
    says_all = progress.stage == "training" or progress.stage in where
    return where if says_all else f"{progress.stage}, {where}"


def _figures(progress: Progress) -> str:
    if progress.total is None:
        return ""
    from rich.filesize import decimal

    done, total = progress.done, progress.total
    if progress.unit == "bytes":
        figures = f"{decimal(done)} of {decimal(total)}"
    else:
        figures = f"{done:,} of {total:,} {progress.unit}"
    if progress.loss is not None:
        figures += f", loss {progress.loss:.4g}"
    if progress.documents_per_second:
        figures += f", {progress.documents_per_second:,.0f} documents/s"
    return figures + ("" if progress.best is None else f", best {100 * progress.best:.2f}")
