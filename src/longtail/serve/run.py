"""Start the service: one process, or workers that share a socket and are restarted if they die."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

from longtail.errors import InputError
from longtail.serve import SHARED_FOLDER
from longtail.serve.settings import Service

STOP_SECONDS = 5  # beyond the timeout of requests, before a stop gives up on them
IDLE_SECONDS = 30  # before an idle connection is closed


def open_socket(host: str, port: int) -> socket.socket:
    """A listening socket; raises if the port cannot be used."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, UnicodeError) as error:
        reason = str(getattr(error, "strerror", None) or error).partition(" (")[0]
        message = f"port {port} of {host} cannot be used ({reason})."
        raise InputError(f"{message} Choose another with --port or --host.") from error


def serve(
    service: Service, listener: socket.socket, workers: int, started: Callable[[], None]
) -> None:
    """Serve until a signal comes; call `started` once all models are loaded."""
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    from longtail.serve.observe import LOG_CONFIG
    from longtail.serve.protocol import TimeoutProtocol
    from longtail.serve.served import Served

    settings: dict[str, Any] = {
        "factory": True,
        "http": TimeoutProtocol,
        "ws": "none",
        "lifespan": "on",
        "workers": workers,
        "access_log": False,
        "log_config": LOG_CONFIG,
        "server_header": False,
        "timeout_keep_alive": IDLE_SECONDS,
        "timeout_graceful_shutdown": int(service.limits.timeout) + STOP_SECONDS,
    }
    with listener, nullcontext() if workers == 1 else _shared_metrics():
        # With several workers too: a damaged model is an error here, before any of them starts.
        served = {name: Served.load(name, service) for name in service.runs}
        started()
        if workers == 1:
            make = partial(_app, service, served)
            uvicorn.Server(uvicorn.Config(make, **settings)).run(sockets=[listener])
        else:
            del served
            Multiprocess(uvicorn.Config(partial(_app, service), **settings), [listener]).run()


def _app(service: Service, served: Any = None) -> Any:
    from longtail.serve.app import create_app

    return create_app(service, served)


@contextmanager
def _shared_metrics() -> Iterator[None]:
    """A temporary folder in which workers share their metrics."""
    with tempfile.TemporaryDirectory(prefix="longtail-metrics-") as folder:
        os.environ[SHARED_FOLDER] = folder
        try:
            yield
        finally:
            del os.environ[SHARED_FOLDER]
