"""Records with lists as CSV, TSV, JSON Lines and Parquet: read back as they were written."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.data.fields import split_labels
from longtail.data.records import check_separator, write_records
from longtail.errors import DataError

COLUMNS: dict[str, Any] = {"id": str, "labels": list[str], "values": list[float]}
RECORDS = [
    {"id": "1", "labels": ["a;b", 'say "c"', "d"], "values": [0.5, 1e-7, 1.0]},
    {"id": "=2+3", "labels": [], "values": []},
    {"id": "\u0440, \u2028 x", "labels": ["one\ttwo"], "values": [0.25]},
]


def parse(path: Path, delimiter: str) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file, delimiter=delimiter, strict=True))
    for row in rows:
        row["labels"] = split_labels(row["labels"], ";")
        row["values"] = [float(value) for value in split_labels(row["values"], ";")]
    return rows


@pytest.mark.parametrize("name", ["r.csv", "r.tsv", "r.jsonl", "r.jsonl.gz", "r.parquet"])
def test_what_is_written_is_read(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The suffix of the final name decides, not that of the temporary path.
    path = tmp_path / "temporary"
    monkeypatch.setattr("longtail.data.writing.BATCH", 2)
    write_records(path, Path(name), COLUMNS, iter(RECORDS), ";")
    if name == "r.parquet":
        assert pq.read_table(path).to_pylist() == RECORDS
        assert pq.ParquetFile(path).metadata.num_row_groups == 2
    elif "jsonl" in name:
        content = path.read_bytes()
        text = (gzip.decompress(content) if name.endswith(".gz") else content).decode("utf-8")
        assert [json.loads(line) for line in text.split("\n") if line] == RECORDS
    else:
        assert parse(path, "," if name == "r.csv" else "\t") == RECORDS


@given(
    st.lists(st.text("ab;,|\t \"'=-.1", min_size=1).map(str.strip).filter(bool)),
    st.sampled_from(";,|\t-. "),
)
def test_labels_survive_the_separator(labels: list[str], separator: str) -> None:
    from longtail.data.records import _join

    assert split_labels(_join(labels, separator), separator) == labels


def test_labels_that_hold_a_long_separator_are_refused_in_tables_only(tmp_path: Path) -> None:
    check_separator(tmp_path / "a.csv", ["a", "b"], "::")
    check_separator(tmp_path / "a.parquet", ["a::b"], "::")
    with pytest.raises(DataError, match=r"'a::b' contains the separator '::'. Choose another"):
        check_separator(tmp_path / "a.csv", ["c", "a::b"], "::")
