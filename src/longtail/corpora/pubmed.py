"""PubMed abstracts with MeSH headings by the paper's recipe, from BioASQ or from MEDLINE files.

BioASQ asks for a registration; NLM's MEDLINE baseline has the same fields and is free for all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from longtail.corpora.download import RemoteFile, cache_folder, fetch, fetch_text
from longtail.data.collect import collect
from longtail.data.documents import MAX_RECORD_MB, OnError, ReadOptions, ReadReport, parse_range
from longtail.data.sources import frequent_labels, resolve, tell
from longtail.data.textdata import TextData
from longtail.errors import DataError, InputError, shown
from longtail.progress import OnProgress, ignore

BASELINE = "https://ftp.ncbi.nlm.nih.gov/pubmed/baseline/"
SUFFIXES = (".json", ".json.gz", ".xml", ".xml.gz")
SEED = 123
LAST_FILE = 9999  # NLM's names have four digits


def load(
    path: str | Path | Sequence[str | Path] | None = None,
    *,
    years: str | int | None = "2020-2021",
    min_count: int = 5,
    n_validation: int = 5000,
    n_test: int = 5000,
    major_topics: bool = False,
    files: str | None = None,
    baseline: str = "pubmed26n",
    encoding: str | None = None,
    on_error: OnError = "raise",
    max_record_mb: float = MAX_RECORD_MB,
    progress: OnProgress = ignore,
    report: ReadReport | None = None,
) -> dict[str, TextData]:
    """The three parts, on the labels with at least `min_count` training documents.

    Args:
        path: BioASQ's JSON file, or MEDLINE files or a folder of them.
        years: of publication, as 2020 or 2020-2021; None or "all" for any.
        files: numbers of baseline files to download into the cache, such as 1100-1120.
        baseline: how their names begin; NLM publishes a new baseline every year.
        major_topics: MEDLINE only: headings that are a major topic of the article.
    """
    options = ReadOptions(
        major_topics=major_topics,
        years=None if years is None or str(years) == "all" else str(years),
        encoding=encoding,
        on_error=on_error,
        max_record_mb=max_record_mb,
    )
    if path is None:
        path = _download(files, baseline, progress) if files else _from_cache()
    total = report or ReadReport()
    data, _ = collect(resolve(path, None, total), options, total, progress)
    parts = frequent_labels(_paper_parts(data, n_validation, n_test), min_count, total)
    tell(total, report)
    return parts


def _paper_parts(data: TextData, n_validation: int, n_test: int) -> dict[str, TextData]:
    """Two shuffles with one seed, the second over the first one's order, as scikit-learn does."""
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
    return {part: data.select(np.sort(which)) for part, which in rows.items()}


def _from_cache() -> list[Path]:
    folder = cache_folder() / "pubmed"
    files = sorted(p for p in folder.glob("*") if p.name.lower().endswith(SUFFIXES))
    if not files:
        raise DataError(
            "the PubMed corpus has no files yet. Name them with path (--path); or place in "
            f"{folder} BioASQ's allMeSH_2021.json (after registration at "
            f"http://participants-area.bioasq.org) or MEDLINE files from {BASELINE}; or let "
            "longtail download some: longtail corpus get pubmed --set files=1100-1120 --out FOLDER"
        )
    return files


def _download(files: str, baseline: str, progress: OnProgress) -> list[Path]:
    first, last = parse_range(str(files), "files", "7 or 1100-1120")
    if not 1 <= first <= last <= LAST_FILE:
        raise InputError(f"files must be numbers from 1 to {LAST_FILE}, got {files!r}.")
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", baseline):
        raise InputError(f"baseline must be letters and digits, as in pubmed26n, got {baseline!r}.")
    paths = []
    for number in range(first, last + 1):
        name = f"{baseline}{number:04d}.xml.gz"
        path = cache_folder() / "pubmed" / name
        if not path.is_file():
            remote = RemoteFile(name, (BASELINE + name,), published_md5(BASELINE + name))
            path = fetch(remote, "pubmed", progress)
        paths.append(path)
    return paths


def published_md5(url: str) -> str:
    """NLM puts `MD5(name)= digits` beside every file."""
    path = cache_folder() / "pubmed" / url.rpartition("/")[2]
    hint = f"Check the network and that the file exists, or place it as {path}."
    text = fetch_text(f"{url}.md5", hint)
    match = re.search("[0-9a-f]{32}$", text.strip(), re.IGNORECASE)
    if match is None:
        raise DataError(f"{url}.md5 holds no MD5 checksum, but {shown(text)}. {hint}")
    return f"md5:{match[0].lower()}"
