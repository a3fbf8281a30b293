"""`longtail predict`: texts in, JSON Lines out, as they come and in constant memory."""

from __future__ import annotations

import io
import json
import queue
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from longtail.cli.show import TrustRemoteCode, print_notes
from longtail.data.documents import MEGABYTE
from longtail.data.limits import too_large
from longtail.errors import DataError, InputError

BATCH = 256
# Lines read ahead of the model, so that reading and computing overlap.
AHEAD = 4 * BATCH


class Asked(NamedTuple):
    """One text to classify, and its id where it came with one."""

    text: str
    id: Any = None


def predict(
    run: Annotated[Path, typer.Argument(help="A folder written by `longtail train`.")],
    file: Annotated[
        str, typer.Argument(help="A file with one text per line, JSON Lines, or - .")
    ] = "-",
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Lines are JSON objects; default: as FILE is called.")
    ] = False,
    text_field: Annotated[
        str, typer.Option(help="With JSON Lines: the field of the text.")
    ] = "text",
    id_field: Annotated[str, typer.Option(help="With JSON Lines: the field of the id.")] = "id",
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Also the k best labels with their scores.")
    ] = None,
    max_record_mb: Annotated[
        float, typer.Option(min=0.001, help="Largest line in MB; a longer one is an error.")
    ] = 64,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, or as it was trained.")] = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Predict the labels of texts; writes one JSON object per line, in the order of the input."""
    from longtail.classifier import LongTailClassifier

    as_json = jsonl or file.endswith((".jsonl", ".jsonl.gz", ".ndjson"))
    if file.endswith((".csv", ".tsv", ".parquet", ".json", ".xml")):
        raise InputError(
            f"{file} is a table or a document, not texts: predict reads one text per line, or JSON "
            f"Lines. Convert it with: longtail corpus convert {file} --out texts.jsonl"
        )
    if not as_json and (text_field, id_field) != ("text", "id"):
        raise InputError("--text-field and --id-field go with JSON Lines: add --jsonl.")
    lines = _batches(file, int(max_record_mb * MEGABYTE))
    classifier = LongTailClassifier.from_pretrained(
        run, device=device, trust_remote_code=trust_remote_code
    )
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What no console can show, half of a surrogate pair, is written as its code.
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    number = 0
    for batch in lines:
        if number == 0 and not as_json and batch[0].lstrip().startswith("{"):
            print_notes(["the first line looks like JSON and is read as text: is --jsonl missing?"])
        asked = []
        for line in batch:
            number += 1
            asked.append(
                _parse(line, file, number, text_field, id_field) if as_json else Asked(line)
            )
        for one, answer in zip(asked, _answers(classifier, asked, top_k), strict=True):
            shown: dict[str, Any] = {} if one.id is None else {"id": one.id}
            shown |= {"text": one.text, **answer}
            sys.stdout.write(json.dumps(shown, ensure_ascii=False) + "\n")
        sys.stdout.flush()


def _answers(classifier: Any, asked: list[Asked], top_k: int | None) -> list[dict[str, Any]]:
    texts = [one.text for one in asked]
    labels = classifier.predict_labels(texts)
    if top_k is None:
        return [{"labels": names} for names in labels]
    best = classifier.top_k(texts, top_k)
    return [
        {"labels": names, "top": [{"label": name, "score": score} for name, score in pairs]}
        for names, pairs in zip(labels, best, strict=True)
    ]


def _parse(line: str, file: str, number: int, text_field: str, id_field: str) -> Asked:
    where = f"{file}, line {number}"
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: expected a JSON object, got {line[:60]!r} ({error}).") from error
    if not isinstance(record, dict) or not isinstance(record.get(text_field), str):
        raise DataError(
            f"{where}: expected an object with a text in the field {text_field!r}. Name the field "
            "with --text-field."
        )
    return Asked(record[text_field], record.get(id_field))


def _batches(file: str, limit: int) -> Iterator[list[str]]:
    """What has arrived, up to a batch: a slow producer is answered line by line."""
    arrived: queue.Queue[str | BaseException | None] = queue.Queue(maxsize=AHEAD)
    lines = _lines(file, limit)

    def read() -> None:
        try:
            for line in lines:
                arrived.put(line)
            arrived.put(None)
        except BaseException as error:
            arrived.put(error)

    threading.Thread(target=read, daemon=True).start()
    ended = False
    while not ended:
        batch: list[str] = []
        found = arrived.get()
        while True:
            if isinstance(found, BaseException):
                if batch:
                    yield batch
                raise found
            if found is None:
                ended = True
                break
            batch.append(found)
            if len(batch) == BATCH or arrived.empty():
                break
            found = arrived.get()
        if batch:
            yield batch


def _lines(file: str, limit: int) -> Iterator[str]:
    """The lines of a file, packed or not, or of the standard input, as UTF-8."""
    import gzip

    if file != "-" and not Path(file).is_file():
        raise InputError(f"{file} is no file. Pass a file with one text per line, or - .")

    def lines() -> Iterator[str]:
        number = 0
        raw: Any = sys.stdin.buffer if file == "-" else None
        try:
            with raw or (gzip.open if file.endswith(".gz") else open)(file, "rb") as opened:
                while line := opened.readline(limit + 1):
                    number += 1
                    if len(line) > limit and not line.endswith(b"\n"):
                        raise DataError(f"{file}, line {number}: {too_large('the line', limit)}")
                    # A byte order mark is no part of the first text.
                    codec = "utf-8-sig" if number == 1 else "utf-8"
                    yield line.decode(codec).rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(f"{file}, line {number} is not valid UTF-8: {error}.") from error
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{file} cannot be read after line {number}: {error}.") from error

    return lines()
