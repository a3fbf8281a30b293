"""Wrong, large or slow bodies, keys, full queues, and failures."""

from __future__ import annotations

import json
import logging
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.testclient import TestClient

from longtail.errors import DataError, InputError
from longtail.serve import guard, queues
from longtail.serve.observe import JsonLines
from longtail.serve.served import Answer, PredictQuery, Served
from longtail.serve.settings import Limits

from .conftest import JSON, PATH, TEXT, Serve, Slow


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
        (b'{"documents": [{"text": "a", "odd": 5}]}', "odd is not a known field"),
        (b'{"documents": [{"text": "\\ud800"}]}', "surrogate"),
        (b'{"documents": [{"text": "a", "id": "%s"}]}' % (b"x" * 1001), "at most 1000 characters"),
        (b'{"documents": [{"text": "a"}], "top_k": 0}', "top_k"),
        (b'{"documents": [{"text": "a"}], "top_k": true}', "top_k"),
        (b'{"documents": [{"text": "a"}], "top_k": NaN}', "top_k"),
        (b'{"documents": [{"text": "a"}], "reasons": "yes"}', "reasons"),
        (b'{"documents": [{}, 5]}', "body.documents.0.text is missing. GET"),
        (json.dumps(dict.fromkeys("abcde", 1)).encode(), "and 3 more faults"),
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
    unknown = client.get("/models/run/labels?serach=copper")
    assert "query.serach is not a known field" in error_of(unknown, 422)
    error_of(client.post("/models/other/predict", json=TEXT), 404)
    assert "does not take DELETE" in error_of(client.delete(PATH), 405)
    assert "GET /docs" in error_of(client.get("/predict"), 404)


def test_requests_that_are_too_large(serving: Serve) -> None:
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


def test_bodies_together_take_bounded_memory(
    serving: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "MAX_BODIES", 2)

    with serving(max_body_mb=0.01) as client:
        app: Any = client.app
        large = json.dumps(TEXT).encode() + b" " * 9000
        for _ in range(3):
            assert client.post(PATH, content=large, headers=JSON).status_code == 200
        assert app.n_bytes == 0, "what was answered is let go"
        app.n_bytes = 15_000  # of requests under way
        assert "busy" in error_of(client.post(PATH, content=large, headers=JSON), 503)
        assert client.post(PATH, json=TEXT).status_code == 200
        assert app.n_bytes == 15_000


def test_huge_and_odd_texts_are_answered(client: TestClient) -> None:
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


def test_the_key_protects_all_but_the_page(serving: Serve) -> None:
    with serving(api_key="secret") as client:
        for path in ("/health", "/ready", "/", "/static/api.css", "/docs", "/openapi.json"):
            answer = client.get(path)
            assert answer.status_code == 200 and "nickel" not in answer.text
        for path in ("/models", "/models/run", "/metrics", "/nothing"):
            for header in ({}, {"authorization": "Bearer wrong"}, {"authorization": "secret"}):
                answer = client.get(path, headers=header)
                assert "Authorization: Bearer KEY" in error_of(answer, 401)
                assert answer.headers["www-authenticate"] == "Bearer"
        key = {"authorization": "Bearer secret"}
        assert client.get("/models", headers=key).status_code == 200
        assert "securitySchemes" in client.get("/openapi.json").json()["components"]
        assert "Authorization: Bearer" in client.get("/docs").text


def test_a_local_service_refuses_the_hosts_of_other_sites(serving: Serve) -> None:
    with serving(only_local=True) as client:
        for host in ("localhost", "LOCALHOST:8000", "127.0.0.1:8000", "[::1]:8000", "[::1]"):
            assert client.get("/models", headers={"host": host}).status_code == 200
        for host in ("evil.example", "localhost.evil.example:8000", "127.0.0.1.evil", "", "é"):
            for path in ("/models", "/", "/health"):
                answer = client.get(path, headers=[(b"host", host.encode())])
                assert "answers to the host localhost" in error_of(answer, 421)


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


def test_a_failure_of_the_model_is_a_503_without_a_traceback(
    serving: Serve, loaded: Served, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Served):
        def predict(self, queries: list[PredictQuery]) -> list[list[Answer]]:
            if "ours" in queries[0].text:
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


def test_requests_for_reasons_do_not_delay_predictions(serving: Serve, loaded: Served) -> None:
    class Explaining(Served):
        def explain(self, text: str, labels: list[str]) -> Any:
            time.sleep(0.1)
            return {label: [] for label in labels}

    with (
        serving(Explaining("run", loaded.classifier, "")) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        large = {"documents": [{"text": "copper"}] * 10, "reasons": True}
        slow = pool.submit(client.post, PATH, json=large)
        time.sleep(0.2)
        for _ in range(3):
            assert client.post(PATH, json=TEXT).status_code == 200
        assert not slow.done()
        assert slow.result().status_code == 200


def test_reasons_of_a_request_are_bounded(serving: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "MAX_EXPLAINED", 5)
    with serving() as client:
        body = {"documents": [{"text": "copper"}] * 2, "reasons": True, "top_k": 3}
        for document in client.post(PATH, json=body).json()["documents"]:
            has_reasons = [label["reasons"] is not None for label in document["labels"]]
            assert has_reasons == [True, True, False]
        named = {"documents": [{"text": "copper"}], "top_k": 3, "reasons_for": ["wheat", "other"]}
        (document,) = client.post(PATH, json=named).json()["documents"]
        explained = [each["label"] for each in document["labels"] if each["reasons"] is not None]
        assert explained == ["wheat"]
        error_of(client.post(PATH, json=named | {"reasons_for": ["wheat"] * 11}), 422)


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


@pytest.mark.parametrize(
    "body",
    [
        b'{"documents": [' + b"{}," * 300_000 + b"{}]}",
        b'{"documents": [], ' + b",".join(b'"%d": 1' % k for k in range(100_000)) + b"}",
    ],
)
def test_a_million_faults_take_no_memory(client: TestClient, body: bytes) -> None:
    tracemalloc.start()
    try:
        error_of(client.post(PATH, content=body, headers=JSON), 422)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000  # gigabytes for a body of 10 MB
    finally:
        tracemalloc.stop()
