"""Fewer resamples: these tests check the layout, not the intervals."""

from __future__ import annotations

import pytest

import longtail.analysis.runs


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(longtail.analysis.runs, "N_RESAMPLES", 40)
