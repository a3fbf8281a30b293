"""`longtail evaluate`: the figures of a trained model on documents that it has not seen."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from longtail.cli.reading import Source, reads_data
from longtail.cli.show import AsJson, Run, TrustRemoteCode, print_table


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
