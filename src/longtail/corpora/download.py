"""Download files of public corpora into a cache; a failed download leaves nothing behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from longtail.errors import DataError, InputError
from longtail.progress import OnProgress, Progress, ignore
from longtail.runs.files import whole_file

ATTEMPTS = 2  # per mirror
TIMEOUTS = (10, 30)  # seconds: to connect, and to wait for the next piece
PIECE = 1 << 16


class RemoteFile(NamedTuple):
    """A file on the web."""

    name: str  # in the cache
    urls: tuple[str, ...]  # mirrors, tried in order
    sha256: str
    size: int  # bytes


class _FailedError(Exception):
    """A request failed, with the reason in a few words."""


def cache_folder() -> Path:
    """Return the folder of downloads: LONGTAIL_CACHE, or `longtail` in the user's cache folder."""
    chosen = os.environ.get("LONGTAIL_CACHE")
    if not chosen:
        import pooch

        chosen = pooch.os_cache("longtail")
    try:
        return Path(chosen).expanduser().absolute()
    except RuntimeError as error:  # ~name of an unknown user
        raise InputError(f"LONGTAIL_CACHE={chosen} is not a folder: {error}") from error


def fetch(file: RemoteFile, corpus: str, progress: OnProgress = ignore) -> Path:
    """Return the path of the file in the cache, downloaded if missing; a present one is trusted."""
    target = cache_folder() / corpus / file.name
    failures: dict[str, str] = {}
    try:
        if target.is_file():
            return target
        for url in file.urls * ATTEMPTS:
            try:
                _download(url, file, target, progress)
                return target
            except _FailedError as error:
                failures[url] = f"  {url}: {error}\n"
    except OSError as error:
        raise DataError(
            f"cannot write {target}: {error.strerror or error}. Free some space, fix the "
            "permissions, or set LONGTAIL_CACHE to another folder."
        ) from error
    raise DataError(
        f"{file.name} could not be downloaded:\n{''.join(failures.values())}"
        "Download the file with a browser, or copy it from another machine, and place it as "
        f"{target}, or set LONGTAIL_CACHE to a folder that holds {corpus}/{file.name}"
    )


def _download(url: str, file: RemoteFile, target: Path, progress: OnProgress) -> None:
    import pooch

    with whole_file(target) as path:
        with path.open("wb") as out:
            for piece in _receive(url, file.size):
                out.write(piece)
                progress(Progress(f"downloading {file.name}", out.tell(), file.size, "bytes"))
        if pooch.file_hash(str(path), "sha256") != file.sha256:
            raise _FailedError("checksum differs")


def _receive(url: str, limit: int) -> Iterator[bytes]:
    """Yield the pieces of a response body."""
    import requests  # type: ignore[import-untyped, unused-ignore]

    # A compressed transfer, or a .gz file decoded as one, would have another checksum.
    headers = {"Accept-Encoding": "identity"}
    done = 0
    try:
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUTS) as response:
            hops = [hop.url.lower().startswith("https:") for hop in (*response.history, response)]
            if hops != sorted(hops):
                raise _FailedError("redirected from https to http, which is refused")
            if response.status_code != 200:
                raise _FailedError(f"HTTP {response.status_code}")
            while piece := response.raw.read(PIECE):
                done += len(piece)
                if done > limit:
                    raise _FailedError(f"sends more than the {limit} bytes that were expected")
                yield piece
    except _FailedError:
        raise
    except Exception as error:  # whatever requests and urllib3 raise
        raise _FailedError(_reason(error)) from None


def _reason(error: BaseException) -> str:
    """Return the message of the innermost error, such as `Connection refused`."""
    inner = error.__cause__ or error.__context__
    return _reason(inner) if inner else str(error)[:200] or type(error).__name__
