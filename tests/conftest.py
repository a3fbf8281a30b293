"""Shared settings of the tests."""

from __future__ import annotations

import os

# Several test processes share few cores; torch's threads would wait for each other. Set before
# torch is imported, and inherited by the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
