"""Bodies that are wrong, large or slow, keys, full queues, clients that leave, and failures."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from longtail.errors import DataError, InputError
from longtail.serve import guard, protocol
from longtail.serve.observe import JsonLines
from longtail.serve.served import Answer, Served, Wanted
from longtail.serve.settings import Limits

from .conftest import Serve, raw, real_server

JSON = {"content-type": "application/json"}
PATH = "/models/run/predict"
TEXT = {"documents": [{"text": "copper"}]}


class Slow(Served):
    """Answers when it is let go."""

    def __init__(self, loaded: Served) -> None:
        super().__init__(loaded.name, loaded.classifier, "")
        self.go, self.n_texts = threading.Event(), 0

    def predict(self, wanted: list[Wanted]) -> list[list[Answer]]:
        self.n_texts += len(wanted)
        assert self.go.wait(20)
        return super().predict(wanted)


def error_of(answer: Any, status: int) -> str:
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"error"} and len(body["error"]) > 20
    assert (status == 503) == ("retry-after" in answer.headers)
    assert "content-security-policy" in answer.headers
    return str(body["error"])


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "body is missing"),
        (b"{", "the body is not JSON"),
        (b"[" * 100_000, "cannot be parsed"),
        (b"\xff\xfe{", "cannot be parsed"),
        (b'{"documents": [{"text": ' + b"1" * 5000 + b"}]}", "cannot be parsed"),
        (b"null", "body is wrong"),
        (b"[]", "body is wrong"),
        (b"{}", "body.documents is missing"),
        (b'{"documents": []}', "at least 1 item"),
        (b'{"documents": "copper"}', "body.documents is wrong"),
        (b'{"documents": [{"text": null}]}', "body.documents.0.text is wrong"),
        (b'{"documents": [{"text": "a", "id": 5}]}', "body.documents.0.id is wrong"),
        (b'{"documents": [{"text": "a", "odd": 5}]}', "odd is not a field that is known"),
        (b'{"documents": [{"text": "\\ud800"}]}', "surrogate"),
        (b'{"documents": [{"text": "a"}], "top_k": 0}', "top_k"),
        (b'{"documents": [{"text": "a"}], "top_k": true}', "top_k"),
        (b'{"documents": [{"text": "a"}], "top_k": NaN}', "top_k"),
        (b'{"documents": [{"text": "a"}], "reasons": "yes"}', "reasons"),
        (json.dumps({"documents": [{}] * 200}).encode(), "and 197 more faults"),
    ],
)
def test_wrong_bodies(client: TestClient, body: bytes, why: str) -> None:
    assert why in error_of(client.post(PATH, content=body, headers=JSON), 422)


def test_other_content_types_addresses_and_methods(client: TestClient) -> None:
    for kind in ({}, {"content-type": "text/plain"}, {"content-type": "multipart/form-data"}):
        answer = client.post(PATH, content=json.dumps(TEXT), headers=kind)
        assert "expected Content-Type: application/json" in error_of(answer, 422)
    for query in ("limit=0", "limit=x", "offset=-1", "offset=" + "9" * 5000, "limit=1001"):
        error_of(client.get(f"/models/run/labels?{query}"), 422)
    error_of(client.post("/models/other/predict", json=TEXT), 404)
    assert "does not take DELETE" in error_of(client.delete(PATH), 405)
    assert "GET /docs" in error_of(client.get("/predict"), 404)


def test_what_is_too_large(serving: Serve) -> None:
    limits = {"max_text_length": 10, "max_documents": 2, "max_body_mb": 0.001}
    with serving(**limits) as client:
        for body in (
            {"documents": [{"text": "x" * 11}]},
            {"documents": [{"text": "x"}] * 3},
            {"documents": [{"text": "x" * 2000}]},
        ):
            error_of(client.post(PATH, json=body), 413)
        answer = client.post("/models/run/corrections", json={"text": "x" * 11, "labels": []})
        error_of(answer, 413)
        chunks = (b" " * 100 for _ in range(100))
        error_of(client.post(PATH, content=chunks, headers=JSON), 413)
        huge = JSON | {"content-length": "9" * 30}
        error_of(client.post(PATH, content=b"{}", headers=huge), 413)
        assert client.post(PATH, json={"documents": [{"text": "x" * 10}] * 2}).status_code == 200


def test_huge_and_odd_texts_have_answers(client: TestClient) -> None:
    for text in (
        "",
        " ",
        "\x00",
        "\u202e\ufeff",
        "\U0001f33e" * 1000,
        "x" * 100_000,
        "a " * 50_000,
    ):
        answer = client.post(PATH, json={"documents": [{"text": text}], "top_k": 200})
        assert answer.status_code == 200 and len(answer.json()["documents"][0]["labels"]) == 3


def test_the_key_opens_all_but_the_page(serving: Serve) -> None:
    with serving(api_key="secret") as client:
        for path in ("/health", "/ready", "/", "/static/api.css"):
            assert client.get(path).status_code == 200
        for path in ("/models", "/models/run", "/metrics", "/docs", "/openapi.json", "/nothing"):
            for header in ({}, {"authorization": "Bearer wrong"}, {"authorization": "secret"}):
                answer = client.get(path, headers=header)
                assert "Authorization: Bearer KEY" in error_of(answer, 401)
                assert answer.headers["www-authenticate"] == "Bearer"
        key = {"authorization": "Bearer secret"}
        assert client.get("/models", headers=key).status_code == 200
        api = client.get("/openapi.json", headers=key).json()
        assert "securitySchemes" in api["components"]
        assert "Authorization: Bearer" in client.get("/docs", headers=key).text


def test_a_full_queue_and_a_slow_model(serving: Serve, loaded: Served) -> None:
    slow = Slow(loaded)
    settings = dict(queue=2, max_documents=2, max_batch=1, timeout=0.3)
    with serving(slow, **settings) as client, ThreadPoolExecutor(8) as pool:
        pending = [pool.submit(client.post, PATH, json=TEXT) for _ in range(8)]
        errors = [error_of(one.result(), 503) for one in pending]
        assert any("documents wait already" in error for error in errors)
        assert any("no answer within 0.3 seconds" in error for error in errors)
        slow.go.set()
        assert client.post(PATH, json=TEXT).status_code == 200


def test_a_client_that_leaves_takes_its_request_along(serving: Serve, loaded: Served) -> None:
    slow = Slow(loaded)
    with real_server(serving(slow, max_batch=1).app) as (_, port):
        url = f"http://127.0.0.1:{port}"
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(httpx.post, url + PATH, json=TEXT, timeout=20)
            while slow.n_texts == 0:
                time.sleep(0.01)
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(url + PATH, json={"documents": [{"text": "x"}] * 50}, timeout=0.3)
            waiting = 'longtail_waiting_documents{model="run"} 0.0'
            end = time.monotonic() + 10
            while waiting not in httpx.get(url + "/metrics").text and time.monotonic() < end:
                time.sleep(0.02)
            assert waiting in httpx.get(url + "/metrics").text
            slow.go.set()
            assert first.result().status_code == 200 and slow.n_texts == 1


def test_stopping_finishes_what_was_accepted(serving: Serve, loaded: Served) -> None:
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


def test_slow_clients_are_cut_off(serving: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
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
        assert b"400" in raw(port, b"\x16\x03\x01 nonsense\r\n\r\n")
        end = time.monotonic() + 10
        while server.server_state.connections and time.monotonic() < end:
            time.sleep(0.01)
        assert not server.server_state.connections
        assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200


def test_a_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_failure_of_the_model_is_a_503_without_a_traceback(
    serving: Serve, loaded: Served, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Served):
        def predict(self, wanted: list[Wanted]) -> list[list[Answer]]:
            if "ours" in wanted[0].text:
                raise DataError("the model cannot score these texts: it is damaged.")
            raise ZeroDivisionError("of the secret text")

    broken = Broken("run", loaded.classifier, "")
    with serving(broken) as client, caplog.at_level(logging.INFO, guard.LOG):
        caplog.handler.setFormatter(JsonLines())
        assert error_of(client.post(PATH, json=TEXT), 503) == guard.CRASHED
        body = {"documents": [{"text": "ours"}]}
        assert "is damaged" in error_of(client.post(PATH, json=body), 503)
    lines = [json.loads(line) for line in caplog.text.splitlines()]
    crash = next(line for line in lines if line["level"] == "error")
    assert crash["exception"] == "ZeroDivisionError" and "predict" in crash["at"][-1]
    assert "secret" not in caplog.text and "ours" not in caplog.text
    requests = [line for line in lines if line["message"] == "request"]
    assert requests[0]["model"] == "run" and requests[0]["documents"] == 1
    assert requests[0]["route"] == "/models/{name}/predict" and requests[0]["status"] == 503


def test_large_requests_with_reasons_hold_up_no_other(serving: Serve, loaded: Served) -> None:
    class Explaining(Served):
        def explain(self, wanted: Any) -> Any:
            time.sleep(0.05 * len(wanted))
            return [{label: [] for label in one.labels} for one in wanted]

    with (
        serving(Explaining("run", loaded.classifier, "")) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        large = {"documents": [{"text": "copper"}] * 16, "reasons": True}
        slow = pool.submit(client.post, PATH, json=large)
        time.sleep(0.2)
        for _ in range(3):
            assert client.post(PATH, json=TEXT).status_code == 200
        assert not slow.done()
        assert slow.result().status_code == 200


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_batch": 0}, {"queue": 5, "max_documents": 6}, {"timeout": 0}, {"max_wait_ms": -1},
        {"max_body_mb": float("nan")}, {"max_text_length": 1.5},
    ],
)  # fmt: skip
def test_wrong_limits(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Limits(**wrong)
