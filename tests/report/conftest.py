"""Fewer resamples: these tests look at what is shown, not at how sure it is."""

from __future__ import annotations

import pytest

import longtail.report.runs


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(longtail.report.runs, "N_RESAMPLES", 40)
