"""The paper's figures: two tables for each of its two corpora."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.errors import UnknownNameError
from longtail.report.table import Pair as Pair

LAYOUTS = {"labels": "By frequency of the labels", "documents": "By labels per document"}
CORPORA = {"reuters": "Reuters-21578", "pubmed": "PubMed"}
SOURCE = "Huang et al., EMNLP 2021"


def paper_rows(corpus: str, layout: str) -> dict[str, dict[str, Pair | None]]:
    """Row -> column -> micro- and macro-F1 in percent; None where the paper gives no figure.

    Rows are `svm` and the losses in the paper's order. Columns of the layout `labels` are all,
    head, medium and tail; those of `documents` are groups by the number of labels.
    """
    columns = paper_sizes(corpus, layout)
    rows: dict[str, dict[str, Pair | None]] = {}
    for row, total in _tables()[corpus]["labels"].items():
        # The SVM is missing from the second table; its total is the one of the first.
        cells = _tables()[corpus][layout].get(row, {"all": total["all"]})
        rows[row] = {key: (*cells[key],) if key in cells else None for key in columns}
    return rows


def paper_sizes(corpus: str, layout: str) -> dict[str, int | None]:
    """Column -> the number of labels, or of test documents; None where the paper has none."""
    check_corpus(corpus)
    if layout not in LAYOUTS:
        raise UnknownNameError("layout", layout, LAYOUTS)
    return dict(_tables()[corpus]["sizes"][layout])


def paper_document_groups(each: NDArray[np.integer[Any]]) -> dict[str, NDArray[np.bool_]]:
    """Documents by their number of labels, cut where the paper cuts those of PubMed."""
    middle = (each > 9) & (each < 15)
    return {"up to 9 labels": each <= 9, "10 to 14 labels": middle, "15 or more labels": each > 14}


def check_corpus(corpus: str) -> None:
    """Raise unless the paper has figures of it."""
    if corpus not in CORPORA:
        raise UnknownNameError("corpus of the paper", corpus, CORPORA)


@cache
def _tables() -> dict[str, Any]:
    return dict(json.loads(resources.files("longtail.report").joinpath("paper.json").read_bytes()))
