"""JSON Lines: one {"text": ..., "labels": [...], "id": ..., "date": ...} per line."""

from __future__ import annotations

import json
from pathlib import Path

from longtail.data.documents import LabelNames, Problem, ReadOptions, Records
from longtail.data.fields import named_label_columns, to_document
from longtail.data.files import (
    Tick,
    Written,
    counted,
    open_text,
    undecodable,
    writing,
    wrong_encoding,
)
from longtail.data.json_text import Ambiguous, has_many_items, parse, reason
from longtail.data.limits import TOO_LONG, bounded_lines, shown, too_large
from longtail.data.textdata import TextData


def read_jsonl(path: Path, options: ReadOptions, tick: Tick) -> Records:
    """One record per line that is not blank."""
    named = named_label_columns(options)
    if named is not None:
        yield LabelNames(tuple(named))
    with open_text(path, options.encoding, tick) as file:
        for number, line in enumerate(bounded_lines(file, options.max_record), start=1):
            if line is TOO_LONG:
                yield Problem(number, too_large("the line", options.max_record))
                continue
            if has_many_items(line, options.max_record):
                yield Problem(number, too_large("what the line unpacks to", options.max_record))
                continue
            if undecodable(line):
                yield Problem(number, wrong_encoding(options.encoding))
                continue
            if not line.strip():
                continue
            try:
                record = parse(line)
            except (ValueError, RecursionError) as error:
                # Not JSONDecodeError alone: a whole number of 5,000 digits is a ValueError.
                yield Problem(number, f"not valid JSON ({reason(error)}).")
                continue
            if not isinstance(record, dict):
                yield Problem(number, f"expected a JSON object, got {shown(line)}.")
            elif isinstance(record, Ambiguous) and (twice := record.twice_of(options)) is not None:
                yield Problem(number, f"the field {shown(twice)} stands there twice.")
            else:
                yield to_document(record, options, number)


def write_jsonl(data: TextData, path: str | Path, written: Written | None = None) -> None:
    """Write one document per line, gzipped if the name ends in .gz."""
    with writing(path) as file:
        for document in counted(data, len(data), written):
            record: dict[str, object] = {} if document.id is None else {"id": document.id}
            record |= {"text": document.text, "labels": list(document.labels)}
            if document.date is not None:
                record["date"] = document.date
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
