"""`longtail reproduce`: the rows of a table from their recipes, resumable."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.reading import Source, reads_data
from longtail.cli.show import AsJson, print_notes
from longtail.errors import InputError

if TYPE_CHECKING:
    from longtail.reproduce import Reproduced
    from longtail.reproduce.cells import Cell
    from longtail.reproduce.running import Event


@reads_data
def reproduce(
    source: Source,
    recipes: Annotated[
        str | None,
        typer.Option(help="Recipes by name, or a folder of .yaml files; default: as DATA."),
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(help="Use another encoder than the recipes: name or folder.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of every row.")] = 3,
    rows: Annotated[str | None, typer.Option(help="Some rows, as in db,bce; default: all.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 or auto.")] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Cells trained at a time, in separate processes.")
    ] = 1,
    against: Annotated[
        str | None, typer.Option(help="The row to compare others with; default: bce.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results; default: runs/RECIPES.")
    ] = None,
    publish: Annotated[
        Path | None,
        typer.Option(help="Also write the tables to this path, with .md, .json and .png."),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Start over with cells that failed, or had another recipe or other data.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train every row of a table for several seeds and compare the results with the paper's.

    Finished cells are not trained again; an interrupted command is resumed by the same command.
    """
    from longtail.reproduce import find_recipes, read_recipes, with_encoder

    folder = find_recipes(_name(recipes, source))
    wanted = [row.strip() for row in rows.split(",") if row.strip()] if rows else None
    chosen = read_recipes(folder, wanted)
    if encoder is not None:
        chosen = with_encoder(chosen, encoder)
    if device is not None:
        chosen = {row: {**recipe, "device": device} for row, recipe in chosen.items()}
    place = Path("runs") / folder.resolve().name if out is None else out
    flags: list[tuple[str, Any, Any]] = [
        ("recipes", recipes, None), ("encoder", encoder, None), ("seeds", seeds, 3),
        ("rows", rows, None), ("device", device, None), ("jobs", jobs, 1),
        ("against", against, None), ("out", out, None), ("publish", publish, None),
    ]  # fmt: skip
    words = ["longtail", "reproduce", *source.arguments(split=True)]
    for name, value, default in flags:
        if value != default:
            words += [f"--{name}", str(value)]
    result = _run(
        source, chosen, place, shlex.join(words), seeds=seeds, jobs=jobs, against=against,
        publish=publish, overwrite=overwrite,
    )  # fmt: skip
    _show(result, source, as_json)
    if result.failed:
        raise SystemExit(1)


def _name(recipes: str | None, source: Source) -> str:
    from longtail.reproduce import list_recipes

    if recipes is not None:
        return recipes
    known = list_recipes()
    if source.data not in known:
        raise InputError(
            f"there are no recipes for {source.data}. Add --recipes and one of {', '.join(known)}, "
            "or a folder with one .yaml file per row."
        )
    return source.data


def _run(source: Source, chosen: Any, out: Path, command: str, **settings: Any) -> Reproduced:
    """Read the data and train; if it stops, print how to resume it."""
    from longtail.reproduce import reproduce as run_rows
    from longtail.reproduce.run import cells_of
    from longtail.training.interrupt import StoppedError, stopping

    cells = cells_of(chosen, out, settings["seeds"])
    parts = source.parts(needed=("train", "validation", "test"))
    with stopping() as stop, _progress(cells, settings["jobs"]) as watch:
        try:
            return run_rows(
                parts, chosen, out, corpus=_corpus(source, parts), command=command, stop=stop,
                watch=watch, note=lambda text: print_notes([text]), **settings,
            )  # fmt: skip
        except StoppedError as stopped:
            reason = str(stopped.args[0]).partition(".")[0]
            raise StoppedError(
                f"{reason}. Finished cells and checkpoints are kept in {out}. Resume with the same "
                f"command: {command}",
                stopped.exit_code,
            ) from None
        except KeyboardInterrupt:
            typer.secho(f"\nStopped at once. Resume with the same command: {command}", err=True)
            raise SystemExit(130) from None


def _corpus(source: Source, parts: Any) -> str:
    """The name of a corpus, or of a file or folder without its path.

    A folder with the name of one of the paper's corpora counts as that if it has as many labels.
    """
    from longtail.corpora import list_corpora
    from longtail.report.paper import CORPORA
    from longtail.reproduce.summary import has_papers_sizes

    if source.data in list_corpora() or not Path(source.data).exists():
        return source.data
    name = Path(source.data).name
    if name in CORPORA and not has_papers_sizes(parts, name):
        return f"{name} (not the paper's)"
    return name


def _show(result: Reproduced, source: Source, as_json: bool) -> None:
    from rich.console import Console

    from longtail.report import to_terminal
    from longtail.reproduce.tables import means_table

    by_suffix = {path.suffix: path for path in reversed(result.files)}
    if as_json:
        typer.echo(by_suffix[".json"].read_text("utf-8"), nl=False)
    else:
        title = f"micro-F1 / macro-F1 on the test part of {source.data}"
        table = to_terminal(means_table(result.summary, title), framed=True)
        # Not truncated if piped.
        Console(width=None if sys.stdout.isatty() else 120).print(table)
        typer.echo(f"Wrote {', '.join(map(str, result.files))}.")
    for cell, why in result.failed.items():
        typer.secho(f"error: {cell} failed: {why}", fg="red", err=True)


@contextmanager
def _progress(cells: list[Cell], jobs: int) -> Iterator[Callable[[Event], None]]:
    """A progress bar on a terminal, else a line for every event."""
    from rich.console import Console

    console = Console(stderr=True)
    status = Status(cells, jobs)
    if not console.is_terminal:

        def echo(event: Event) -> None:
            line = status.line(event)
            if line:
                typer.echo(line, err=True)

        yield echo
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TextColumn("{task.fields[left]}"), console=console) as bar:
        task = bar.add_task("starting", total=len(cells), left="")

        def show(event: Event) -> None:
            line = status.line(event)
            if event.kind == "failed":
                bar.console.print(line, highlight=False, markup=False, style="red")
            done = status.done + sum(status.shares.values())
            running = ", ".join(f"{cell} {text}".strip() for cell, text in status.running.items())
            bar.update(task, completed=done, description=running, left=status.left())

        yield show


class Status:
    """Finished and running cells, and an estimate of the time left."""

    def __init__(self, cells: list[Cell], jobs: int) -> None:
        self.cells, self.jobs = cells, jobs
        self.done = -1
        self.running: dict[str, str] = {}
        self.shares: dict[str, float] = {}
        self.began: dict[str, float] = {}
        self.rest: dict[str, str] = {}
        """Cell -> row of cells that are not done."""
        self.seconds: dict[str, list[float]] = {}

    def line(self, event: Event) -> str:
        """The line to print, or nothing."""
        name, now = str(event.cell), time.monotonic()
        if self.done < 0:
            # Cells that were finished before have no events.
            rest = [c for c in self.cells if not (c.folder / "finished.json").exists()]
            self.rest = {str(cell): cell.row for cell in rest}
            self.done = len(self.cells) - len(rest)
        if event.kind == "begins":
            self.running[name], self.began[name] = "", now
            left = self.left()
            return f"{self.done} of {len(self.cells)} done; training {name}" + (
                f"; {left}" if left else ""
            )
        if event.kind == "progress":
            self.running[name], self.shares[name] = event.message, event.share
            return ""
        self.running.pop(name, None)
        self.shares.pop(name, None)
        self.rest.pop(name, None)
        took = now - self.began.get(name, now)
        self.done += 1
        if event.kind == "failed":
            return f"{name} failed: {event.message}"
        self.seconds.setdefault(event.cell.row, []).append(took)
        return f"{name} done in {took:.0f} s"

    def left(self) -> str:
        """The estimated time: a row takes as long as with another seed, or as the other rows."""
        known = [seconds for row in self.seconds.values() for seconds in row]
        if not known or not self.rest:
            return ""
        seconds = 0.0
        for name, row in self.rest.items():
            times = self.seconds.get(row, known)
            seconds += (1 - self.shares.get(name, 0.0)) * sum(times) / len(times) / self.jobs
        return (
            f"about {seconds:.0f} s left" if seconds < 90 else f"about {seconds / 60:.0f} min left"
        )
