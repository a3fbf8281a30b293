"""The command `longtail`: one verb per function, heavy imports inside the verbs."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from longtail import __version__
from longtail.cli import data
from longtail.cli.predict import predict
from longtail.cli.reading import Source, reads_data, reads_data_option
from longtail.cli.reproduce import reproduce
from longtail.cli.show import AsJson, Overwrite, TrustRemoteCode, print_table, show_progress
from longtail.cli.train import train
from longtail.errors import InputError, LongtailError, printable
from longtail.runs.files import MADE_BY, check_replaceable, write_text
from longtail.runs.model import CONFIG_FILE, read_config

app = typer.Typer(
    name="longtail",
    help="Classify texts with many labels, most of them rare.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(data.stats)
app.command()(train)
app.command()(predict)
app.command()(reproduce)
app.add_typer(data.corpus_app, name="corpus")

Run = Annotated[Path, typer.Argument(help="A folder written by `longtail train`.")]


def _version(wanted: bool) -> None:
    if wanted:
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

    console = Console()
    with show_progress() as progress:
        result = run_demo(progress)
    labels = ", ".join(result.example_labels)
    console.print(Panel(Text(result.example), title="a document", subtitle=f"labels: {labels}"))
    print_table(result.evaluations, "micro-F1 / macro-F1 on the test part, by label frequency")
    console.print(result.sentence, highlight=False)


@app.command()
@reads_data
def evaluate(
    run: Run,
    source: Source,
    split: Annotated[
        str | None,
        typer.Option(
            "--split", "--part", help="train, validation or test; default: test, or a whole file."
        ),
    ] = None,
    as_json: AsJson = False,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Evaluate a trained model on the test part of the data, or on all of a file."""
    from longtail.classifier import LongTailClassifier

    documents = source.part(split, run)
    classifier = LongTailClassifier.from_pretrained(run, trust_remote_code=trust_remote_code)
    result = classifier.evaluate(documents)
    if as_json:
        typer.echo(json.dumps(result.to_dict(), indent=2))
        return
    print_table(
        {str(run): result}, f"micro-F1 / macro-F1 on {len(documents)} documents of {source.data}"
    )
    if result.unknown_labels:
        count = sum(result.unknown_labels.values())
        typer.echo(
            f"Not evaluated: {count} assignments of {len(result.unknown_labels)} labels that the "
            f"model was not trained on, such as {next(iter(result.unknown_labels))!r}."
        )


# How each format says, at its end, who made it; JSON has a field for it.
MARKS = {
    "markdown": f"\n<!-- {MADE_BY} -->\n",
    "html": f"<!-- {MADE_BY} -->\n",
    "latex": f"% {MADE_BY}\n",
    "json": "",
}


@app.command()
@reads_data_option
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders written by `longtail train`.")],
    source: Source,
    to: Annotated[
        str | None, typer.Option(help="markdown, latex, json or html; default: as --out is called.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File to write, such as report.html.")] = None,
    overwrite: Overwrite = False,
    paper: Annotated[
        str | None, typer.Option(help="reuters or pubmed: the paper's figures beside ours.")
    ] = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Compare trained models on the test part, or on all of a file: a table, or a whole page."""
    from longtail.report import Run as ReportRun
    from longtail.report import (
        check_corpus,
        format_of,
        label_table,
        render,
        to_markdown,
    )

    wanted = format_of(to, out)
    if out is not None:
        _check_report(out, runs, source, overwrite)
    if paper is not None:
        check_corpus(paper)
    from longtail.classifier import LongTailClassifier

    test = source.part_for(runs)
    evaluated = {}
    for run in runs:
        classifier = LongTailClassifier.from_pretrained(run, trust_remote_code=trust_remote_code)
        evaluation, scores = classifier.evaluate_scores(test)
        known = test.onto([str(name) for name in classifier.classes_])[0]
        evaluated[str(run)] = ReportRun(evaluation, known, scores)
    corpus = paper or (source.data if source.data in ("reuters", "pubmed") else None)
    if to is None and out is None and corpus is None:
        evaluations = {name: run.evaluation for name, run in evaluated.items()}
        typer.echo(to_markdown(label_table(evaluations), bare=True), nl=False)
        return
    text = render(evaluated, wanted, corpus)
    if out is None:
        typer.echo(text, nl=False)
        return
    write_text(out, text + MARKS[wanted])
    typer.echo(f"Wrote {out}.")


def _check_report(out: Path, runs: list[Path], source: Source, overwrite: bool) -> None:
    """Raise if the report would take the place of what it is made of, or of something else."""
    read = [Path(source.data)]
    for run in runs:
        read += [run / name for name in ((read_config(run) or {}).get("files", ()))]
        read.append(run / CONFIG_FILE)
    if out.exists() and any(path.is_file() and path.samefile(out) for path in read):
        raise InputError(f"{out} is what the report is made of. Choose another name.")
    check_replaceable(out, overwrite)


@app.command()
def serve(
    run: Run,
    host: Annotated[str, typer.Option()] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Serve predictions over HTTP; needs the extra `serve`."""
    from longtail.classifier import LongTailClassifier
    from longtail.errors import MissingExtraError
    from longtail.serve import create_app

    classifier = LongTailClassifier.from_pretrained(run, trust_remote_code=trust_remote_code)
    service = create_app(classifier)
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtraError("the service", "uvicorn", "serve") from error
    uvicorn.run(service, host=host, port=port)


def main() -> None:
    """Run the command; an error that the user can mend is one message, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A console that cannot show a character shows its code instead of ending the command.
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except BrokenPipeError:
        # Whoever read our output has seen enough; leave without a word, as other commands do.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except (LongtailError, OSError) as error:
        typer.secho(f"error: {printable(str(error))}", fg="red", err=True)
        raise SystemExit(getattr(error, "exit_code", 1)) from None
    except MemoryError:
        why = "the memory is full. Use fewer documents or labels, or a machine with more memory."
        typer.secho(f"error: {why}", fg="red", err=True)
        raise SystemExit(1) from None
