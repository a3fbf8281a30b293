"""`longtail report`: trained models side by side, as a table or a page."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from longtail.cli.evaluate import IncludeTrained, Split, leave_out_trained
from longtail.cli.reading import Source, evaluates_data_option
from longtail.cli.show import Overwrite, Runs, TrustRemoteCode
from longtail.errors import InputError
from longtail.runs.files import MADE_BY, check_replaceable, write_text
from longtail.runs.model import CONFIG_FILE, read_config

# The last line of a report, by which the next one may replace it; JSON has a field for it, and CSV
# has no comments.
MARKS = {
    "markdown": f"\n<!-- {MADE_BY} -->\n",
    "html": f"<!-- {MADE_BY} -->\n",
    "latex": f"% {MADE_BY}\n",
    "json": "",
    "csv": "",
}


@evaluates_data_option
def report(
    runs: Runs,
    source: Source,
    split: Split = None,
    include_trained: IncludeTrained = False,
    to: Annotated[
        str | None,
        typer.Option(help="markdown, latex, json, html or csv; default: the suffix of --out."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write: report.html, .md, .tex, .json, or labels.csv with every label."
        ),
    ] = None,
    overwrite: Overwrite = False,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Compare trained models on the test part, or on documents none was trained on."""
    from longtail.report import Run as ReportRun
    from longtail.report import format_of, render, summarize
    from longtail.report.paper import CORPORA

    output_format = format_of(to, out)
    if out is not None:
        _check_report(out, runs, source, overwrite)
    from longtail.classifier import LongTailClassifier
    from longtail.classifier.summary import describe_model

    load = partial(LongTailClassifier.from_pretrained, trust_remote_code=trust_remote_code)
    documents = source.read_as(runs[0]).part(split)
    if documents.ids is None:
        n_read = len(documents)
        ids = tuple(f"document {n:,} of {n_read:,}" for n in range(1, n_read + 1))
        documents = replace(documents, ids=ids)
    # One model at a time: all together may not fit in memory.
    loaded = ((run, load(run)) for run in runs)
    documents, counts = leave_out_trained(documents, source.data, loaded, include_trained)
    evaluated = {}
    for run in runs:
        classifier = load(run)
        evaluation, scores = classifier.evaluate_scores(documents)
        known = documents.onto([str(name) for name in classifier.classes_])[0]
        settings = describe_model(classifier, run)
        evaluated[str(run)] = ReportRun(evaluation, known, scores, settings=settings)
    # A file or folder may have the name of one of the paper's corpora, but not its rows.
    corpus = source.data if source.data in CORPORA else None
    about = {"corpus": corpus, "source": _describe_data(source, split, counts)}
    if to is None and out is None:
        text = summarize(evaluated, **about)
    else:
        text = render(evaluated, output_format, **about)
    if out is None:
        typer.echo(text, nl=False)
        return
    write_text(out, text + MARKS[output_format])
    typer.echo(f"Wrote {out}.")


def _describe_data(source: Source, split: str | None, counts: dict[str, int | None]) -> str:
    """DATA as the user typed it, and which of its documents are evaluated."""
    part = f"{split or 'test'} part" if source.has_parts() else "all documents"
    n_trained, is_whole = counts["trained_on"], counts["evaluated"] == counts["read"]
    if not n_trained:
        return f"{source.data}, {part}"
    fate = "included" if is_whole else "left out"
    return f"{source.data}, {part}, {n_trained:,} that were trained on {fate}"


def _check_report(out: Path, runs: list[Path], source: Source, overwrite: bool) -> None:
    """Raise if the report would replace its data, a model, or a file that is not a report."""
    inputs = [Path(source.data)]
    for run in runs:
        inputs += [run / name for name in ((read_config(run) or {}).get("files", ()))]
        inputs.append(run / CONFIG_FILE)
    if out.exists() and any(path.is_file() and path.samefile(out) for path in inputs):
        raise InputError(f"{out} is an input of the report. Choose another name.")
    check_replaceable(out, overwrite)
