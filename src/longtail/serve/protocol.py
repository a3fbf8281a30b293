"""uvicorn's HTTP/1.1 protocol with timeouts for clients that send headers or read answers slowly.

`guard.py` has the timeout of bodies.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
READ_SECONDS = 30.0
BODY = json.dumps(
    {"error": f"the headers did not arrive within {HEADER_SECONDS:g} seconds. Send them again."}
)
TOO_SLOW = (
    "HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json\r\nConnection: close\r\n"
    f"Content-Length: {len(BODY)}\r\n\r\n{BODY}"
)


class TimeoutProtocol(H11Protocol):  # type: ignore[misc]
    """Closes a connection that sends its headers too late, or does not read its answer."""

    _header_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
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

    def _wait_for_headers(self) -> None:
        self._header_timer = self.loop.call_later(HEADER_SECONDS, self._cut)

    def _stop_waiting(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _cut(self) -> None:
        self.transport.write(TOO_SLOW.encode())
        self.transport.close()
