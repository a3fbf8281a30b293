"""Facts about the real corpora, if a copy lies beside the project (LONGTAIL_SHARED)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from longtail.data import load_data
from longtail.labels import label_groups

from .data.cases import sizes

ROOT = Path(__file__).parents[1]


def test_reuters_has_the_papers_counts_groups_and_mu(shared: Path) -> None:
    parts = load_data(shared / "reuters")
    assert sizes(parts) == {"train": 6769, "validation": 1000, "test": 3019}
    stats = parts["train"].stats()
    quantiles = np.quantile(stats.label_counts, [0.25, 0.33, 0.5, 0.66, 0.75])
    assert quantiles == pytest.approx([5, 9, 17.5, 33.74, 59.75])
    groups = label_groups(stats.label_counts)
    assert [int(mask.sum()) for mask in groups.values()] == [30, 31, 29]
    assert stats.mu == pytest.approx((0.8118 + 1.0) / 2, abs=1e-4)


def test_the_committed_oracle_is_the_shared_one(shared: Path) -> None:
    ours = json.loads((ROOT / "tests" / "losses" / "fixtures" / "oracle.json").read_text())
    theirs = json.loads((shared.parent / "oracle" / "losses.json").read_text())
    for key in ("label_counts", "n_samples", "logits", "targets"):
        assert ours[key] == theirs[key]
    for corpus, rows in theirs["cases"].items():
        for name, row in rows.items():
            assert ours["cases"][corpus][name.lower()]["loss"] == row["loss"]
            assert ours["cases"][corpus][name.lower()]["grad"] == row["grad"]
