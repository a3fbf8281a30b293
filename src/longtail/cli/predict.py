"""`longtail predict`: texts in, their labels out, in the order of the input and in bounded memory.

To the standard output as JSON Lines; with --out to a file, which can be resumed until it is whole.
"""

from __future__ import annotations

import io
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.flags import THRESHOLDS, option, takes
from longtail.cli.reading import OF_RUN
from longtail.cli.show import Engine, Run, TrustRemoteCode, print_notes
from longtail.cli.texts import Texts
from longtail.errors import InputError
from longtail.progress import OnProgress, ignore, show_progress
from longtail.runs.files import check_new, check_not_read
from longtail.runs.model import check_engine, read_config, whole_folder
from longtail.runs.parts import Parts

if TYPE_CHECKING:
    from longtail.classifier import LongTailClassifier

# Options that a resumed prediction may change: a bad record stopped it, and is now left out.
CHANGEABLE = ("on_error",)
# The options that do not concern labels, nor the parts of data; and what is between labels in CSV.
READING = ("format", "text_field", "id_field", "delimiter", "quote", "encoding", "on_error")
NAMES = (*READING, "max_record_mb", "label_separator")
FLAGS = [flag for flag in OF_RUN if flag.name in NAMES]


WithText = Annotated[
    bool | None,
    typer.Option(
        "--with-text/--without-text", help="Write the texts too; default: not into files."
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Resume the interrupted prediction into --out.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace --out; the old file stays until then.")
]
LIMITS = [
    option("threshold", float, "One probability for all labels, not the fitted ones.", THRESHOLDS),
    option("min_labels", int, "Minimum number of labels per text.", THRESHOLDS),
    option("max_labels", int, "Maximum number of labels per text.", THRESHOLDS),
]


@takes("overrides", LIMITS, dict)
@takes("reading", FLAGS, dict)
def predict(
    run: Run,
    reading: dict[str, Any],
    overrides: dict[str, Any],
    data: Annotated[
        str,
        typer.Argument(
            help="What `longtail train` reads, with or without labels, in the columns that the run "
            "was trained on; .txt: one text per line; -: the standard input, one text per line or "
            "what --format says."
        ),
    ] = "-",
    out: Annotated[
        Path | None,
        typer.Option(help="File to write: .csv, .tsv, .jsonl (each also .gz) or .parquet."),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option("--split", "--part", help="Only this part of DATA: train, validation, test."),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Also the k best labels, predicted or not.")
    ] = None,
    with_text: WithText = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, or as it was trained.")] = None,
    engine: Engine = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Predict the labels of texts, in the order of DATA: to the standard output, or into a file.

    One document per line or row: its id, or its number in DATA, its labels, their probabilities
    and the thresholds of these.
    """
    overrides = {name: value for name, value in overrides.items() if value is not None}
    _check_flags(data, out, split, overrides, resume=resume, overwrite=overwrite)
    config = read_config(whole_folder(run))
    check_engine(run, config or {}, engine)

    def load() -> LongTailClassifier:
        from longtail.classifier import LongTailClassifier

        return LongTailClassifier.from_pretrained(
            run, device=device, engine=engine, trust_remote_code=trust_remote_code
        )

    if config is None:
        load()  # says what is wrong
    given = {name: value for name, value in reading.items() if value is not None}
    layout = given.pop("format", None)
    request = Request(overrides, top_k, out is None if with_text is None else with_text)
    texts = Texts(data, layout, given, split, run)
    if out is None:
        request.print(texts, load())
    else:
        settings = {"checksum of the model": config and config["checksum"]} | request.settings()
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
        request.write(texts, load, parts)
        typer.echo(f"{out}: {parts.kept} documents")
    print_notes(texts.report.lines())


def _check_flags(
    data: str,
    out: Path | None,
    split: str | None,
    overrides: dict[str, Any],
    *,
    resume: bool,
    overwrite: bool,
) -> None:
    """Raise for flags that make no sense, before anything is read."""
    import numpy as np

    from longtail.data.records import record_format
    from longtail.thresholds import Thresholds

    Thresholds(np.zeros(0)).override(**overrides)
    if resume and overwrite:
        raise InputError("--overwrite starts over, --resume continues: not both.")
    if out is None and (resume or overwrite):
        raise InputError("--resume and --overwrite are about a file. Name it with --out.")
    if data == "-" and resume:
        raise InputError("the standard input cannot be read again: --resume needs a file.")
    if data == "-" and split is not None:
        raise InputError("the standard input has no parts. Leave out --split.")
    if out is not None:
        record_format(out)
        check_not_read(out, data)
        if not resume:
            check_new(out, overwrite)


@dataclass(frozen=True)
class Request:
    """What is wanted of each document."""

    overrides: dict[str, Any]
    top_k: int | None
    with_text: bool

    def settings(self) -> dict[str, Any]:
        """What the records depend on."""
        return {**self.overrides, "top_k": self.top_k, "with_text": self.with_text}

    def records(
        self,
        texts: Texts,
        classifier: LongTailClassifier,
        progress: OnProgress,
        n_before: int = 0,
    ) -> Iterator[list[dict[str, Any]]]:
        """The records of the documents after the first `n_before`, batch by batch."""
        start, n_done = time.monotonic(), 0
        for batch in texts.batches(n_before):
            predicted: list[dict[str, Any]] = []
            documents = [document.text for document in batch]
            for block in classifier.predict_blocks(documents, **self.overrides):
                predicted += block.records(classifier.classes_, self.top_k)
            n_done += len(batch)
            yield [
                {"id": one.id} | ({"text": one.text} if self.with_text else {}) | record
                for one, record in zip(batch, predicted, strict=True)
            ]
            rate = n_done / (time.monotonic() - start)
            progress(texts.progress(n_before + n_done, rate))

    def print(self, texts: Texts, classifier: LongTailClassifier) -> None:
        """JSON Lines on the standard output."""
        from longtail.data.records import json_line

        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        # A bar among the lines would make both unreadable.
        with nullcontext(ignore) if sys.stdout.isatty() else show_progress() as progress:
            for records in self.records(texts, classifier, progress):
                sys.stdout.writelines(map(json_line, records))
                sys.stdout.flush()

    def write(self, texts: Texts, load: Callable[[], LongTailClassifier], parts: Parts) -> None:
        """A file, by way of parts that survive whatever ends the process."""
        from longtail.classifier.predictions import record_columns
        from longtail.data.records import check_separator, write_records
        from longtail.training.interrupt import stopping

        words = [word for word in sys.argv[1:] if word not in ("--overwrite", "--resume")]
        command = shlex.join(["longtail", *words, "--resume"])
        try:
            classifier = load()
            check_separator(parts.out, classifier.classes_, texts.separator)
            columns = {"id": str} | ({"text": str} if self.with_text else {})
            columns |= record_columns(classifier.thresholds_, self.top_k)
            with stopping() as stop, show_progress() as progress:
                for records in self.records(texts, classifier, progress, parts.kept):
                    parts.add(records)
                    stop.check("What was predicted is kept.")
                parts.finish(
                    lambda path, records: write_records(
                        path, parts.out, columns, records, texts.separator
                    )
                )
        finally:
            # What came by a pipe does not come again.
            parts.close(keep=not texts.is_stream)
            if parts.kept and not parts.is_finished and not texts.is_stream:
                print_notes([f"{parts.kept} documents are kept. Resume with: {command}"])
