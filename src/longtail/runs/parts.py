"""Resumable output: records are kept in parts until the output file is complete.

The workspace `.NAME.longtail-work` beside the file holds parts in JSON Lines, each named by the
number of records before it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from longtail.errors import DataError, InputError
from longtail.runs.files import check_new, remove_left_overs, whole_file
from longtail.runs.model import checksum
from longtail.runs.workspace import Workspace, differences

# The settings at the start, and the checksum of the complete output just before it is renamed.
STARTED, WHOLE = "started.json", "whole.json"
# A part is written after this many records or seconds.
MOST_RECORDS, SECONDS = 10_000, 30.0

Records = Iterator[dict[str, Any]]


class Parts:
    """The records of an output in progress, locked by one process."""

    def __init__(self, out: Path, space: Workspace, replaces: bool) -> None:
        self.out, self._space, self._replaces = out, space, replaces
        self.is_finished = False
        self._pending: list[str] = []
        self._written = time.monotonic()
        self.kept = 0
        """Number of records on disk."""
        while n_lines := self._count(self._path(self.kept)):
            self.kept += n_lines

    @classmethod
    def open(
        cls,
        out: Path,
        settings: Callable[[], Mapping[str, Any]],
        *,
        resume: bool = False,
        overwrite: bool = False,
        ignored: Collection[str] = (),
    ) -> Parts | None:
        """Start or resume an output; None if the output to resume is complete.

        Args:
            out: the file; an existing one is replaced only with `overwrite`.
            settings: returns the settings that the records depend on, as plain values; resuming
                requires the same settings.
            ignored: settings that may differ.
        """
        place = out.with_name(f".{out.name}.longtail-work")
        earlier = cls._earlier(place)
        if earlier is not None and (resume or not overwrite):
            space, started = earlier
            if not resume:
                raise DataError(
                    f"{out} is unfinished. Resume it with --resume, or start over with --overwrite."
                )
            before, now = started["settings"], _plain(settings())
            if before.get("data") != now.get("data"):
                raise InputError(
                    f"the unfinished {out} was made from {before['data']}, not from "
                    f"{now['data']}. Resume it with {before['data']}, or start over with "
                    "--overwrite."
                )
            changed = differences(before, now, ignored)
            if changed:
                raise InputError(
                    f"{out} was started with other settings: {'; '.join(changed)}. Resume with the "
                    "same, or start over with --overwrite."
                )
            return cls(out, space, started["overwrite"])._unless_whole()
        if resume:
            raise DataError(
                f"there is nothing to resume: {out} is "
                f"{'complete' if out.is_file() else 'not started'}. Leave out --resume."
            )
        check_new(out, overwrite)
        if earlier is not None:
            earlier[0].remove()
        started = {"settings": _plain(settings()), "overwrite": overwrite}
        try:
            space = Workspace.begin(place, {STARTED: json.dumps(started, indent=2)})
        except DataError as error:
            reason = getattr(error.__cause__, "strerror", None) or error
            raise DataError(
                f"{out} cannot be written: {place}, the folder for its parts, cannot be made "
                f"({reason}). Choose another name or folder."
            ) from error
        space.lock()
        return cls(out, space, overwrite)

    @staticmethod
    def _earlier(place: Path) -> tuple[Workspace, dict[str, Any]] | None:
        """Return the workspace of an unfinished output, locked, and its start record, or None."""
        if not Workspace.is_one(place):
            return None
        space = Workspace.open(place)
        space.lock()
        started = space.read_record(STARTED)
        if started is None:
            # A killed process was removing the workspace, this file first.
            space.remove()
            return None
        return space, started

    def _unless_whole(self) -> Parts | None:
        if not self.out.exists():
            return self
        whole = self._space.read_record(WHOLE)
        if whole is not None and self.out.is_file() and whole["sha256"] == checksum(self.out):
            self._space.remove()
            remove_left_overs(self.out.parent)
            return None
        if not self._replaces:
            self._space.close()
            raise InputError(
                f"{self.out} was written by another program since. Move it away, then resume."
            )
        return self

    def _path(self, n_before: int) -> Path:
        return self._space.path / f"{n_before:012}.jsonl"

    @staticmethod
    def _count(path: Path) -> int:
        if not path.is_file():
            return 0
        with path.open("rb") as lines:
            return sum(1 for _ in lines)

    def add(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Add records; they are written after some time, or by `flush`."""
        self._pending += [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
        is_late = time.monotonic() - self._written > SECONDS
        if is_late or len(self._pending) >= MOST_RECORDS:
            self.flush()

    def flush(self) -> None:
        """Write the pending records as a part."""
        if self._pending:
            content = "".join(self._pending).encode("utf-8")
            self._space.write(self._path(self.kept).name, content)
            self.kept += len(self._pending)
            self._pending = []
        self._written = time.monotonic()

    def finish(self, write: Callable[[Path, Records], None]) -> None:
        """Write the output with `write(path, records)`, and remove the parts."""
        self.flush()
        try:
            with whole_file(self.out) as temporary:
                write(temporary, self._records())
                if temporary != self.out:
                    self._space.write_record(WHOLE, {"sha256": checksum(temporary)})
        except OSError as error:
            raise DataError(
                f"{self.out} cannot be written ({error.strerror or error}). Free some space, then "
                "resume with --resume."
            ) from error
        self._space.remove()
        self.is_finished = True

    def close(self, keep: bool = True) -> None:
        """Flush and unlock; remove the workspace if it has no records, or unless `keep`."""
        if self.is_finished:
            return
        try:
            if keep:
                self.flush()
        finally:
            if keep and self.kept:
                self._space.close()
            else:
                self._space.remove()

    def _records(self) -> Records:
        n_read = 0
        while n_read < self.kept:
            with self._path(n_read).open(encoding="utf-8", newline="\n") as lines:
                for line in lines:
                    n_read += 1
                    yield json.loads(line)


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings as JSON restores them: tuples become lists."""
    return dict(json.loads(json.dumps(settings)))
