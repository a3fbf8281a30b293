"""Records as CSV, TSV, JSON Lines or Parquet, in bounded memory: documents and predictions."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, TextIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from longtail.errors import DataError, InputError
from longtail.runs.files import whole_file

Record = Mapping[str, Any]
BATCH = 4096
TYPES = {
    str: pa.large_string(),
    list[str]: pa.list_(pa.string()),
    list[float]: pa.list_(pa.float64()),
}


def write_rows(
    path: Path,
    name: str | Path,
    kind: str,
    columns: Mapping[str, Any],
    records: Iterable[Record],
    cell: Callable[[list[Any]], str],
    metadata: Mapping[bytes, bytes] | None = None,
) -> None:
    """Write records to `path`.

    Args:
        name: the final name of the file; gzipped if it ends in .gz.
        kind: `jsonl`, `csv`, `tsv` or `parquet`.
        columns: the fields in the order of columns, with their types: keys of TYPES, or Arrow's.
        cell: converts a list to a cell of CSV or TSV.
        metadata: for Parquet's schema.
    """
    if kind == "parquet":
        types = [(column, TYPES.get(type_, type_)) for column, type_ in columns.items()]
        schema, rest = pa.schema(types, metadata), iter(records)
        with pq.ParquetWriter(path, schema) as writer:
            while batch := list(islice(rest, BATCH)):
                writer.write_table(pa.Table.from_pylist(batch, schema))
        return
    with _text_file(path, name) as file:
        if kind == "jsonl":
            file.writelines(map(json_line, records))
            return
        table = csv.DictWriter(file, columns, delimiter="\t" if kind == "tsv" else ",")
        table.writeheader()
        for record in records:
            table.writerow({k: cell(v) if isinstance(v, list) else v for k, v in record.items()})


def json_line(record: Record) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path to write to, which replaces `path` if nothing fails."""
    try:
        with whole_file(path) as temporary:
            yield temporary
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror or error}).") from error
    except UnicodeEncodeError as error:
        raise InputError(
            f"{path} was not written: {error.object[error.start]!r} in a text, label or id is a "
            "lone surrogate, which is not a character. Remove it."
        ) from error


@contextmanager
def _text_file(path: Path, name: str | Path) -> Iterator[TextIO]:
    """Open a UTF-8 text file for writing, gzipped if its final name ends in .gz."""
    with ExitStack() as stack:
        file: IO[bytes] = stack.enter_context(path.open("wb"))
        if str(name).lower().endswith(".gz"):
            # No time stamp: the same documents give the same bytes.
            packed = stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))
            file = cast(IO[bytes], packed)
        yield stack.enter_context(io.TextIOWrapper(file, encoding="utf-8", newline=""))
