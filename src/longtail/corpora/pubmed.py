"""PubMed abstracts with MeSH headings by the paper's recipe, from BioASQ or from MEDLINE files.

BioASQ requires registration; NLM's MEDLINE baseline has the same fields and is open to all.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from longtail.corpora.download import cache_folder
from longtail.data.documents import MAX_RECORD_MB, OnError, ReadReport
from longtail.data.sources import frequent_labels, read_data
from longtail.data.textdata import TextData
from longtail.errors import DataError, InputError
from longtail.progress import OnProgress

BASELINE = "https://ftp.ncbi.nlm.nih.gov/pubmed/baseline/"
SUFFIXES = (".json", ".json.gz", ".xml", ".xml.gz")
SEED = 123


def load(
    path: str | Path | Sequence[str | Path] | None,
    report: ReadReport,
    *,
    years: str | int | None = "2020-2021",
    min_count: int = 5,
    n_validation: int = 5000,
    n_test: int = 5000,
    major_topics: bool = False,
    encoding: str | None = None,
    on_error: OnError = "raise",
    max_record_mb: float = MAX_RECORD_MB,
    progress: OnProgress,
) -> dict[str, TextData]:
    """Load the parts with the labels that have at least `min_count` training documents.

    Args:
        path: BioASQ's JSON file, MEDLINE files, or a folder of them.
        years: of publication, such as 2020 or 2020-2021; None or "all" for any.
        major_topics: MEDLINE only: keep only the major topics of an article.
    """
    data = read_data(
        _from_cache() if path is None else path,
        report=report,
        progress=progress,
        major_topics=major_topics,
        years=None if years is None or str(years) == "all" else str(years),
        encoding=encoding,
        on_error=on_error,
        max_record_mb=max_record_mb,
    )
    return frequent_labels(_paper_parts(data, n_validation, n_test), min_count, report)


def _paper_parts(data: TextData, n_validation: int, n_test: int) -> dict[str, TextData]:
    """Split twice like scikit-learn's train_test_split, both times with the same seed."""
    n_held_out = n_validation + n_test
    if min(n_validation, n_test) < 1 or n_held_out >= len(data):
        raise InputError(
            f"cannot hold out {n_validation} + {n_test} of {len(data)} documents. Read more files, "
            "or hold out fewer with n_validation and n_test."
        )
    order = np.random.RandomState(SEED).permutation(len(data))
    held_out = order[:n_held_out]
    within = np.random.RandomState(SEED).permutation(n_held_out)
    rows = {
        "train": order[n_held_out:],
        "validation": held_out[within[n_test:]],
        "test": held_out[within[:n_test]],
    }
    return {part: data.select(np.sort(of_part)) for part, of_part in rows.items()}


def _from_cache() -> list[Path]:
    folder = cache_folder() / "pubmed"
    files = sorted(p for p in folder.glob("*") if p.name.lower().endswith(SUFFIXES))
    if not files:
        raise DataError(
            "the PubMed corpus has no files yet. Name them with path (--path), or put into "
            f"{folder} BioASQ's allMeSH_2021.json (after registration at "
            f"http://participants-area.bioasq.org) or MEDLINE files from {BASELINE}"
        )
    return files
