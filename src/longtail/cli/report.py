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

# How each format says, at its end, who made it; JSON has a field for it, and
# CSV no place.
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
        typer.Option(help="markdown, latex, json, html or csv; default: by the suffix of --out."),
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
    """Compare trained models on the test part, or on what none was trained on: a table or page."""
    from longtail.report import Run as ReportRun
    from longtail.report import format_of, render, summarize
    from longtail.report.paper import CORPORA

    wanted = format_of(to, out)
    if out is not None:
        _check_report(out, runs, source, overwrite)
    from longtail.classifier import LongTailClassifier
    from longtail.classifier.summary import describe_model

    load = partial(LongTailClassifier.from_pretrained, trust_remote_code=trust_remote_code)
    read = source.read_as(runs[0]).part(split)
    if read.ids is None:
        ids = tuple(f"document {n:,} of {len(read):,}" for n in range(1, len(read) + 1))
        read = replace(read, ids=ids)
    # One model at a time: all together may not fit in memory.
    loaded = ((run, load(run)) for run in runs)
    kept = leave_out_trained(read, source.data, loaded, include_trained)
    test = kept.documents
    evaluated = {}
    for run in runs:
        classifier = load(run)
        evaluation, scores = classifier.evaluate_scores(test)
        known = test.onto([str(name) for name in classifier.classes_])[0]
        settings = describe_model(classifier, run)
        evaluated[str(run)] = ReportRun(evaluation, known, scores, settings=settings)
    # The paper's rows belong to its corpora alone, whatever a file or folder is called.
    corpus = source.data if source.data in CORPORA else None
    about = {"corpus": corpus, "source": _evaluated(source, split, kept.counts)}
    is_short = to is None and out is None
    text = summarize(evaluated, **about) if is_short else render(evaluated, wanted, **about)
    if out is None:
        typer.echo(text, nl=False)
        return
    write_text(out, text + MARKS[wanted])
    typer.echo(f"Wrote {out}.")


def _evaluated(source: Source, split: str | None, counts: dict[str, int | None]) -> str:
    """The data as the user named them, and which documents of them are evaluated."""
    part = f"{split or 'test'} part" if source.has_parts() else "all documents"
    n_trained, is_whole = counts["trained_on"], counts["evaluated"] == counts["read"]
    if not n_trained:
        return f"{source.data}, {part}"
    fate = "included" if is_whole else "left out"
    return f"{source.data}, {part}, {n_trained:,} that were trained on {fate}"


def _check_report(out: Path, runs: list[Path], source: Source, overwrite: bool) -> None:
    """Raise if the report would take the place of what it is made of, or of something else."""
    read = [Path(source.data)]
    for run in runs:
        read += [run / name for name in ((read_config(run) or {}).get("files", ()))]
        read.append(run / CONFIG_FILE)
    if out.exists() and any(path.is_file() and path.samefile(out) for path in read):
        raise InputError(f"{out} is what the report is made of. Choose another name.")
    check_replaceable(out, overwrite)
