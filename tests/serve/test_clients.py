"""Clients that disconnect, are slow or do not read, and a stop, with real sockets."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from longtail.serve import protocol
from longtail.serve.run import open_socket
from longtail.serve.served import Served

from .conftest import PATH, TEXT, Serve, Slow, raw, real_server


def test_requests_of_disconnected_clients_are_dropped(serving: Serve, loaded: Served) -> None:
    slow = Slow(loaded)
    app: Any = serving(slow, max_batch=1).app
    with real_server(app) as (_, port):
        url = f"http://127.0.0.1:{port}"
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(httpx.post, url + PATH, json=TEXT, timeout=20)
            while slow.n_texts == 0:
                time.sleep(0.01)
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(url + PATH, json={"documents": [{"text": "x"}] * 50}, timeout=0.3)
            # From the registry: polling /metrics would add requests.
            number = ("longtail_waiting_documents", {"model": "run"})
            end = time.monotonic() + 10
            while app.metrics.registry.get_sample_value(*number) > 1 and time.monotonic() < end:
                time.sleep(0.02)
            assert app.metrics.registry.get_sample_value(*number) == 1
            slow.go.set()
            assert first.result().status_code == 200 and slow.n_texts == 1
            assert 'longtail_waiting_documents{model="run"} 0.0' in httpx.get(url + "/metrics").text


def test_a_stop_finishes_accepted_requests(serving: Serve, loaded: Served) -> None:
    slow = Slow(loaded)
    with (
        ThreadPoolExecutor(9) as pool,
        real_server(serving(slow, max_batch=2).app) as (server, port),
    ):
        url = f"http://127.0.0.1:{port}{PATH}"
        pending = [pool.submit(httpx.post, url, json=TEXT, timeout=20) for _ in range(8)]
        while slow.n_texts == 0 or len(server.server_state.tasks) < 8:
            time.sleep(0.01)
        server.should_exit = True
        time.sleep(0.2)
        slow.go.set()
        assert [one.result().status_code for one in pending] == [200] * 8
    with pytest.raises(httpx.ConnectError):
        httpx.post(url, json=TEXT)


def test_slow_clients_are_disconnected(serving: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.2)
    monkeypatch.setattr(protocol, "READ_SECONDS", 0.2)
    with real_server(serving(timeout=0.3).app) as (server, port):
        for parts in ((b"",), (b"GET /health HTTP/1.1\r\n", b"Host: x\r\n")):
            assert b"408 Request Timeout" in raw(port, *parts)
        whole = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
        answer = raw(port, whole, b"GET /health HT", pause=0.05)
        assert answer.count(b"200 OK") == 1 and b"408 Request Timeout" in answer
        head = b"POST /models/run/predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        slow_body = raw(port, head + b"Content-Length: 50\r\n\r\n{")
        assert b"408" in slow_body and b"the body did not arrive within 0.3 seconds" in slow_body
        chunked = raw(port, head + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n{\r\n", pause=0.1)
        assert b"408" in chunked
        nonsense = raw(port, b"\x16\x03\x01 nonsense\r\n\r\n")
        assert b"400 Bad Request" in nonsense and b'{"error": "the request is not valid' in nonsense
        assert b"content-security-policy: default-src" in nonsense
        end = time.monotonic() + 10
        while server.server_state.connections and time.monotonic() < end:
            time.sleep(0.01)
        assert not server.server_state.connections
        assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200


def test_a_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "READ_SECONDS", 0.2)

    async def large(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for kind in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{kind}.complete"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 50_000_000})

    with real_server(large) as (server, port), socket.create_connection(("127.0.0.1", port)) as one:
        one.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert one.recv(1)
        end = time.monotonic() + 10
        while server.server_state.connections and time.monotonic() < end:
            time.sleep(0.01)
        assert not server.server_state.connections


def test_connections_are_bounded(serving: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "max_connections", lambda: 3)
    with real_server(serving().app) as (server, port), ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        while len(server.server_state.connections) < 3:
            time.sleep(0.01)
        refused = raw(port)
        assert b"503 Service Unavailable" in refused and b"retry-after: 1" in refused
        assert b"too many connections" in refused
        stack.close()
        while server.server_state.connections:
            time.sleep(0.01)
        assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200


def test_the_limit_of_files_bounds_connections() -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        for soft, expected in ((200, 136), (50, 1), (before[0], None)):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
            number = protocol.max_connections.__wrapped__()
            assert number == (expected or number) <= protocol.MAX_CONNECTIONS
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_sockets_listen_late_and_send_without_delay() -> None:
    with open_socket("127.0.0.1", 0) as listener:
        address = listener.getsockname()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        listener.listen()
        with socket.create_connection(address), listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
