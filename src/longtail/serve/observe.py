"""What operators see: Prometheus metrics, and one JSON object per request in the log, no texts."""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from longtail.serve import SHARED_FOLDER

LOG = "longtail.serve"
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counts and times of one application; of all workers, if these share a folder."""

    def __init__(self) -> None:
        # Shared numbers come from the files; here they are not registered a second time.
        self.registry = CollectorRegistry()
        on: Any = {"registry": None if SHARED_FOLDER in os.environ else self.registry}
        self.requests = Counter(
            "longtail_requests",
            "Requests answered.",
            ("method", "route", "status"),
            **on,
        )
        self.seconds = Histogram(
            "longtail_request_seconds",
            "From the headers to the answer.",
            ("route",),
            **on,
        )
        self.documents = Counter("longtail_documents", "Documents predicted.", ("model",), **on)
        self.batches = Histogram(
            "longtail_batch_documents",
            "Documents in one call of a model.",
            ("model", "work"),
            buckets=SIZES,
            **on,
        )
        self.waiting = Gauge(
            "longtail_waiting_documents",
            "Documents in the queue of a model.",
            ("model",),
            **on,
            multiprocess_mode="livesum",
        )
        self.corrections = Counter("longtail_corrections", "Corrections stored.", ("model",), **on)

    def text(self) -> bytes:
        """The Prometheus text format."""
        folder = os.environ.get(SHARED_FOLDER)
        if folder is None:
            return generate_latest(self.registry)
        from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

        for path in Path(folder).glob("gauge_live*_*.db"):
            pid = int(path.stem.rpartition("_")[2])
            if not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():
                mark_process_dead(pid)  # type: ignore[no-untyped-call]
        registry = CollectorRegistry()
        MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


class JsonLines(logging.Formatter):
    """A JSON object per record; of an exception its type and place: messages may hold texts."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0]:
            line["exception"] = record.exc_info[0].__name__
            places, trace = [], record.exc_info[2]
            while trace is not None:
                code = trace.tb_frame.f_code
                places.append(f"{Path(code.co_filename).name}:{trace.tb_lineno} {code.co_name}")
                trace = trace.tb_next
            line["at"] = places[-5:]
        return json.dumps(line, ensure_ascii=False)


LOG_CONFIG: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": f"{__name__}.JsonLines"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
    "loggers": {
        name: {"handlers": ["stderr"], "level": "INFO", "propagate": False}
        for name in ("uvicorn", LOG)
    },
}
