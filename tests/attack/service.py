"""Requests to the service: cases of its OpenAPI document, right and wrong, odd texts, raw bytes.

A case is right if it is answered as the document says, with an error of ours where it is wrong, and
never with a 5xx but 503.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import hypothesis.strategies as st
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from longtail import Bag, LongTailClassifier, Training
from longtail.errors import LIMIT
from longtail.serve.app import create_app
from longtail.serve.guard import LOG
from longtail.serve.settings import Limits, Service

from . import OUR_ERROR, RIGHT, Outcome
from .models import LABELS, TEXTS

MINIMUM = 10_000
ROUND = 20  # consecutive cases of one kind
NAME = "run"
REFUSALS = (404, 405, 408, 413, 422, 503)
PATHS = ("predict", "corrections")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(("documents", "text", "id", "top_k", "reasons", "labels", "odd")), inner
        )
    ),
    max_leaves=12,
)
TEXT = st.text(max_size=300) | st.text(st.characters(categories=("Cc", "Cf", "Mn", "So")))


def verdict_on(answer: Any, path: str) -> str:
    """Return RIGHT, OUR_ERROR, or what is wrong with an answer."""
    status = answer.status_code
    if "content-security-policy" not in answer.headers:
        return "an answer without the security headers"
    if status in (200, 201):
        if answer.headers["content-type"] == "application/json":
            answer.json()
        return RIGHT
    if status == 503 and path == "/ready":
        return RIGHT
    if status not in REFUSALS:
        return f"status {status}"
    body = answer.json()
    is_ours = set(body) == {"error"} and 20 < len(body["error"]) <= LIMIT
    return OUR_ERROR if is_ours else f"a refusal without a sentence: {answer.text[:100]}"


def attack(number: int, scratch: Path) -> Iterator[Outcome]:
    """Yield rounds of every kind, endlessly."""
    folder = scratch / NAME
    classifier = LongTailClassifier(Bag(C=9.0), folds=2, training=Training(device="cpu"))
    classifier.fit(TEXTS, LABELS).save_pretrained(folder)
    limits = Limits(max_documents=4, max_text_length=200, queue=8, max_body_mb=0.01)
    service = Service({NAME: folder}, limits, corrections=scratch / "corrections.jsonl")
    logging.getLogger(LOG).setLevel(logging.CRITICAL)
    with TestClient(create_app(service), raise_server_exceptions=False) as client:
        api = client.get("/openapi.json").json()
        kinds = [*_by_schema(client, api), *_by_hand(client)]
        while True:
            for kind, strategy, send in kinds:
                number += 1
                yield from _round(kind, strategy, send, number)


def _round(kind: str, strategy: Any, send: Any, number: int) -> list[Outcome]:
    outcomes: list[Outcome] = []

    @seed(number)
    @settings(
        max_examples=ROUND,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=False,
    )
    @given(strategy)
    def one(case: Any) -> None:
        verdict = send(case)
        detail = "" if verdict in (RIGHT, OUR_ERROR) else f"round {number}: {case!r}"[:300]
        outcomes.append(Outcome(kind, verdict, detail))

    # An operation without parameters has no negative cases.
    with suppress(Unsatisfiable):
        one()
    return outcomes


def _by_schema(client: TestClient, api: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    schema = schemathesis.openapi.from_dict(api)
    for result in schema.get_all_operations():
        operation = result.ok()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            strategy = operation.as_strategy(generation_mode=mode)
            yield f"{operation.label}, {mode.value}", strategy, partial(_send_case, client)


def _send_case(client: TestClient, case: Any) -> str:
    # Half of the cases use the existing model.
    if "name" in (case.path_parameters or {}) and len(str(case.path_parameters["name"])) % 2:
        case.path_parameters["name"] = NAME
    sent = case.as_transport_kwargs(base_url="http://testserver")
    names = ("method", "url", "headers", "params", "json")
    kept = {name: sent[name] for name in names if sent.get(name) is not None}
    if sent.get("data") is not None:
        kept["content"] = sent["data"]
    kept["headers"] = {k: v for k, v in kept.get("headers", {}).items() if v is not None}
    try:
        answer = client.request(**kept)
    except (UnicodeError, ValueError) as error:  # raised by the client: nothing was sent
        return RIGHT if "encode" in str(error) or "JSON" in str(error) else f"raw {error!r}"
    return verdict_on(answer, case.path)


def _by_hand(client: TestClient) -> Iterator[tuple[str, Any, Any]]:
    document = st.fixed_dictionaries({"text": TEXT}, optional={"id": st.none() | TEXT})
    predict = st.fixed_dictionaries(
        {"documents": st.lists(document, min_size=1, max_size=4)},
        optional={"top_k": st.integers(1, 200) | st.none()},
    )
    correct = st.fixed_dictionaries({"text": TEXT, "labels": st.lists(TEXT, max_size=3)})
    yield "odd texts to predict", predict, partial(_post, client, "predict")
    yield "odd corrections", correct, partial(_post, client, "corrections")
    for path in PATHS:
        yield f"any JSON to {path}", JSON, partial(_post, client, path)
        yield f"any bytes to {path}", st.binary(max_size=200), partial(_post_raw, client, path)
    damaged = st.tuples(st.integers(0, 60), st.binary(min_size=1, max_size=3))
    yield "a damaged body", damaged, partial(_post_damaged, client)
    yield "any search", TEXT, partial(_search, client)
    yield "any path", TEXT, partial(_get, client)


def _post(client: TestClient, path: str, body: Any) -> str:
    return _post_raw(client, path, json.dumps(body).encode())


def _post_raw(client: TestClient, path: str, body: bytes) -> str:
    headers = {"content-type": "application/json"}
    return verdict_on(client.post(f"/models/{NAME}/{path}", content=body, headers=headers), path)


def _post_damaged(client: TestClient, damage: tuple[int, bytes]) -> str:
    at, put = damage
    whole = b'{"documents": [{"text": "copper", "id": "a"}], "top_k": 2}'
    return _post_raw(client, "predict", whole[:at] + put + whole[at + 1 :])


def _search(client: TestClient, text: str) -> str:
    return _get(client, f"models/{NAME}/labels", {"search": text})


def _get(client: TestClient, path: str, query: Any = None) -> str:
    safe = quote(path.encode("utf-8", "replace"))
    return verdict_on(client.get(f"/{safe}", params=query), f"/{path}")
