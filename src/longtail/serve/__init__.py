"""The HTTP service: several models, batched requests, corrections; needs the extra `serve`."""

from __future__ import annotations

from importlib.util import find_spec

from longtail.errors import MissingExtraError

# Read by prometheus_client: the folder in which worker processes share their metrics.
SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
# Import name -> package name.
PACKAGES = {
    "fastapi": "fastapi",
    "uvicorn": "uvicorn",
    "prometheus_client": "prometheus-client",
    "markdown_it": "markdown-it-py",
}


def check_extra() -> None:
    """Raise if a package of the extra is missing, before any model is loaded."""
    for module, package in PACKAGES.items():
        if find_spec(module) is None:
            raise MissingExtraError("the service", package, "serve")
