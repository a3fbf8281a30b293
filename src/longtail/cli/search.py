"""`longtail search`: trials of settings with Optuna, resumable; the best become a recipe."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.cli.chosen import Chosen, takes_settings
from longtail.cli.flags import MODEL, RUN, command_line
from longtail.cli.reading import Source, reads_data
from longtail.cli.show import (
    Cluster,
    TrustRemoteCode,
    cluster_of,
    print_notes,
    print_table,
    stoppable,
)
from longtail.cli.trained import check_plans
from longtail.errors import LongtailError, printable
from longtail.progress import show_progress

if TYPE_CHECKING:
    from longtail.search import SearchResult
    from longtail.search.space import Space
    from longtail.search.trials import Outcome


@reads_data
@takes_settings
def search(
    source: Source,
    chosen: Chosen,
    out: Annotated[Path, typer.Option(help="Folder of the study.", rich_help_panel=RUN)],
    trials: Annotated[
        int | None,
        typer.Option(
            min=1, help="Trials in all, resumed ones included. Default: 50.", rich_help_panel=RUN
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(min=0.01, help="Begin no trial after this time.", rich_help_panel=RUN),
    ] = None,
    losses: Annotated[
        str | None,
        typer.Option(
            help="Losses to compare: bce,db; default: the paper's, and squared-hinge for bag.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Resume the study in --out.", rich_help_panel=RUN),
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Start over: remove the study.", rich_help_panel=RUN),
    ] = False,
    engine: Cluster = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Search for the best settings on held-out documents, and write them as a recipe.

    A setting that a flag gives is not searched. The test part is not opened.
    """
    from longtail.search import check_extra

    check_extra()
    names = None if losses is None else [name.strip() for name in losses.split(",")]
    settings = chosen.resolved(partial=resume)
    source.check_split_is_used()
    from longtail.analysis import label_warnings
    from longtail.search.space import check_settings
    from longtail.search.study import KEPT, check_folder
    from longtail.search.study import search as run_search

    check_folder(out, resume=resume, overwrite=overwrite)
    if not resume:
        check_plans([check_settings(settings, chosen.names, names)])
    parts = source.parts(only=("train", "validation"))
    print_notes(label_warnings(parts["train"]))
    arguments = source.arguments(with_split=True)
    flags = ["--out", str(out), "--resume", *command_line({"engine": engine}, {"engine": None})]
    flags += ["--trust-remote-code"] if trust_remote_code else []
    command = shlex.join(["longtail", "search", *arguments, *flags])
    with (
        cluster_of(engine) as cluster,
        stoppable(command, KEPT) as stop,
        show_progress() as progress,
    ):
        done = run_search(
            parts["train"],
            parts["validation"],
            folder=out,
            settings=settings,
            fixed=chosen.names,
            losses=names,
            trials=trials,
            minutes=minutes,
            resume=resume,
            overwrite=overwrite,
            engine=cluster,
            progress=progress,
            note=lambda text: print_notes([text]),
            stop=stop,
            begun=_print_space,
            watch=_print_trial,
            trust_remote_code=trust_remote_code,
        )
        if done.trials:
            _show(done)
        if done.stopped is not None:
            raise done.stopped
    if done.best is None:
        errors = [trial.error for trial in done.trials if trial.error]
        why = f"The last one: {errors[-1]}" if errors else "Allow more --minutes."
        raise LongtailError(f"no trial was completed. {why}")
    run = out.parent / f"{out.resolve().name}-best"
    to_train = ["--recipe", str(out / "best.yaml"), "--out", str(run)]
    words = ["longtail", "train", *arguments, *to_train, *command_line(done.runtime, {})]
    typer.echo(f"Train with the best settings: {shlex.join(words)}")


def _print_space(space: Space) -> None:
    typer.echo("Searched:")
    for name, values in space.to_dict().items():
        typer.echo(f"  {name}: {values}")


def _print_trial(trial: Outcome, best: Outcome | None) -> None:
    """One line for each trial, on standard error beside the progress."""
    from longtail.search.results import describe

    line = f"trial {trial.number}: {describe(trial)}"
    if best is not None and best.number == trial.number:
        line += " (best so far)"
    typer.echo(printable(line), err=True)


def _show(done: SearchResult) -> None:
    n_shown, n_all = len(done.top.rows), len(done.trials)
    title = "Trials" if n_shown == n_all else f"The best {n_shown} of {n_all} trials"
    # Wide enough that a table is not truncated in a pipe.
    print_table(done.top, title, width=None if sys.stdout.isatty() else 120)
    typer.echo(f"Wrote {', '.join(map(str, done.files))}.")
