"""Arguments and output that verbs share: run folders, tables, notes, the message when stopped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.errors import printable
from longtail.runs.model import check_model

if TYPE_CHECKING:
    from longtail.report import Table
    from longtail.training.engines import RayEngine
    from longtail.training.interrupt import Stop


def _check_runs(folders: list[Path] | Path) -> list[Path] | Path:
    """Raise for a folder without a model, before any heavy import."""
    for folder in [folders] if isinstance(folders, Path) else folders:
        check_model(folder)
    return folders


def _check_cluster(engine: str | None) -> str | None:
    """Raise for a wrong engine, or one that is not installed, before data is read."""
    if engine is not None:
        from longtail.training.engines import check_engine

        check_engine(engine)
    return engine


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
        help="Run Python code from the encoder's folder. Only for sources you trust.",
        rich_help_panel="Run",
    ),
]
Device = Annotated[
    str | None, typer.Option(help="cpu or cuda; default: the device of the training.")
]
Engine = Annotated[
    str | None,
    typer.Option(help="torch or onnx; default: that of the run. See `longtail export`."),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help="ray: on a Ray cluster, of many machines or this one. Needs the extra ray.",
        rich_help_panel="Run",
        hidden=True,
        callback=_check_cluster,
    ),
]
Part = Annotated[
    str | None,
    typer.Option("--split", "--part", help="Only this part of DATA: train, validation or test."),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace files that longtail did not write.")
]
OverwriteOut = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace --out, once the new file is complete."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def print_table(table: Table, title: str, width: int | None = None) -> None:
    """Print a table with a frame and a title."""
    from rich.console import Console

    from longtail.report import to_terminal

    Console(width=width).print(to_terminal(replace(table, title=title), framed=True))


@contextmanager
def cluster_of(engine: str | None) -> Iterator[RayEngine | None]:
    """The cluster of --engine ray, and a line on which it is; None without the flag."""
    if engine is None:
        yield None
        return
    from longtail.training.engines import open_engine

    with open_engine(engine, lambda line: typer.echo(line, err=True)) as cluster:
        yield cluster


@contextmanager
def stoppable(command: str, kept: str = "") -> Iterator[Stop]:
    """On Ctrl-C or SIGTERM, stop and say what is kept and which command resumes."""
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
    """Print notes, such as skipped records, to standard error."""
    for line in lines:
        typer.secho(printable(line), fg="yellow", err=True)
