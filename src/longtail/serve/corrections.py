"""Corrections by people: JSON Lines that `longtail train` reads as data."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from longtail.errors import LongtailError
from longtail.runs.append import append_line


class NotStoredError(LongtailError):
    """A correction that is not on the disk."""


def store(path: Path, model: str, correction: dict[str, Any]) -> str:
    """Add a correction to a file, onto the disk; returns its id."""
    key = correction["id"] or uuid.uuid4().hex
    record = {
        "id": key,
        "text": correction["text"],
        "labels": list(dict.fromkeys(correction["labels"])),
        "predicted": correction["predicted"],
        "model": model,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    try:
        append_line(path, json.dumps(record, ensure_ascii=False).encode("utf-8"))
    except OSError as error:
        raise NotStoredError(
            f"the correction was not stored: {path.name} cannot be written "
            f"({error.strerror or error}). Mend that on the server, then send it again."
        ) from error
    return str(key)
