"""`longtail export`: a run as ONNX files, compared with the original, or for transformers."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.checks import check_choice
from longtail.cli.reading import MEMORY, Source
from longtail.cli.show import Run, TrustRemoteCode
from longtail.errors import DataError, InputError
from longtail.runs.files import read_regular
from longtail.runs.model import check_engine, check_out, read_config, replace_model, whole_folder

if TYPE_CHECKING:
    from longtail.classifier import LongTailClassifier
    from longtail.classifier.export import Comparison

MAX_CHECKED = 500  # documents of --check that both models predict


def export(
    run: Run,
    to: Annotated[
        str,
        typer.Option(help="onnx: a run that needs no torch weights; hf: for transformers."),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    int8: Annotated[
        bool, typer.Option("--int8", help="onnx: quantize networks to int8: smaller and faster.")
    ] = False,
    check: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help=f"onnx: compare both models on {MAX_CHECKED} documents of DATA, of the test part "
            "if it has parts; default: on generated texts.",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an exported model in --out.")
    ] = False,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Write a trained model as ONNX files, or as a folder that transformers loads."""
    config = read_config(whole_folder(run)) or {}
    _check(run, out, to, int8=int8, check=check, overwrite=overwrite)
    check_engine(run, config, "torch")
    source = None if check is None else Source(check, None, None, {}, {})
    from longtail.classifier import LongTailClassifier
    from longtail.classifier.export import to_transformers

    classifier = LongTailClassifier.from_pretrained(run, "cpu", trust_remote_code=trust_remote_code)
    if to == "hf":
        to_transformers(classifier, out)
        thresholds = classifier.thresholds_
        if thresholds.min_labels or thresholds.max_labels is not None:
            typer.echo("The minimum and maximum number of labels per text are not exported.")
        typer.echo(f"Saved to {out}. Use it with: pipeline('text-classification', {str(out)!r})")
        return
    comparison = _to_onnx(classifier, run, out, source, int8)
    n, texts = comparison.n_documents, "generated texts" if check is None else f"texts of {check}"
    typer.echo(
        f"On {n} {texts}: scores differ by at most {comparison.difference:.2g}, "
        f"{comparison.n_alike / n:.1%} get the same labels."
    )
    if comparison.evaluations:
        (micro, macro), (micro_after, macro_after) = (
            (100 * evaluation.overall.micro_f1, 100 * evaluation.overall.macro_f1)
            for evaluation in comparison.evaluations
        )
        typer.echo(
            f"Their micro-F1 / macro-F1: {micro:.2f} / {macro:.2f} before, {micro_after:.2f} / "
            f"{macro_after:.2f} exported ({micro_after - micro:+.2f} / {macro_after - macro:+.2f})."
        )
    typer.echo(f"Saved to {out}. Use it as any run: longtail predict {out} DATA")


def _check(
    run: Path, out: Path, to: str, *, int8: bool, check: str | None, overwrite: bool
) -> None:
    """Raise for flags that conflict, before anything is loaded."""
    check_choice("--to", to, ("onnx", "hf"))
    if to == "hf":
        given = {"--int8": int8, "--check": check is not None, "--overwrite": overwrite}
        for name, is_given in given.items():
            if is_given:
                raise InputError(f"{name} belongs to --to onnx. Leave it out.")
        return
    check_out(out)
    if out.exists() and out.samefile(run):
        raise InputError(f"{out} is the run itself. Choose another folder for the exported model.")
    existing = read_config(whole_folder(out))
    if existing is not None and existing.get("engine", "torch") == "torch":
        raise DataError(f"{out} holds a trained model. Choose another folder.")
    if existing is not None and not overwrite:
        raise DataError(f"{out} holds an exported model. Replace it with --overwrite.")


def _to_onnx(
    classifier: LongTailClassifier, run: Path, out: Path, source: Source | None, int8: bool
) -> Comparison:
    """Export, compare with the original, and save unless that raises an error."""
    import numpy as np

    from longtail.classifier.export import compare, generated_documents, to_onnx
    from longtail.classifier.saving import write_files
    from longtail.cli.evaluate import leave_out_trained

    exported = to_onnx(classifier, int8)
    if source is None:
        documents = generated_documents(classifier)
    else:
        documents = source.read_as(run).part()
        documents, _ = leave_out_trained(documents, source.data, [(run, classifier)], False)
        rows = np.random.default_rng(0).permutation(len(documents))[:MAX_CHECKED]
        documents = documents.select(np.sort(rows))
    comparison = compare(classifier, exported, documents)

    def write(folder: Path) -> None:
        with suppress(FileNotFoundError):  # a run that was saved from Python has none
            (folder / MEMORY).write_bytes(read_regular(whole_folder(run) / MEMORY))
        write_files(exported, folder)

    replace_model(out, write)
    return comparison
