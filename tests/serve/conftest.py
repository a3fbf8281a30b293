"""A small trained run, a client of its service, and a server with sockets in a thread."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("uvicorn", reason="needs the extra serve")

import uvicorn
from fastapi.testclient import TestClient

from longtail import Bag, LongTailClassifier, Training
from longtail.serve.app import create_app
from longtail.serve.protocol import TimeoutProtocol
from longtail.serve.run import open_socket
from longtail.serve.served import Answer, PredictQuery, Served
from longtail.serve.settings import Limits, Service

TEXTS = ["copper rose", "wheat fell", "copper and nickel rose", "wheat rose"] * 8
PATH = "/models/run/predict"
TEXT = {"documents": [{"text": "copper"}]}
JSON = {"content-type": "application/json"}
LABELS = [["copper"], ["wheat"], ["copper", "nickel"], ["wheat"]] * 8


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a trained model."""
    folder = tmp_path_factory.mktemp("serve") / "run"
    classifier = LongTailClassifier(Bag(C=9.0), folds=2, training=Training(device="cpu"))
    classifier.fit(TEXTS, LABELS).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def loaded(run: Path) -> Served:
    return Served.load("run", Service({"run": run}, device="cpu"))


@pytest.fixture
def service(run: Path, tmp_path: Path) -> Service:
    """Settings with corrections in a temporary folder."""
    return Service({"run": run}, corrections=tmp_path / "corrections.jsonl")


Serve = Callable[..., Any]


@pytest.fixture
def client(service: Service, loaded: Served) -> Iterator[TestClient]:
    with TestClient(create_app(service, {"run": loaded})) as client:
        yield client


@pytest.fixture
def serving(service: Service, loaded: Served) -> Serve:
    """Makes clients of services with other settings."""

    def start(served: Served = loaded, **settings: Any) -> TestClient:
        names = Limits.__dataclass_fields__
        limits = Limits(**{name: settings.pop(name) for name in set(settings) & set(names)})
        other = replace(service, limits=limits, **settings)
        return TestClient(create_app(other, {"run": served}))

    return start


class Slow(Served):
    """Answers once `go` is set."""

    def __init__(self, loaded: Served) -> None:
        super().__init__(loaded.name, loaded.classifier, "")
        self.go, self.n_texts = threading.Event(), 0

    def predict(self, queries: list[PredictQuery]) -> list[list[Answer]]:
        self.n_texts += len(queries)
        assert self.go.wait(20)
        return super().predict(queries)


@contextmanager
def real_server(app: Any) -> Iterator[tuple[uvicorn.Server, int]]:
    """A server in a thread, and its port."""
    listener = open_socket("127.0.0.1", 0)
    settings: dict[str, Any] = dict(ws="none", lifespan="on", access_log=False, log_config=None)
    config = uvicorn.Config(app, http=TimeoutProtocol, timeout_graceful_shutdown=20, **settings)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield server, listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def raw(port: int, *parts: bytes, pause: float = 0.0) -> bytes:
    """The bytes that a server sends in answer to some bytes, until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        for part in parts:
            connection.sendall(part)
            time.sleep(pause)
        answer = b""
        while part := connection.recv(65536):
            answer += part
        return answer
