"""Studies need Optuna."""

from __future__ import annotations

import pytest

pytest.importorskip("optuna", reason="needs the extra search")
