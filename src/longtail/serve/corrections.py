"""Corrections by users, as JSON Lines that `longtail train` reads."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from longtail.errors import LongtailError
from longtail.runs.append import append_line


class NotStoredError(LongtailError):
    """A correction could not be written."""


def store(path: Path, model: str, correction: dict[str, Any]) -> str:
    """Append a correction to a file and flush it to disk; returns its id."""
    # Ids of training data are unique, but a document may be corrected twice.
    key = "-".join(filter(None, (correction["id"], uuid.uuid4().hex)))
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
            f"({error.strerror or error}). Fix that on the server, then send it again."
        ) from error
    return key
