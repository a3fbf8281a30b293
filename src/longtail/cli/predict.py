"""`longtail predict`: texts in, labels out, in the order of the input and in bounded memory.

To standard output as JSON Lines; with --out to a file, which can be resumed after an interruption.
"""

from __future__ import annotations

import io
import shlex
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.checks import check_choice
from longtail.cli.flags import THRESHOLDS, given_flags, option, takes
from longtail.cli.reading import RUN_OPTIONS
from longtail.cli.show import (
    Device,
    OverwriteOut,
    Part,
    Run,
    TrustRemoteCode,
    cluster_of,
    print_notes,
)
from longtail.cli.stream import Model, stream
from longtail.cli.texts import STANDARD_INPUT, Texts, text_hint
from longtail.errors import BadRecordError, InputError
from longtail.progress import OnProgress, ignore, show_progress
from longtail.runs.files import check_new, check_not_read
from longtail.runs.model import ENGINES, check_engine, read_config, whole_folder
from longtail.runs.parts import Parts

if TYPE_CHECKING:
    from longtail.classifier import LongTailClassifier

RAY = "ray"
Batches = Generator[list[dict[str, Any]], None, None]
# Options that may change on --resume: after a bad record, `--on-error skip` leaves it out.
CHANGEABLE = ("on_error",)
# Options of texts and ids, and the separator of labels in the output.
READING = ["format", "text_field", "id_field", "delimiter", "quote", "encoding", "on_error"]
READING += ["max_record_mb", "label_separator"]
READING_FLAGS = [flag for flag in RUN_OPTIONS if flag.name in READING]
WithText = Annotated[
    bool | None,
    typer.Option("--with-text/--without-text", help="Write the texts too; default: not to files."),
]
AnyEngine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help="torch or onnx; default: that of the run. See `longtail export`. ray: on a Ray "
        "cluster; needs the extra ray.",
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Resume the interrupted prediction to --out.")
]
LIMITS = [
    option("threshold", float, "One probability threshold for all labels.", THRESHOLDS),
    option("min_labels", int, "Minimum number of labels per text.", THRESHOLDS),
    option("max_labels", int, "Maximum number of labels per text.", THRESHOLDS),
]


@takes("overrides", LIMITS, given_flags)
@takes("reading", READING_FLAGS, given_flags)
def predict(
    run: Run,
    reading: dict[str, Any],
    overrides: dict[str, Any],
    data: Annotated[
        list[str] | None,
        typer.Argument(
            help="What `longtail train` reads, with or without labels, in the columns of the "
            "training data; .txt: one text per line; several files: as if they were one; -, the "
            "default: standard input, one text per line or in --format.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write: .csv, .tsv, .jsonl (each also .gz) or .parquet."),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option("--text", hidden=True, help="Not for predict: see `longtail explain`."),
    ] = None,
    split: Part = None,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Also the k best labels, predicted or not.")
    ] = None,
    with_text: WithText = None,
    resume: Resume = False,
    overwrite: OverwriteOut = False,
    device: Device = None,
    engine: AnyEngine = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Predict the labels of texts, in the order of DATA, to standard output or to a file.

    One document per line or row: its id, or its number in DATA, its labels, and their
    probabilities and thresholds.
    """
    if text is not None:
        raise InputError(f"predict has no --text. {text_hint(run, text)}")
    names = data or [STANDARD_INPUT]
    _check_flags(names, out, split, overrides, resume=resume, overwrite=overwrite)
    is_spread = engine == RAY
    check_choice("--engine", engine or RAY, (*ENGINES, RAY))
    if is_spread:
        _check_spread(names, out, split)
        engine = None
    config = read_config(whole_folder(run))
    check_engine(run, config or {}, engine)

    def load() -> LongTailClassifier:
        from longtail.classifier import LongTailClassifier

        return LongTailClassifier.from_pretrained(
            run, device=device, engine=engine, trust_remote_code=trust_remote_code
        )

    if config is None:
        load()  # raises, and says what is wrong
    request = Request(overrides, top_k, out is None if with_text is None else with_text)
    texts = Texts(names, reading.pop("format", None), reading, split, run)
    if out is None:
        request.print(texts, load())
    else:
        model = Model(run.absolute(), device, trust_remote_code)
        settings = {"checksum of the model": config and config["checksum"]} | request.settings()
        with cluster_of(RAY if is_spread else None) as cluster:
            parts = Parts.open(
                out,
                lambda: settings | texts.settings(),
                resume=resume,
                overwrite=overwrite,
                ignored=CHANGEABLE,
            )
            if parts is None:
                typer.echo(f"{out} is finished already.")
                return
            on_cluster = partial(stream, cluster, model) if cluster is not None else None
            request.write(texts, load, parts, on_cluster)
        from longtail.report.table import plural

        typer.echo(f"{out}: {plural(parts.kept, 'document')}")
    print_notes(texts.report.lines())


def _check_flags(
    names: list[str],
    out: Path | None,
    split: str | None,
    overrides: dict[str, Any],
    *,
    resume: bool,
    overwrite: bool,
) -> None:
    """Raise for flags that conflict, before anything is read."""
    import numpy as np

    from longtail.data.records import record_format
    from longtail.thresholds import Thresholds

    Thresholds(np.zeros(0)).override(**overrides)  # raises for wrong values
    if resume and overwrite:
        raise InputError("--overwrite starts over, --resume continues: not both.")
    if out is None and (resume or overwrite):
        raise InputError("--resume and --overwrite need a file. Name it with --out.")
    if STANDARD_INPUT in names and resume:
        raise InputError("standard input cannot be read again: --resume needs a file.")
    if STANDARD_INPUT in names and split is not None:
        raise InputError("standard input has no parts. Leave out --split.")
    if out is not None:
        record_format(out)
        for name in names:
            check_not_read(out, name)
        if not resume:
            check_new(out, overwrite)


def _check_spread(names: list[str], out: Path | None, split: str | None) -> None:
    """Raise for what cannot be predicted on a cluster."""
    from longtail.training.engines import check_engine

    check_engine(RAY)
    if out is None:
        raise InputError("--engine ray writes a file. Name it with --out.")
    if STANDARD_INPUT in names or split is not None:
        raise InputError(
            "--engine ray reads files on all machines, neither standard input nor --split. Write "
            "that part to a file: longtail corpus split DATA --out FOLDER."
        )


@dataclass(frozen=True)
class Request:
    """What to predict for each document, and what to write."""

    overrides: dict[str, Any]
    top_k: int | None
    with_text: bool

    def predict(self, classifier: LongTailClassifier, batch: Sequence[str]) -> list[dict[str, Any]]:
        """The records of a batch of texts, without ids and texts."""
        records: list[dict[str, Any]] = []
        for block in classifier.predict_blocks(batch, self.top_k, **self.overrides):
            records += block.records(classifier.classes_, self.top_k)
        return records

    def settings(self) -> dict[str, Any]:
        """The settings that the records depend on."""
        return {**self.overrides, "top_k": self.top_k, "with_text": self.with_text}

    def records(
        self,
        texts: Texts,
        classifier: LongTailClassifier,
        progress: OnProgress,
        n_before: int = 0,
    ) -> Batches:
        """The records of the documents after the first `n_before`, batch by batch."""
        start, n_done = time.monotonic(), 0
        for batch in texts.batches(n_before):
            predicted = self.predict(classifier, [document.text for document in batch])
            n_done += len(batch)
            yield [
                {"id": document.id} | ({"text": document.text} if self.with_text else {}) | record
                for document, record in zip(batch, predicted, strict=True)
            ]
            rate = n_done / (time.monotonic() - start)
            progress(texts.progress(n_before + n_done, rate))

    def print(self, texts: Texts, classifier: LongTailClassifier) -> None:
        """Write JSON Lines to standard output."""
        from longtail.data.records import json_line

        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        # On a terminal a progress bar would mix with the output.
        with nullcontext(ignore) if sys.stdout.isatty() else show_progress() as progress:
            for records in self.records(texts, classifier, progress):
                sys.stdout.writelines(map(json_line, records))
                sys.stdout.flush()

    def write(
        self,
        texts: Texts,
        load: Callable[[], LongTailClassifier],
        parts: Parts,
        stream: Callable[..., Batches] | None = None,
    ) -> None:
        """Write a file, from parts that are kept if the process ends early.

        `stream`: predicts on a cluster, in place of this process.
        """
        from longtail.classifier.predictions import record_columns
        from longtail.data.records import check_separator, write_records
        from longtail.training.interrupt import stopping

        arguments = [word for word in sys.argv[1:] if word not in ("--overwrite", "--resume")]
        command = shlex.join(["longtail", *arguments, "--resume"])
        try:
            classifier = load()
            check_separator(parts.out, classifier.classes_, texts.separator)
            columns = {"id": str} | ({"text": str} if self.with_text else {})
            columns |= record_columns(classifier.thresholds_, self.top_k)
            with stopping() as stop, show_progress() as progress:
                if stream is None:
                    batches = self.records(texts, classifier, progress, parts.kept)
                else:
                    batches = stream(self, texts, classifier, progress, parts.kept)
                # Closed at once: Ray Data would go on, and connect again.
                with closing(batches):
                    for records in batches:
                        parts.add(records)
                        stop.check("What was predicted is kept.")
                parts.finish(
                    lambda path, records: write_records(
                        path, parts.out, columns, records, texts.separator
                    )
                )
        finally:
            # Standard input cannot be read again, so its parts are of no use.
            is_worth = parts.kept > 0 or texts.error is not None
            parts.close(keep=is_worth and not texts.is_stream)
            if parts.kept and not parts.is_finished and not texts.is_stream:
                advice = f"Resume with: {command}"
                if texts.error is not None:
                    advice = "To read them with other options, start over with --overwrite."
                if isinstance(texts.error, BadRecordError):
                    advice = f"Leave out bad records with: {command} --on-error skip\n{advice}"
                print_notes([f"{parts.kept:,} documents are kept. {advice}"])
