"""Prometheus metrics, and a log of one JSON object per request, without texts."""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from traceback import extract_tb
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from longtail.serve import SHARED_FOLDER

LOG = "longtail.serve"
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The metrics of one process, or of all worker processes if SHARED_FOLDER is set."""

    def __init__(self) -> None:
        # Shared metrics are collected from files, and must not be registered here too.
        self.registry = CollectorRegistry()
        registry: Any = None if SHARED_FOLDER in os.environ else self.registry
        self.requests = Counter(
            "longtail_requests",
            "Requests answered.",
            ("method", "route", "status"),
            registry=registry,
        )
        self.seconds = Histogram(
            "longtail_request_seconds",
            "From the headers to the answer.",
            ("route",),
            registry=registry,
        )
        self.documents = Counter(
            "longtail_documents", "Documents predicted.", ("model",), registry=registry
        )
        self.batches = Histogram(
            "longtail_batch_documents",
            "Documents per call of a model.",
            ("model", "work"),
            registry=registry,
            buckets=SIZES,
        )
        self.waiting = Gauge(
            "longtail_waiting_documents",
            "Documents waiting for their answer.",
            ("model",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.corrections = Counter(
            "longtail_corrections", "Corrections stored.", ("model",), registry=registry
        )

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        folder = os.environ.get(SHARED_FOLDER)
        if folder is None:
            return generate_latest(self.registry)
        from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

        # Gauges of workers that were killed.
        for path in Path(folder).glob("gauge_live*_*.db"):
            pid = int(path.stem.rpartition("_")[2])
            if not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():
                mark_process_dead(pid)  # type: ignore[no-untyped-call]
        registry = CollectorRegistry()
        MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


class JsonLines(logging.Formatter):
    """One JSON object per record; exceptions without their messages, which may quote texts."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            # asyncio and uvicorn append tracebacks and objects, which may quote texts.
            "message": record.getMessage().partition("\n")[0],
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0]:
            line["exception"] = record.exc_info[0].__name__
            frames = extract_tb(record.exc_info[2], limit=-5)
            line["at"] = [f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in frames]
        return json.dumps(line, ensure_ascii=False)


LOG_CONFIG: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": f"{__name__}.JsonLines"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
    "loggers": {
        name: {"handlers": ["stderr"], "level": "INFO", "propagate": False}
        for name in ("uvicorn", "asyncio", LOG)
    },
}
