"""Errors as JSON: `{"error": "what was expected, what came, what to do"}`."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from longtail.errors import DataError, LongtailError, MissingExtraError, shown
from longtail.serve import schemas
from longtail.serve.batching import BusyError
from longtail.serve.corrections import NotStoredError
from longtail.serve.guard import CRASHED, error_response

ERRORS: dict[int, dict[str, Any]] = {
    404: {"model": schemas.Error, "description": "No such model."},
    408: {"model": schemas.Error, "description": "The body came too slowly."},
    413: {"model": schemas.Error, "description": "More than the service takes at once."},
    422: {"model": schemas.Error, "description": "The request is not valid."},
    503: {"model": schemas.Error, "description": "Busy: try again after Retry-After seconds."},
}
KEY: dict[int | str, dict[str, Any]] = {401: {"model": schemas.Error, "description": "No key."}}
FAULTS = {"missing": "is missing", "extra_forbidden": "is not a known field"}


class UnknownModelError(LongtailError):
    """No model has the name in the URL."""


class TooLargeError(LongtailError):
    """A request has too many documents or characters."""


def add_refusals(app: FastAPI) -> None:
    """Answer every exception with a JSON error."""

    @app.exception_handler(LongtailError)
    async def longtail_error(_: Request, error: LongtailError) -> JSONResponse:
        statuses = {UnknownModelError: 404, TooLargeError: 413}
        unavailable = (BusyError, NotStoredError, DataError, MissingExtraError)
        status = 503 if isinstance(error, unavailable) else statuses.get(type(error), 422)
        return error_response(status, str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid_request(_: Request, error: RequestValidationError) -> JSONResponse:
        return error_response(422, _describe(error.errors()))

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == 400:
            return error_response(422, "expected a JSON body, got something that cannot be parsed.")
        problems = {404: "does not exist", 405: f"does not take {request.method}"}
        problem = problems.get(error.status_code, f"failed: {error.detail}")
        message = f"{request.url.path} {problem}. GET /docs lists all routes."
        return error_response(error.status_code, message, error.headers)

    @app.exception_handler(Exception)
    async def crash(_: Request, __: Exception) -> JSONResponse:
        return error_response(503, CRASHED)


def _describe(errors: Any) -> str:
    """The first faults of a body or a query, with their locations."""
    faults = []
    for error in errors[:3]:
        location = ".".join(map(str, error["loc"]))
        reason = f"{error['msg'].removeprefix('Value error, ')}, got {shown(error['input'], 60)}"
        fault = FAULTS.get(error["type"], f"is wrong: {reason}")
        if error["type"] == "json_invalid":
            location, fault = "the body", f"is not JSON: {error['ctx']['error']}"
        faults.append(f"{location} {fault}")
    more = f", and {len(errors) - 3} more faults" if len(errors) > 3 else ""
    return f"{'; '.join(faults)}{more}. GET /docs shows what is expected."
