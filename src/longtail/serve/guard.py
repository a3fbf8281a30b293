"""Checks of every request before its route: host, key, size and pace of the body.

Adds security headers, logs, and cancels the request of a client that disconnects.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from starlette.responses import JSONResponse

from longtail.errors import printable
from longtail.serve.observe import LOG, Metrics
from longtail.serve.settings import Service

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
RETRY_SECONDS = 1
CLOSE = {"Connection": "close"}  # of a request whose body was not read
# Bounds the memory of all bodies together to this many of the largest size.
MAX_BODIES = 50
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
# Hosts that the DNS of another site cannot claim.
LOCAL = re.compile(r"(?:localhost|[\d.]+|\[[\da-f:.]+\])(?::\d*)?", re.ASCII | re.IGNORECASE)
OPEN_ROUTES = ("/health", "/ready", "/", "/docs", "/openapi.json")
CRASHED = "the service failed on this request; its log says where. Report it if it happens again."

log = logging.getLogger(LOG)


def error_response(
    status: int, message: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """The answer to every request that fails."""
    retry = {"Retry-After": str(RETRY_SECONDS)} if status == 503 else {}
    return JSONResponse({"error": printable(message)}, status, {**(headers or {}), **retry})


class RefusedError(Exception):
    """A request that is answered with an error before its route."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers


class Guard:
    """ASGI middleware with these checks."""

    def __init__(self, app: App, service: Service, metrics: Metrics) -> None:
        self.app, self.limits, self.metrics = app, service.limits, metrics
        self.only_local = service.only_local
        self.n_bytes = 0  # of all bodies in memory
        self.api_key = None if service.api_key is None else service.api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), *HEADERS]}
            await send(message)

        try:
            await self._admit(scope, receive, answer)
        except RefusedError as refused:
            response = error_response(refused.status, str(refused), refused.headers)
            await response(scope, receive, answer)
        except Exception:
            log.exception("a request failed")
            if not status:
                await error_response(503, CRASHED)(scope, receive, answer)
        finally:
            self._record(scope, status, time.perf_counter() - start)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, body = dict(scope["headers"]), bytearray()
        self._check_host(headers)
        self._check_key(scope["path"], headers)
        try:
            if scope["method"] in ("POST", "PUT", "PATCH", "DELETE"):
                await self._read(body, headers, receive)
            if scope["method"] == "POST":
                _check_content_type(headers)
            await self._run(scope, body, receive, send)
        finally:
            self.n_bytes -= len(body)

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        """Refuse DNS rebinding: a page of another site whose name resolves to this machine."""
        host = headers.get(b"host", b"localhost").decode("latin-1")
        if self.only_local and not LOCAL.fullmatch(host):
            raise RefusedError(
                421,
                "without a key the service answers to the host localhost and to IP addresses, got "
                f"{host!r}. Set a key, or let the proxy send Host: localhost.",
            )

    def _check_key(self, path: str, headers: dict[bytes, bytes]) -> None:
        if self.api_key is None or path in OPEN_ROUTES or path.startswith("/static/"):
            return
        kind, _, key = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() != b"bearer" or not hmac.compare_digest(key.strip(), self.api_key):
            message = "expected the header Authorization: Bearer KEY with the key of this service."
            raise RefusedError(401, message, {"WWW-Authenticate": "Bearer"})

    async def _read(self, body: bytearray, headers: dict[bytes, bytes], receive: Receive) -> None:
        """Read the whole body; refuse one that is too large or too slow."""
        limit = self.limits.max_body_bytes
        length = headers.get(b"content-length", b"0")
        too_large = RefusedError(
            413,
            f"the body is larger than {self.limits.max_body_mb:g} MB. Send fewer documents at a "
            "time.",
            CLOSE,
        )
        if not length.isdigit() or len(length) > 18 or int(length) > limit:
            raise too_large
        try:
            async with asyncio.timeout(self.limits.timeout):
                while True:
                    event = await receive()
                    if event["type"] == "http.disconnect":
                        raise RefusedError(408, "the client disconnected while sending its body.")
                    body += (part := event.get("body", b""))
                    self.n_bytes += len(part)
                    if len(body) > limit:
                        raise too_large
                    if self.n_bytes > MAX_BODIES * limit:
                        message = "the service is busy. Try again later."
                        raise RefusedError(503, message, CLOSE)
                    if not event.get("more_body", False):
                        return
        except TimeoutError:
            message = f"the body did not arrive within {self.limits.timeout:g} seconds."
            raise RefusedError(408, f"{message} Send it again.", CLOSE) from None

    async def _run(self, scope: Scope, body: bytearray, receive: Receive, send: Send) -> None:
        """Run the application until it has answered, or the client disconnects."""
        bodies = [body]

        async def replay() -> Message:
            if bodies:
                return {"type": "http.request", "body": bodies.pop(), "more_body": False}
            return await asyncio.shield(disconnected)

        async def wait_for_disconnect() -> Message:
            while (message := await receive())["type"] != "http.disconnect":
                pass
            return message

        disconnected = asyncio.ensure_future(wait_for_disconnect())
        running = asyncio.ensure_future(self.app(scope, replay, send))
        try:
            await asyncio.wait({running, disconnected}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
        finally:
            for task in (running, disconnected):
                task.cancel()
            await asyncio.gather(running, disconnected, return_exceptions=True)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        """Count and log a request; status 0: the client disconnected."""
        status = status or 499
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.metrics.requests.labels(method, route, str(status)).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        fields = {
            "method": method,
            "route": route,
            "status": status,
            "milliseconds": round(1000 * seconds, 1),
            **scope.get("longtail", {}),
        }
        log.info("request", extra={"fields": fields})


def _check_content_type(headers: dict[bytes, bytes]) -> None:
    """Refuse all but JSON: browsers let pages of other sites post forms, but not JSON."""
    content_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if content_type != b"application/json":
        got = repr(content_type.decode("latin-1"))
        message = f"expected Content-Type: application/json, got {got}. Send the body as JSON."
        raise RefusedError(422, message)
