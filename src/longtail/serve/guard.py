"""What happens to every request before a route sees it: key, size and pace of the body, headers,
log; and a client that leaves takes its request along.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from longtail.serve.observe import LOG, Metrics
from longtail.serve.settings import MEGABYTE, Service

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
# Of the largest size, held at once: connections beyond that shall not take all memory.
MOST_BODIES = 50
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
# Names that no other site can have: addresses too, as browsers do not look them up.
LOCAL = re.compile(r"(?:localhost|[\d.]+|\[[\da-f:.]+\])(?::\d*)?", re.ASCII | re.IGNORECASE)
OPEN_ROUTES = ("/health", "/ready", "/")
CRASHED = "the service failed on this request; its log says where. Report it if it happens again."

log = logging.getLogger(LOG)


class RefusedError(Exception):
    """A request that no route sees."""

    def __init__(self, status: int, message: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers


class Guard:
    """An ASGI application around another."""

    def __init__(self, app: App, service: Service, metrics: Metrics) -> None:
        self.app, self.limits, self.metrics = app, service.limits, metrics
        self.only_local, self.n_bytes = service.only_local, 0  # bytes of all bodies held now
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
            await _send_error(answer, refused.status, str(refused), refused.headers)
        except Exception:
            log.exception("a request failed")
            if not status:
                await _send_error(answer, 503, CRASHED)
        finally:
            self._note(scope, status, time.perf_counter() - start)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, body = dict(scope["headers"]), bytearray()
        self._check_host(headers)
        self._check_key(scope["path"], headers)
        try:
            if scope["method"] in ("POST", "PUT", "PATCH", "DELETE"):
                await self._read(body, headers, receive)
            if scope["method"] == "POST":
                _check_kind(headers)
            await self._run(scope, body, receive, send)
        finally:
            self.n_bytes -= len(body)

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        """Refuse pages of other sites whose name was made to lead to this machine."""
        host = headers.get(b"host", b"localhost").decode("latin-1")
        if self.only_local and not LOCAL.fullmatch(host):
            raise RefusedError(
                421,
                f"without a key the service answers to localhost and to addresses, got {host!r}. "
                "Set a key, or let the proxy pass on Host: localhost.",
            )

    def _check_key(self, path: str, headers: dict[bytes, bytes]) -> None:
        if self.api_key is None or path in OPEN_ROUTES or path.startswith("/static/"):
            return
        kind, _, key = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() != b"bearer" or not hmac.compare_digest(key.strip(), self.api_key):
            message = "expected the header Authorization: Bearer KEY with the key of this service."
            raise RefusedError(401, message, (b"www-authenticate", b"Bearer"))

    async def _read(self, body: bytearray, headers: dict[bytes, bytes], receive: Receive) -> None:
        """The whole body, if it comes in time and is within the limit."""
        most = self.limits.max_body_bytes
        length = headers.get(b"content-length", b"0")
        close = (b"connection", b"close")
        too_large = RefusedError(
            413,
            f"the body is larger than {most / MEGABYTE:g} MB. Send fewer documents at a time.",
            close,
        )
        if not length.isdigit() or len(length) > 18 or int(length) > most:
            raise too_large
        try:
            async with asyncio.timeout(self.limits.timeout):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RefusedError(408, "the client left before its body was whole.")
                    body += (part := message.get("body", b""))
                    self.n_bytes += len(part)
                    if len(body) > most:
                        raise too_large
                    if self.n_bytes > MOST_BODIES * most:
                        raise RefusedError(503, "the service is busy. Try again later.", close)
                    if not message.get("more_body", False):
                        return
        except TimeoutError:
            seconds = f"{self.limits.timeout:g} seconds"
            raise RefusedError(
                408, f"the body did not arrive within {seconds}. Send it again.", close
            ) from None

    async def _run(self, scope: Scope, body: bytearray, receive: Receive, send: Send) -> None:
        """Run the application until it has answered, or the client has left."""
        bodies = [body]

        async def replay() -> Message:
            if bodies:
                return {"type": "http.request", "body": bodies.pop(), "more_body": False}
            return await asyncio.shield(gone)

        async def wait_for_the_end() -> Message:
            while (message := await receive())["type"] != "http.disconnect":
                pass
            return message

        gone = asyncio.ensure_future(wait_for_the_end())
        running = asyncio.ensure_future(self.app(scope, replay, send))
        try:
            await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
        finally:
            for task in (running, gone):
                task.cancel()
            await asyncio.gather(running, gone, return_exceptions=True)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        """Count and log a request; without a status the client has left."""
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.metrics.requests.labels(method, route, str(status or 499)).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        fields = {
            "method": method,
            "route": route,
            "status": status or 499,
            "milliseconds": round(1000 * seconds, 1),
            **scope.get("longtail", {}),
        }
        log.info("request", extra={"fields": fields})


def _check_kind(headers: dict[bytes, bytes]) -> None:
    """Refuse other forms, which pages of other sites may send: they may not say JSON."""
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        message = f"expected Content-Type: application/json, got {kind.decode('latin-1')!r}."
        raise RefusedError(422, f"{message} Send the body as JSON.")


async def _send_error(
    send: Send, status: int, message: str, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    body = json.dumps({"error": message}).encode()
    kind = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if status == 503:
        kind.append((b"retry-after", b"%d" % RETRY_SECONDS))
    await send({"type": "http.response.start", "status": status, "headers": [*kind, *headers]})
    await send({"type": "http.response.body", "body": body})
