"""`longtail evaluate`: the scores of a trained model on documents that it has not seen."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from longtail.cli.reading import Source, evaluates_data
from longtail.cli.show import AsJson, Run, TrustRemoteCode, print_notes, print_table
from longtail.errors import InputError

if TYPE_CHECKING:
    from longtail.classifier import LongTailClassifier
    from longtail.data import TextData

Split = Annotated[
    str | None,
    typer.Option(
        "--split", "--part", help="train, validation or test, of data with parts; default: test."
    ),
]
IncludeTrained = Annotated[
    bool,
    typer.Option("--include-trained", help="Also evaluate training documents."),
]


@evaluates_data
def evaluate(
    run: Run,
    source: Source,
    split: Split = None,
    include_trained: IncludeTrained = False,
    as_json: AsJson = False,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Evaluate a trained model on the test part, or on all documents it was not trained on."""
    from longtail.analysis.label_warnings import separator_warnings
    from longtail.classifier import LongTailClassifier
    from longtail.report import label_table
    from longtail.report.table import plural

    documents = source.read_as(run).part(split)
    classifier = LongTailClassifier.from_pretrained(run, trust_remote_code=trust_remote_code)
    kept = leave_out_trained(documents, source.data, [(run, classifier)], include_trained)
    result, _ = classifier.evaluate_scores(kept.documents)
    if as_json:
        typer.echo(json.dumps({"documents": kept.counts} | result.to_dict(), indent=2))
        return
    n_documents = len(kept.documents)
    title = f"micro-F1 / macro-F1 on {plural(n_documents, 'document')} of {source.data}"
    print_table(label_table({str(run): result}), title)
    n_absent = int((result.y_true.getnnz(axis=0) == 0).sum())
    if n_absent:
        verb = (
            "is in none of these documents and counts"
            if n_absent == 1
            else ("are in none of these documents and count")
        )
        typer.echo(f"{plural(n_absent, 'label')} {verb} as 0 in macro-F1.")
    if result.unknown_labels:
        print_notes(separator_warnings([*kept.documents.label_names, *classifier.classes_]))
        count = sum(result.unknown_labels.values())
        n_labels, first = len(result.unknown_labels), next(iter(result.unknown_labels))
        typer.echo(
            f"Not evaluated: {plural(count, 'assignment')} of {plural(n_labels, 'label')} that the "
            f"model was not trained on, such as {first!r}."
        )
        only_unknown = (result.y_true.getnnz(axis=1) == 0) & (kept.documents.Y.getnnz(axis=1) > 0)
        if only_unknown.any():
            typer.echo(
                f"No other labels: {plural(int(only_unknown.sum()), 'document')}. Every label "
                "predicted there counts as wrong."
            )


class Kept(NamedTuple):
    """The documents to evaluate, with counts."""

    documents: TextData
    counts: dict[str, int | None]
    """`read`; `trained_on`, None if no run has hashes of its training documents; `evaluated`."""


def leave_out_trained(
    documents: TextData,
    data: str,
    runs: Iterable[tuple[Path, LongTailClassifier]],
    include_trained: bool,
) -> Kept:
    """Keep the documents that no run was trained on; print a note about the others."""
    import numpy as np

    names, is_trained = [], np.zeros(len(documents), dtype=bool)
    for run, classifier in runs:
        if classifier.document_hashes_ is None:
            note = f"{run} has no hashes of its training documents: any of them in {data} are"
            print_notes([f"{note} evaluated too, and the scores are then too high."])
            continue
        names.append(str(run))
        is_trained |= classifier.trained_on(documents.texts)
    n_trained, n_read = int(is_trained.sum()), len(documents)
    counts: dict[str, int | None] = {"read": n_read, "trained_on": n_trained if names else None}
    who = f"{names[0]} was" if len(names) == 1 else "together, these models were"
    overlap = f"{who} trained on {n_trained:,} of {n_read:,} documents of {data}"
    if n_trained and include_trained:
        print_notes([f"{overlap}: they are evaluated too, and the scores are too high."])
    elif n_trained == n_read > 0:
        raise InputError(
            f"there is nothing to evaluate: {overlap}. Give documents that were held out or are "
            "new, or see how well the model fits these with --include-trained."
        )
    elif n_trained:
        print_notes([f"{overlap}: they are left out (--include-trained keeps them)."])
        documents = documents.select(~is_trained)
    return Kept(documents, counts | {"evaluated": len(documents)})
