"""Reuters-21578 as the paper uses it: the ModApte split, 90 labels, 6769/1000/3019 documents."""

from __future__ import annotations

import re
from itertools import compress
from pathlib import Path

import numpy as np

from longtail.corpora.download import RemoteFile, cache_folder, fetch
from longtail.data.documents import MAX_RECORD_MB, OnError, ReadReport
from longtail.data.sources import read_data
from longtail.data.splits import paper_split
from longtail.data.textdata import TextData
from longtail.errors import DataError
from longtail.progress import OnProgress

UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
ARCHIVE = RemoteFile(
    "reuters21578.tar.gz",
    (
        "https://kdd.ics.uci.edu/databases/reuters21578/reuters21578.tar.gz",
        f"{UCI}/reuters21578-mld/reuters21578.tar.gz",
        "http://www.daviddlewis.com/resources/testcollections/reuters21578/reuters21578.tar.gz",
    ),
    "3bae43c9b14e387f76a61b6d82bf98a4fb5d3ef99ef7e7075ff2ccbcf59f9d30",
    size=8_150_596,
)
NLTK_ARCHIVE = "reuters.zip"
# A title without text, missing from NLTK's copy and so from most of the literature.
NOT_IN_NLTK = "training/1199"
N_VALIDATION = 1000
NUMBERED = re.compile(r"(training|test)/\d+")


def load(
    path: str | Path | None,
    report: ReadReport,
    *,
    encoding: str | None = None,
    on_error: OnError = "raise",
    max_record_mb: float = MAX_RECORD_MB,
    progress: OnProgress,
) -> dict[str, TextData]:
    """Load the parts from the SGML distribution (folder or tar.gz) or NLTK's folder or zip."""
    if path is None:
        path = cache_folder() / "reuters" / NLTK_ARCHIVE
        if not path.is_file():
            path = fetch(ARCHIVE, "reuters", progress)
    data = read_data(
        path,
        report=report,
        progress=progress,
        encoding=encoding,
        on_error=on_error,
        max_record_mb=max_record_mb,
    )
    ids = data.ids or ("",)
    if not all(map(NUMBERED.fullmatch, ids)):
        raise DataError(
            f"{path} is not Reuters-21578: expected the files reut2-000.sgm to reut2-021.sgm, or "
            "NLTK's cats.txt with the folders training and test."
        )
    rows = [row for row, identity in enumerate(ids) if identity != NOT_IN_NLTK]
    # The paper's split depends on the order: by number, not by name.
    rows.sort(key=lambda row: int(ids[row].rpartition("/")[2]))
    train, test = (
        data.select([row for row in rows if ids[row].startswith(part)])
        for part in ("train", "test")
    )
    in_both = (train.stats().label_counts > 0) & (test.stats().label_counts > 0)
    names = list(compress(train.label_names, in_both))
    if not names:
        raise DataError(f"{path}: no label occurs in both its training and its test part.")
    train, test = (part.onto(names)[0] for part in (train, test))
    train, test = (part.select(np.diff(part.Y.indptr) > 0) for part in (train, test))
    n_dropped = len(rows) - len(train) - len(test)
    report.passed_over["none of the labels that occur in both parts"] += n_dropped
    # As in the paper; a small sample of the files keeps the proportion.
    n_validation = N_VALIDATION if len(train) > 2 * N_VALIDATION else max(1, len(train) // 8)
    train, validation = paper_split(train, n_validation)
    return {"train": train, "validation": validation, "test": test}
