"""`longtail explain`: what the words of texts add to the scores of labels."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.flags import given_flags, takes
from longtail.cli.predict import READING_FLAGS
from longtail.cli.show import AsJson, Device, OverwriteOut, Part, Run, TrustRemoteCode, print_notes
from longtail.cli.texts import STANDARD_INPUT, Texts
from longtail.errors import InputError
from longtail.progress import ignore, show_progress
from longtail.runs.files import check_new, check_not_read, whole_file, write_text

if TYPE_CHECKING:
    from longtail.classifier import LongTailClassifier
    from longtail.models.explanation import Explanation

PAGE, LINES = (".html", ".htm"), (".jsonl",)
Explained = Iterator[tuple[str, "Explanation"]]
"""Ids of texts with their explanations."""


@takes("reading", READING_FLAGS, given_flags)
def explain(
    run: Run,
    reading: dict[str, Any],
    data: Annotated[
        str | None,
        typer.Argument(
            help="What `longtail predict` reads; -, the default without --text: standard input, "
            "one text per line or in --format."
        ),
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option("--text", help="A text, in place of DATA; repeatable.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--label",
            help="A label to explain; repeatable. Default: the predicted labels of each text or, "
            "if there are none, the best one.",
        ),
    ] = None,
    split: Part = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N documents.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write: .html, a page, or .jsonl.")
    ] = None,
    as_json: AsJson = False,
    overwrite: OverwriteOut = False,
    device: Device = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Show what each word of a text adds to the scores of its labels.

    Exact for linear models; integrated gradients for encoders, with their error.
    """
    if text and data is not None:
        raise InputError(f"got --text and DATA ({data}). Give one of them.")
    if out is not None:
        _check_out(out, data, as_json, overwrite)
    source = STANDARD_INPUT if data is None else data
    if source == STANDARD_INPUT and split is not None:
        raise InputError("standard input and --text have no parts. Leave out --split.")
    texts = None if text else Texts([source], reading.pop("format", None), reading, split, run)

    from longtail.classifier import LongTailClassifier

    classifier = LongTailClassifier.from_pretrained(
        run, device=device, trust_remote_code=trust_remote_code
    )
    classifier.explain([], label)  # raises for an unknown label, before anything is read
    on_terminal = out is None and sys.stdout.isatty()
    with nullcontext(ignore) if on_terminal or texts is None else show_progress() as progress:

        def explained() -> Explained:
            numbered = ((str(n), content) for n, content in enumerate(text or (), start=1))
            documents = numbered if texts is None else _documents(texts)
            for n_done, (name, content) in enumerate(documents, start=1):
                yield name, classifier.explain([content], label)[0]
                if texts is not None:
                    progress(texts.progress(n_done, 0.0))
                if n_done == limit:
                    return

        _show(explained(), classifier, run, out, as_json)
    if texts is not None:
        print_notes(texts.report.lines())


def _check_out(out: Path, data: str | None, as_json: bool, overwrite: bool) -> None:
    """Raise for a file that cannot be written, before anything is read."""
    if as_json:
        raise InputError("--json prints, and --out writes a file. Leave out one of them.")
    if out.suffix.lower() not in PAGE + LINES:
        raise InputError(
            f"--out: expected a file with the suffix {', '.join(PAGE + LINES)}, got {out}."
        )
    if data is not None:
        check_not_read(out, data)
    check_new(out, overwrite)


def _documents(texts: Texts) -> Iterator[tuple[str, str]]:
    for batch in texts.batches():
        for document in batch:
            yield str(document.id), document.text


def _show(
    explained: Explained,
    classifier: LongTailClassifier,
    run: Path,
    out: Path | None,
    as_json: bool,
) -> None:
    """Write the explanations: to the terminal or as JSON Lines as they come, or as one page."""
    from longtail.data.records import json_line
    from longtail.report.explanations import explanation_lines, explanations_page

    names = [str(name) for name in classifier.classes_]
    thresholds = dict(zip(names, classifier.thresholds_.values.tolist(), strict=True))
    if out is None and not as_json:
        from rich.console import Console

        console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
        for name, explanation in explained:
            for line in explanation_lines(name, explanation, thresholds):
                console.print(line)
        return
    records = (json_line({"id": name} | explanation.to_dict()) for name, explanation in explained)
    if out is None:
        for record in records:
            sys.stdout.write(record)
            sys.stdout.flush()
        return
    if out.suffix.lower() in LINES:
        with whole_file(out) as path, path.open("w", encoding="utf-8") as file:
            file.writelines(records)
    else:
        write_text(out, explanations_page(list(explained), thresholds, str(run)))
    typer.echo(f"Wrote {out}.")
