"""Shared settings of the tests."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Several test processes share few cores; torch's threads would wait for each other. Set before
# torch is imported, and inherited by the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# A shared machine may be slow at any moment: no test fails for its time, and the same examples run
# everywhere. HYPOTHESIS_PROFILE=explore looks for new ones.
slow_is_fine = [HealthCheck.too_slow]
settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=slow_is_fine
)
settings.register_profile("explore", deadline=None, suppress_health_check=slow_is_fine)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
