"""The command `longtail`: one verb per function, heavy imports inside the verbs."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from longtail import __version__
from longtail.cli import data
from longtail.cli.evaluate import evaluate
from longtail.cli.explain import explain
from longtail.cli.export import export
from longtail.cli.predict import predict
from longtail.cli.report import report
from longtail.cli.reproduce import reproduce
from longtail.cli.search import search
from longtail.cli.serve import serve
from longtail.cli.show import print_table
from longtail.cli.train import train
from longtail.errors import LongtailError, printable
from longtail.progress import show_progress

app = typer.Typer(
    name="longtail",
    help="Classify texts with many labels, most of them rare.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(data.stats)
app.command()(train)
app.command()(search)
app.command()(evaluate)
app.command()(predict)
app.command()(explain)
app.command()(report)
app.command()(reproduce)
app.command()(serve)
app.command()(export)
app.add_typer(data.corpus_app, name="corpus")


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"longtail {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Classify texts with many labels, most of them rare."""


@app.command()
def demo() -> None:
    """Train a small model with BCE and with DB on a synthetic newswire and compare them."""
    from rich.console import Console
    from rich.panel import Panel
    from rich.text import Text

    from longtail.demo import run_demo
    from longtail.report import label_table

    console = Console()
    with show_progress() as progress:
        result = run_demo(progress)
    labels = ", ".join(result.example_labels)
    console.print(Panel(Text(result.example), title="a document", subtitle=f"labels: {labels}"))
    table = label_table(result.evaluations)
    print_table(table, "micro-F1 / macro-F1 on the test part, by label frequency")
    console.print(result.sentence, highlight=False)


def main() -> None:
    """Run the command; an error that the user can fix is one message without a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A character that the console cannot encode is escaped, and raises no error.
            stream.reconfigure(errors="backslashreplace")
    raise SystemExit(_reporting(_with_others if "WORLD_SIZE" in os.environ else app))


def _reporting(run: Callable[[], object]) -> object:
    """Run something, and report its errors; return the exit code."""
    exit_code = 1
    try:
        return run()
    except SystemExit as ended:
        return ended.code
    except BrokenPipeError:
        # The reader, such as `head`, closed the pipe: exit silently, as other commands do.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_code
    except PermissionError as error:
        message = f"no permission for {error.filename}. Ask its owner, or choose another path."
    except (LongtailError, OSError) as error:
        message, exit_code = str(error), getattr(error, "exit_code", 1)
    except MemoryError:
        message = "out of memory. Use fewer documents or labels, or a machine with more memory."
    typer.secho(f"error: {printable(message)}", fg="red", err=True)
    return exit_code


def _with_others() -> object:
    """Run the command in the main process of torchrun; the others train with it, and print nothing.

    Return its exit code, which is theirs too.
    """
    from longtail.training.processes import LostProcessError, outlive_torchrun, rank, together

    def lead() -> object:
        exit_code = _reporting(app)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        # The others end first.
        outlive_torchrun()
        return exit_code

    try:
        return together(lead)
    except LostProcessError:
        # The main process says so, or else one of those that are left.
        if rank() == 1:
            raise
        return 1
