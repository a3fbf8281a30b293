"""From files to TextData: one pass, bounded memory, many files in parallel, errors in one place."""

from __future__ import annotations

import csv
import lzma
import os
import re
import struct
import warnings
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from longtail.data.collected import Collected
from longtail.data.documents import LabelNames, Problem, ReadOptions, ReadReport
from longtail.data.files import Tick
from longtail.data.formats import Format
from longtail.data.limits import TooLargeError, shown, shown_names
from longtail.data.textdata import TextData
from longtail.errors import DataError, InputError, LongtailError

Progress = Callable[[int, int], None]
"""Called with the bytes read so far and the bytes in all."""

# Bytes in several files from which starting processes pays, for formats slow and cheap to parse.
SLOW_FROM, CHEAP_FROM = 8 << 20, 64 << 20
# Errors of the machinery below the readers: a damaged file, a disk that fails, UTF-16 without mark,
# a number or a date beyond Python's, an archive in a method unknown to us.
READ_ERRORS = (
    OSError,
    EOFError,
    ValueError,
    LookupError,
    ArithmeticError,
    RuntimeError,
    csv.Error,
    struct.error,
    zlib.error,
    lzma.LZMAError,
)
# Control characters, of which a line feed in a label would break every table of labels.
CONTROLS = re.compile("[\x00-\x1f\x7f\x85\u2028\u2029]")


def read_data(
    source: str | Path | Sequence[str | Path],
    format: str | None = None,
    *,
    report: ReadReport | None = None,
    progress: Progress | None = None,
    workers: int | None = None,
    **options: Any,
) -> TextData:
    """Read documents with labels from a file, several files, or a folder that is one source.

    Args:
        source: a path, several paths of one kind, or `hf:owner/name`.
        format: a name of `list_formats`; default: by the suffix.
        report: filled with what was read, skipped and passed over. Without one, skipped records
            are told by a warning.
        progress: called with the bytes read so far and the bytes in all.
        workers: processes for several files; default: one per core if the files are large.
        options: the fields of `ReadOptions`, such as on_error="skip".

    Example:
        >>> data = read_data("reviews.csv", label_separator=";", on_error="skip")  # doctest: +SKIP
    """
    from longtail.data.sources import resolve

    found = ReadReport()
    with our_errors(source):
        files = resolve(source, format, found)
        collected = collect(files, ReadOptions(**options), progress, workers)
        found.add(collected.report)
        data = collected.data()
    tell(found, report)
    return data


def tell(found: ReadReport, report: ReadReport | None) -> None:
    """Hand over what was found, or warn where nobody asked for it."""
    if report is not None:
        report.add(found)
    elif found.skipped or found.left_out:
        # Level 3: the caller of read_data or load_data.
        warnings.warn("\n".join(found.lines()), stacklevel=3)


@contextmanager
def our_errors(source: object) -> Iterator[None]:
    """Raise what goes wrong around the reading, such as a folder without rights, as our error."""
    try:
        yield
    except MemoryError as error:
        raise _out_of_memory(source) from error
    except LongtailError:
        raise
    except READ_ERRORS as error:
        raise DataError(f"{shown(str(source), 200)} cannot be read ({_reason(error)}).") from error


def _out_of_memory(source: object) -> DataError:
    return DataError(
        f"{source}: its documents need more memory than there is. Read fewer files, or take the "
        "longest documents out with a smaller max_record_mb (--max-record-mb) and on_error='skip'."
    )


def _reason(error: Exception) -> str:
    """What an error says, or its name where it says nothing."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(error)[:300] or type(error).__name__


def collect(
    files: Sequence[tuple[Path | str, Format]],
    options: ReadOptions,
    progress: Progress | None = None,
    workers: int | None = None,
) -> Collected:
    """Read files in their order, in parallel if there are several."""
    if workers is not None and workers < 1:
        raise InputError(f"workers must be at least 1, got {workers}.")
    if not files:
        raise InputError("expected at least one file to read, got none.")
    total = sum(size_of(path) for path, _ in files)
    done = 0

    def tick(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(min(done, total), total)

    if workers is None:
        workers = _workers(files, total, os.cpu_count() or 1)
    n_workers = min(workers, len(files))
    whole = Collected(options)
    if n_workers == 1:
        for path, entry in files:
            _read_into(whole, path, entry, tick)
    else:
        with closing(_in_processes(files, options, n_workers)) as collected:
            for (path, entry), part in zip(files, collected, strict=True):
                whole.extend(part, str(path), entry.unit)
                tick(size_of(path))
    if not whole.texts:
        shown = ", ".join(str(path) for path, _ in files[:3])
        said = " ".join(whole.report.lines())
        raise DataError(f"{shown}: holds no documents. {said}".rstrip())
    whole.report.notes += _odd_labels(whole.labels.index)
    if progress is not None:
        progress(total, total)
    return whole


def _odd_labels(names: Iterable[str]) -> list[str]:
    """What a person should know of label names that are easily taken for others."""
    wide = [name for name in names if name != name.strip()]
    controls = [name for name in names if CONTROLS.search(name)]
    kinds = (
        ("begin or end with white space, other labels than those without", wide),
        ("hold a control character such as a line feed", controls),
    )
    return [
        f"label names that {what}: {len(odd)} ({shown_names(odd)})." for what, odd in kinds if odd
    ]


def _workers(files: Sequence[tuple[Path | str, Format]], total: int, n_cores: int) -> int:
    """One process per core where that pays: handing texts over costs as much as cheap parsing."""
    slow = any(entry.slow for _, entry in files)
    pays = total >= SLOW_FROM if slow else total >= CHEAP_FROM and n_cores >= 4
    return n_cores if pays else 1


def size_of(path: Path | str) -> int:
    """Bytes on disk, of all files in a folder; 0 for what is not on disk."""
    if isinstance(path, str):
        return 0
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size


def _in_processes(
    files: Sequence[tuple[Path | str, Format]], options: ReadOptions, n_workers: int
) -> Generator[Collected, None, None]:
    """The files' documents in order, while the next ones are being read."""
    # joblib's processes, unlike multiprocessing's, need no `if __name__ == "__main__"` in scripts.
    import joblib

    stopped = False

    def jobs() -> Iterator[Any]:
        for path, entry in files:
            if stopped:
                return
            yield joblib.delayed(_read_one)(path, entry.name, options)

    found = joblib.Parallel(n_jobs=n_workers, return_as="generator", pre_dispatch="n_jobs")(jobs())
    try:
        for collected in found:  # noqa: UP028  `yield from` would close joblib's generator
            yield collected
    finally:
        # Files that are being read are read to their end: closed in the middle, joblib kills its
        # processes, and now and then a thread of its own fails over that with a traceback.
        stopped = True
        for _ in found:
            pass


def _read_one(path: Path | str, format: str, options: ReadOptions) -> Collected:
    from longtail.data.formats import get_format

    collected = Collected(options, places=[])
    try:
        _read_into(collected, path, get_format(format), lambda count: None)
    except LongtailError as error:
        # Raised by `extend`, so that of several errors the first file's is told.
        collected.failure = type(error), str(error)
    return collected


def _read_into(collected: Collected, path: Path | str, entry: Format, tick: Tick) -> None:
    n_records = 0
    try:
        with closing(entry.read(path, collected.options, tick)) as records:
            for record in records:
                n_records += not isinstance(record, LabelNames)
                collected.add(record, str(path), entry.unit)
    except MemoryError as error:
        raise _out_of_memory(path) from error
    except LongtailError:
        raise
    except TooLargeError as error:
        collected.add(Problem(f"after {n_records} records", str(error)), str(path), entry.unit)
    except READ_ERRORS as error:
        why = f"cannot be read any further ({_reason(error)})."
        collected.add(Problem(f"after {n_records} records", why), str(path), entry.unit)
