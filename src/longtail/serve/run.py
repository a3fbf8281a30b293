"""Start the service: one process, or workers that share a socket and are restarted if they die."""

from __future__ import annotations

import logging
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

from longtail.errors import InputError
from longtail.serve import SHARED_FOLDER
from longtail.serve.settings import Service

STOP_SECONDS = 5  # beyond the timeout of requests, before a stop gives up on them
IDLE_SECONDS = 30  # before an idle connection is closed
RETRY_SECONDS = 5  # before a worker that could not load its models is started again
WAITING_CONNECTIONS = 1024  # that no worker has accepted yet


def open_socket(host: str, port: int) -> socket.socket:
    """A socket that does not listen yet; raises if the port cannot be used."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with ExitStack() as stack:
            listener = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            if os.name != "nt":  # there it would share the port with other services
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # Accepted connections inherit it; without it each response takes 40 ms longer.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            listener.bind((host, port))
            stack.pop_all()
            return listener
    except (OSError, UnicodeError) as error:
        reason = str(getattr(error, "strerror", None) or error).partition(" (")[0]
        message = f"port {port} of {host} cannot be used ({reason})."
        raise InputError(f"{message} Choose another with --port or --host.") from error


def serve(
    service: Service, listener: socket.socket, workers: int, started: Callable[[], None]
) -> None:
    """Serve until a signal comes; listen, and call `started`, once all models are loaded."""
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
        # asyncio accepts this many at once: more would leave none for the other workers.
        "backlog": 1,
        "callback_notify": partial(_lengthen_queue, listener),
    }
    with listener, nullcontext() if workers == 1 else _shared_metrics():
        # With several workers too: a damaged model is an error here, before any of them starts.
        served = {name: Served.load(name, service) for name in service.runs}
        listener.listen(WAITING_CONNECTIONS)
        started()
        if workers == 1:
            make = partial(_app, service, served)
            uvicorn.Server(uvicorn.Config(make, **settings)).run(sockets=[listener])
        else:
            del served
            Multiprocess(uvicorn.Config(partial(_app, service), **settings), [listener]).run()


async def _lengthen_queue(listener: socket.socket) -> None:
    """Let connections wait, which asyncio has limited to those that it accepts at once."""
    listener.listen(WAITING_CONNECTIONS)


def _app(service: Service, served: Any = None) -> Any:
    """The application; a worker that cannot load the models ends after a pause, to be replaced."""
    from longtail.serve.app import create_app
    from longtail.serve.observe import LOG

    try:
        return create_app(service, served)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        logging.getLogger(LOG).error(
            "a worker cannot load its models and starts again in %d s (%s)", RETRY_SECONDS, reason
        )
        time.sleep(RETRY_SECONDS)
        raise SystemExit(1) from None


@contextmanager
def _shared_metrics() -> Iterator[None]:
    """A temporary folder in which workers share their metrics."""
    with tempfile.TemporaryDirectory(prefix="longtail-metrics-") as folder:
        os.environ[SHARED_FOLDER] = folder
        try:
            yield
        finally:
            del os.environ[SHARED_FOLDER]
