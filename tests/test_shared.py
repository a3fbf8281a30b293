"""Facts about the real corpora, where a copy lies beside the project (LONGTAIL_SHARED)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from longtail.data import load_data
from longtail.labels import label_groups

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("LONGTAIL_SHARED", ROOT.parent / "shared"))


def needs(path: str) -> pytest.MarkDecorator:
    reason = f"{path} is not there: set LONGTAIL_SHARED to a folder that has it"
    return pytest.mark.skipif(not (SHARED / path).exists(), reason=reason)


@needs("corpora/reuters")
def test_reuters_has_the_papers_counts_groups_and_mu() -> None:
    parts = load_data(SHARED / "corpora" / "reuters")
    assert {part: len(data) for part, data in parts.items()} == {
        "train": 6769,
        "validation": 1000,
        "test": 3019,
    }
    stats = parts["train"].stats()
    quantiles = np.quantile(stats.label_counts, [0.25, 0.33, 0.5, 0.66, 0.75])
    assert quantiles == pytest.approx([5, 9, 17.5, 33.74, 59.75])
    groups = label_groups(stats.label_counts)
    assert [int(mask.sum()) for mask in groups.values()] == [30, 31, 29]
    assert stats.mu == pytest.approx((0.8118 + 1.0) / 2, abs=1e-4)


@needs("oracle/losses.json")
def test_the_committed_oracle_is_the_shared_one() -> None:
    ours = json.loads((ROOT / "tests" / "losses" / "fixtures" / "oracle.json").read_text())
    theirs = json.loads((SHARED / "oracle" / "losses.json").read_text())
    for key in ("label_counts", "n_samples", "logits", "targets"):
        assert ours[key] == theirs[key]
    for corpus, rows in theirs["cases"].items():
        for name, row in rows.items():
            assert ours["cases"][corpus][name.lower()]["loss"] == row["loss"]
            assert ours["cases"][corpus][name.lower()]["grad"] == row["grad"]
