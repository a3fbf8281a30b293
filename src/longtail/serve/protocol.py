"""uvicorn's HTTP/1.1 protocol with a bound of connections, and with timeouts for slow clients.

`guard.py` has the timeout of bodies.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from functools import cache
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from longtail.serve.guard import HEADERS, RETRY_SECONDS

HEADER_SECONDS = 10.0
READ_SECONDS = 30.0
MAX_CONNECTIONS = 4096  # of a process
OTHER_FILES = 64  # descriptors for models, the log, corrections, and connections being refused


@cache
def max_connections() -> int:
    """Connections that the limit of file descriptors allows."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return MAX_CONNECTIONS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, soft - OTHER_FILES))


class TimeoutProtocol(H11Protocol):  # type: ignore[misc]
    """Closes a connection that is one too many, sends its headers too late, or does not read."""

    _header_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if sys.platform != "win32":
            # Otherwise the worker that woke first accepts most or all of a burst.
            os.sched_yield()
        if len(self.connections) > max_connections():
            self._close_with(503, "too many connections. Try again later.")
        else:
            self._wait_for_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
        elif self._header_timer is None:
            self._wait_for_headers()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._read_timer = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._read_timer is not None:
            self._read_timer.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_waiting()
        if self._read_timer is not None:
            self._read_timer.cancel()

    def send_400_response(self, msg: str) -> None:
        self._close_with(400, "the request is not valid HTTP/1.1. Send one that is.")

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing: the advice of uvicorn, to install websockets, does not apply."""

    def _wait_for_headers(self) -> None:
        message = f"the headers did not arrive within {HEADER_SECONDS:g} seconds. Send them again."
        self._header_timer = self.loop.call_later(HEADER_SECONDS, self._close_with, 408, message)

    def _stop_waiting(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _close_with(self, status: int, message: str) -> None:
        """Answer a connection without a request."""
        body = json.dumps({"error": message}).encode()
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode(),
            b"content-type: application/json",
            b"content-length: %d" % len(body),
            b"connection: close",
            *(b"%b: %b" % header for header in HEADERS),
            *([b"retry-after: %d" % RETRY_SECONDS] if status == 503 else []),
        ]
        self.transport.write(b"\r\n".join([*lines, b"", body]))
        self.transport.close()
