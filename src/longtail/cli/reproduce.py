"""`longtail reproduce`: train the rows of a table from their recipes, resumable."""

from __future__ import annotations

import shlex
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.flags import command_line
from longtail.cli.reading import Source, reads_data
from longtail.cli.show import AsJson, Cluster, cluster_of, print_notes, print_table, stoppable
from longtail.errors import InputError

if TYPE_CHECKING:
    from longtail.reproduce import Reproduced
    from longtail.reproduce.cells import Cell
    from longtail.reproduce.run import Event


@reads_data
def reproduce(
    source: Source,
    recipes: Annotated[
        str | None,
        typer.Option(
            help="Name of recipes, or a folder of .yaml files; default: those named like DATA."
        ),
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(help="Encoder in place of that of the recipes: name or folder.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds per row.")] = 3,
    rows: Annotated[str | None, typer.Option(help="Rows to train: db,bce; default: all.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 or auto.")] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Cells to train at a time, in separate processes.")
    ] = 1,
    engine: Cluster = None,
    against: Annotated[
        str | None, typer.Option(help="Row to compare the others with; default: bce.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results; default: runs/RECIPES.")
    ] = None,
    publish: Annotated[
        Path | None,
        typer.Option(help="Also write the tables to this path, as .md, .json and .png."),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Start over with cells that failed, or whose recipe or data has changed.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train every row of a table for several seeds and compare the results with the paper's.

    Finished cells are not trained again: to resume, repeat the command.
    """
    from longtail.reproduce import find_recipes, list_recipes, read_recipes, with_encoder
    from longtail.reproduce import reproduce as run_rows
    from longtail.reproduce.run import cells_of

    if recipes is None and source.data not in (known := list_recipes()):
        raise InputError(
            f"there are no recipes for {source.data}. Add --recipes and one of {', '.join(known)}, "
            "or a folder with one .yaml file per row."
        )
    folder = find_recipes(recipes or source.data)
    names = [row.strip() for row in (rows or "").split(",") if row.strip()]
    chosen = read_recipes(folder, names)
    if encoder is not None:
        chosen = with_encoder(chosen, encoder)
    if device is not None:
        chosen = {row: {**recipe, "device": device} for row, recipe in chosen.items()}
    flags = {
        "recipes": recipes, "encoder": encoder, "seeds": seeds, "rows": rows, "device": device,
        "jobs": jobs, "engine": engine, "against": against, "out": out, "publish": publish,
    }  # fmt: skip
    arguments = [*source.arguments(with_split=True), *command_line(flags, {"seeds": 3, "jobs": 1})]
    command = shlex.join(["longtail", "reproduce", *arguments])
    out = out or Path("runs") / folder.resolve().name
    cells = cells_of(chosen, out, seeds)
    parts = source.parts(needed=("train", "validation", "test"))
    kept = f"Finished cells and checkpoints are kept in {out}. Resume with the same command."
    with (
        cluster_of(engine) as cluster,
        stoppable(command, kept) as stop,
        _progress(cells, jobs) as watch,
    ):
        result = run_rows(
            parts, chosen, out, corpus=_corpus(source, parts), seeds=seeds, jobs=jobs,
            engine=cluster, against=against, command=command, publish=publish,
            overwrite=overwrite, stop=stop, watch=watch,
        )  # fmt: skip
    _show(result, source, as_json)
    if result.failed:
        raise SystemExit(1)


def _corpus(source: Source, parts: Any) -> str:
    """The name of a corpus, or of a file or folder without its path.

    A folder named like one of the paper's corpora counts as that corpus if its sizes agree.
    """
    from longtail.corpora import list_corpora
    from longtail.report.paper import CORPORA
    from longtail.reproduce.results import has_papers_sizes

    if source.data in list_corpora() or not Path(source.data).exists():
        return source.data
    name = Path(source.data).name
    if name in CORPORA and not has_papers_sizes(parts, name):
        return f"{name} (not the paper's)"
    return name


def _show(result: Reproduced, source: Source, as_json: bool) -> None:
    from longtail.reproduce.page import figure_table

    by_suffix = {path.suffix: path for path in reversed(result.files)}
    if as_json:
        typer.echo(by_suffix[".json"].read_text("utf-8"), nl=False)
    else:
        title = f"micro-F1 / macro-F1 on the test part of {source.data}"
        table = figure_table(result.results, "labels", spread=False)
        # Wide enough that a table is not truncated in a pipe.
        print_table(table, title, width=None if sys.stdout.isatty() else 120)
        typer.echo(f"Wrote {', '.join(map(str, result.files))}.")
    for cell, why in result.failed.items():
        typer.secho(f"error: {cell} failed: {why}", fg="red", err=True)


@contextmanager
def _progress(cells: list[Cell], jobs: int) -> Iterator[Callable[[Event], None]]:
    """A progress bar on a terminal, else a line per event."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console, counts = Console(stderr=True), Counts(cells, jobs)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=len(cells), left="")

        def show(event: Event) -> None:
            if event.kind == "note":
                print_notes([f"{event.cell}: {event.message}"])
                return
            line = counts.add(event)
            if line and (event.kind == "failed" or not console.is_terminal):
                style = "red" if event.kind == "failed" else None
                console.print(line, highlight=False, markup=False, soft_wrap=True, style=style)
            done = counts.done + sum(event.share for event in counts.running.values())
            running = [f"{name} {event.message}".strip() for name, event in counts.running.items()]
            bar.update(task, completed=done, description=", ".join(running), left=counts.left())

        yield show


class Counts:
    """Counts finished and running cells, and estimates the time left."""

    def __init__(self, cells: list[Cell], jobs: int) -> None:
        self.cells, self.jobs = cells, jobs
        self.unfinished = dict[str, str]()
        """Unfinished cells, with their rows."""
        self.running: dict[str, Event] = {}
        """Running cells, with their last events."""
        self.started = dict[str, float]()
        self.durations = defaultdict[str, list[float]](list)
        """Row -> seconds of its finished cells."""

    def add(self, event: Event) -> str:
        """Count an event; returns the line to print, or an empty string."""
        name, now = str(event.cell), time.monotonic()
        if not self.started:
            # Cells that an earlier command finished have no events.
            self.unfinished = {str(cell): cell.row for cell in self.cells if not cell.is_finished}
        self.running[name] = event
        if event.kind == "begins":
            self.started[name] = now
            line = f"{self.done} of {len(self.cells)} done; training {name}; {self.left()}"
            return line.removesuffix("; ")
        if event.kind == "progress":
            return ""
        del self.running[name], self.unfinished[name]
        if event.kind == "failed":
            return f"{name} failed: {event.message}"
        duration = now - self.started[name]
        self.durations[event.cell.row].append(duration)
        return f"{name} done in {duration:.0f} s"

    @property
    def done(self) -> int:
        return len(self.cells) - len(self.unfinished)

    def left(self) -> str:
        """The time left: a cell takes as long as those of its row, or else of all rows."""
        known = [duration for row in self.durations.values() for duration in row]
        if not known or not self.unfinished:
            return ""
        seconds = 0.0
        for name, row in self.unfinished.items():
            share = self.running[name].share if name in self.running else 0
            seconds += (1 - share) * mean(self.durations.get(row, known))
        seconds /= max(self.jobs, len(self.running))
        amount = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
        return f"about {amount} left"
