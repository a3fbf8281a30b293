"""The paper's results: two tables for each of its two corpora."""

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
    """Row -> column -> micro- and macro-F1 in percent; None where the paper gives none.

    Rows are `svm` and the losses in the paper's order. Columns of the layout `labels` are all,
    head, medium and tail; those of `documents` are groups by labels per document.
    """
    columns = paper_sizes(corpus, layout)
    rows: dict[str, dict[str, Pair | None]] = {}
    for row, total in _tables()[corpus]["labels"].items():
        # The second table has no SVM; take its total from the first.
        cells = _tables()[corpus][layout].get(row, {"all": total["all"]})
        rows[row] = {key: (*cells[key],) if key in cells else None for key in columns}
    return rows


def paper_sizes(corpus: str, layout: str) -> dict[str, int | None]:
    """Column -> number of labels or test documents; None where the paper gives none."""
    check_corpus(corpus)
    if layout not in LAYOUTS:
        raise UnknownNameError("layout", layout, LAYOUTS)
    return dict(_tables()[corpus]["sizes"][layout])


def paper_document_groups(sizes: NDArray[np.integer[Any]]) -> dict[str, NDArray[np.bool_]]:
    """The paper's groups of PubMed documents, given the number of labels of each document."""
    return {
        "up to 9 labels": sizes <= 9,
        "10 to 14 labels": (sizes > 9) & (sizes < 15),
        "15 or more labels": sizes > 14,
    }


def check_corpus(corpus: str) -> None:
    """Raise unless the paper has results for the corpus."""
    if corpus not in CORPORA:
        raise UnknownNameError("corpus of the paper", corpus, CORPORA)


@cache
def _tables() -> dict[str, Any]:
    return dict(json.loads(resources.files("longtail.report").joinpath("paper.json").read_bytes()))
