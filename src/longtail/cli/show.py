"""What the command shows while it works and when it is done: bars, tables, notes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def progress_bar(*, in_bytes: bool = False, transient: bool = False) -> Any:
    """A bar on the error output, with amount, rate and time left."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:,.0f}/s" if task.speed else "")

    amount = (
        (DownloadColumn(), TransferSpeedColumn()) if in_bytes else (MofNCompleteColumn(), Rate())
    )
    console = Console(stderr=True)
    # What disappears when done is only for people: a log keeps nothing of it.
    hidden = transient and not console.is_terminal
    return Progress(
        TextColumn("{task.description}"), BarColumn(), *amount, TimeRemainingColumn(),
        console=console, transient=transient, disable=hidden,
    )  # fmt: skip


def print_table(evaluations: Any, title: str) -> None:
    """Evaluations side by side: micro- and macro-F1 by groups of labels."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from longtail.report import table_rows

    header, *rows = table_rows(evaluations)
    table = Table(title=escape(title))
    for position, cell in enumerate(header):
        table.add_column(cell, justify="left" if position == 0 else "right")
    for row in rows:
        table.add_row(*map(escape, row))
    Console().print(table)


def print_notes(lines: list[str]) -> None:
    """What was skipped or left out, on the error output."""
    for line in lines:
        typer.secho(line, fg="yellow", err=True)
