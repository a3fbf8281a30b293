"""`longtail report`: trained models side by side, as a table or a page."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from longtail.cli.evaluate import IncludeTrained, Split, leave_out_trained
from longtail.cli.reading import Source, evaluates_data_option
from longtail.cli.show import Overwrite, TrustRemoteCode
from longtail.errors import InputError
from longtail.runs.files import MADE_BY, check_replaceable, write_text
from longtail.runs.model import CONFIG_FILE, read_config

# How each format says, at its end, who made it; JSON has a field for it.
MARKS = {
    "markdown": f"\n<!-- {MADE_BY} -->\n",
    "html": f"<!-- {MADE_BY} -->\n",
    "latex": f"% {MADE_BY}\n",
    "json": "",
}


@evaluates_data_option
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders written by `longtail train`.")],
    source: Source,
    split: Split = None,
    include_trained: IncludeTrained = False,
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
    """Compare trained models on the test part, or on what none was trained on: a table or page."""
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

    load = partial(LongTailClassifier.from_pretrained, trust_remote_code=trust_remote_code)
    read = source.read_as(runs[0]).part(split)
    # One model at a time: all together may not fit in memory.
    loaded = ((run, load(run)) for run in runs)
    test = leave_out_trained(read, source.data, loaded, include_trained).documents
    evaluated = {}
    for run in runs:
        classifier = load(run)
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
