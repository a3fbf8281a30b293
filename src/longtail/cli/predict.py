"""`longtail predict`: texts in, JSON Lines out, as they come and in constant memory."""

from __future__ import annotations

import io
import json
import queue
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.flags import takes
from longtail.cli.reading import OPTIONS
from longtail.cli.show import Run, TrustRemoteCode, print_notes
from longtail.data.documents import ReadReport

if TYPE_CHECKING:
    from longtail.data import Document

BATCH = 256
# Documents read ahead of the model, so that reading and computing overlap.
AHEAD = 4 * BATCH
# The options that do not concern labels, nor the parts of data.
READING = ("format", "text_field", "id_field", "delimiter", "quote", "encoding", "on_error")
FLAGS = [flag for flag in OPTIONS if flag.name in (*READING, "max_record_mb")]


@takes("reading", FLAGS, dict)
def predict(
    run: Run,
    reading: dict[str, Any],
    file: Annotated[
        str,
        typer.Argument(
            help="A file that `longtail train` reads, with or without labels; .txt: one text per "
            "line; -: the standard input, one text per line or what --format says."
        ),
    ] = "-",
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Also the k best labels with their scores.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, or as it was trained.")] = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Predict the labels of texts; writes one JSON object per line, in the order of the input."""
    from longtail.classifier import LongTailClassifier
    from longtail.data import iter_texts

    if reading["format"] is None and (file == "-" or file.endswith((".txt", ".txt.gz"))):
        reading["format"] = "text"
    report = ReadReport()
    documents = iter_texts(file, report=report, **reading)
    classifier = LongTailClassifier.from_pretrained(
        run, device=device, trust_remote_code=trust_remote_code
    )
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    for number, batch in enumerate(_batches(documents)):
        if number == 0 and reading["format"] == "text" and batch[0].text.lstrip()[:1] == "{":
            print_notes(["the first line looks like JSON: is --format jsonl missing?"])
        for document, labels in zip(batch, _answers(classifier, batch, top_k), strict=True):
            shown: dict[str, Any] = {} if document.id is None else {"id": document.id}
            shown |= {"text": document.text, **labels}
            sys.stdout.write(json.dumps(shown, ensure_ascii=False) + "\n")
        sys.stdout.flush()
    print_notes(report.lines())


def _answers(classifier: Any, batch: list[Document], top_k: int | None) -> list[dict[str, Any]]:
    texts = [document.text for document in batch]
    labels = classifier.predict_labels(texts)
    if top_k is None:
        return [{"labels": names} for names in labels]
    best = classifier.top_k(texts, top_k)
    return [
        {"labels": names, "top": [{"label": name, "score": score} for name, score in pairs]}
        for names, pairs in zip(labels, best, strict=True)
    ]


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """What has arrived, up to a batch: a slow producer is answered line by line."""
    arrived: queue.Queue[Document | BaseException | None] = queue.Queue(maxsize=AHEAD)

    def read() -> None:
        try:
            for document in documents:
                arrived.put(document)
            arrived.put(None)
        except BaseException as error:
            arrived.put(error)

    threading.Thread(target=read, daemon=True).start()
    batch: list[Document] = []
    while True:
        item = arrived.get()
        if isinstance(item, tuple):
            batch.append(item)
        if batch and (not isinstance(item, tuple) or len(batch) == BATCH or arrived.empty()):
            yield batch
            batch = []
        if isinstance(item, BaseException):
            raise item
        if item is None:
            return
