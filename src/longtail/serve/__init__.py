"""The HTTP service: several models, batched requests, corrections; needs the extra `serve`."""

from __future__ import annotations

from importlib.util import find_spec

from longtail.errors import MissingExtraError

# The metrics library reads it: where worker processes add up their numbers.
SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
# Names of imports, and of what pip installs.
NEEDED = {
    "fastapi": "fastapi",
    "uvicorn": "uvicorn",
    "prometheus_client": "prometheus-client",
    "markdown_it": "markdown-it-py",
}


def check_extra() -> None:
    """Raise if a package of the extra is missing, before anything is loaded."""
    for module, package in NEEDED.items():
        if find_spec(module) is None:
            raise MissingExtraError("the service", package, "serve")
