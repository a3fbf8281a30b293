"""`longtail explain`: what the words of texts add to the scores of labels."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.flags import takes
from longtail.cli.predict import FLAGS
from longtail.cli.show import AsJson, Run, TrustRemoteCode, print_notes
from longtail.cli.texts import STANDARD_INPUT, Texts
from longtail.errors import InputError
from longtail.progress import ignore, show_progress
from longtail.runs.files import check_new, check_not_read, whole_file, write_text

if TYPE_CHECKING:
    from longtail.classifier import LongTailClassifier
    from longtail.models.explanation import Explanation

PAGE, LINES = (".html", ".htm"), (".jsonl",)
Explained = Iterator[tuple[str, "Explanation"]]


@takes("reading", FLAGS, dict)
def explain(
    run: Run,
    reading: dict[str, Any],
    data: Annotated[
        str | None,
        typer.Argument(
            help="What `longtail predict` reads; -, the default without --text: the standard "
            "input, one text per line or what --format says."
        ),
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option("--text", help="A text, in place of DATA; repeatable.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--label",
            help="A label to explain; repeatable. Default: the predicted ones of each text or, "
            "where there is none, the best one.",
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option("--split", "--part", help="Only this part of DATA: train, validation, test."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only the first documents, so many.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write: .html, a page, or .jsonl.")
    ] = None,
    as_json: AsJson = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace --out; the old file stays until then.")
    ] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, or as it was trained.")] = None,
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
        raise InputError("the standard input and --text have no parts. Leave out --split.")
    given = {name: value for name, value in reading.items() if value is not None}
    texts = None if text else Texts(source, given.pop("format", None), given, split, run)

    from longtail.classifier import LongTailClassifier

    classifier = LongTailClassifier.from_pretrained(
        run, device=device, trust_remote_code=trust_remote_code
    )
    classifier.explain([], label)  # an unknown label is an error before anything is read
    on_terminal = out is None and sys.stdout.isatty()
    with nullcontext(ignore) if on_terminal or texts is None else show_progress() as progress:

        def explained() -> Explained:
            numbered = ((str(n), each) for n, each in enumerate(text or (), start=1))
            documents = numbered if texts is None else _documents(texts)
            for n_done, (name, one) in enumerate(documents, start=1):
                yield name, classifier.explain([one], label)[0]
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
            f"expected a file to write with one of the suffixes {', '.join(PAGE + LINES)}, got "
            f"{out}."
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
    """Write the explanations as they come: as JSON Lines, on the terminal, or as one page."""
    from longtail.data.records import json_line
    from longtail.report.explanations import explanation_lines, explanations_page

    names = [str(name) for name in classifier.classes_]
    thresholds = dict(zip(names, classifier.thresholds_.values.tolist(), strict=True))
    if out is None and not as_json:
        from rich.console import Console

        console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
        for name, one in explained:
            for line in explanation_lines(name, one, thresholds):
                console.print(line)
    elif out is None:
        for name, one in explained:
            sys.stdout.write(json_line({"id": name} | one.to_dict()))
            sys.stdout.flush()
    elif out.suffix.lower() in LINES:
        with whole_file(out) as path, path.open("w", encoding="utf-8") as file:
            file.writelines(json_line({"id": name} | one.to_dict()) for name, one in explained)
        typer.echo(f"Wrote {out}.")
    else:
        write_text(out, explanations_page(list(explained), thresholds, str(run)))
        typer.echo(f"Wrote {out}.")
