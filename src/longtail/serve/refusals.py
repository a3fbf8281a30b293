"""Every refusal as one sentence: `{"error": "what was expected, what came, what to do"}`."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from longtail.errors import (
    DataError,
    InputError,
    LongtailError,
    MissingExtraError,
    printable,
    shown,
)
from longtail.serve import schemas
from longtail.serve.batching import BusyError
from longtail.serve.corrections import NotStoredError
from longtail.serve.guard import CRASHED, RETRY_SECONDS

ERRORS: dict[int, dict[str, Any]] = {
    404: {"model": schemas.Error, "description": "No such model."},
    408: {"model": schemas.Error, "description": "The body came too slowly."},
    413: {"model": schemas.Error, "description": "More than the service takes at once."},
    422: {"model": schemas.Error, "description": "Not what was expected."},
    503: {"model": schemas.Error, "description": "Busy: try again after Retry-After seconds."},
}
KEY: dict[int | str, dict[str, Any]] = {401: {"model": schemas.Error, "description": "No key."}}
WRONG = {"missing": "is missing", "extra_forbidden": "is not a field that is known here"}


class UnknownModelError(LongtailError):
    """A name in the address that no model has."""


class TooLargeError(LongtailError):
    """More documents or characters than a request may have."""


def add_refusals(app: FastAPI) -> None:
    """Every error as one sentence."""

    def answer(status: int, message: str, headers: Any = None) -> JSONResponse:
        more = {"Retry-After": str(RETRY_SECONDS)} if status == 503 else {}
        return JSONResponse({"error": printable(message)}, status, {**(headers or {}), **more})

    @app.exception_handler(LongtailError)
    async def ours(_: Request, error: LongtailError) -> JSONResponse:
        statuses = {UnknownModelError: 404, TooLargeError: 413, InputError: 422}
        unavailable = (BusyError, NotStoredError, DataError, MissingExtraError)
        status = 503 if isinstance(error, unavailable) else statuses.get(type(error), 422)
        return answer(status, str(error))

    @app.exception_handler(RequestValidationError)
    async def not_valid(_: Request, error: RequestValidationError) -> JSONResponse:
        return answer(422, _explain(error.errors()))

    @app.exception_handler(HTTPException)
    async def of_starlette(request: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == 400:
            return answer(422, "expected a body in JSON, got something that cannot be parsed.")
        what = {404: "is not known here", 405: f"does not take {request.method}"}
        why = what.get(error.status_code, f"failed: {error.detail}")
        message = f"{request.url.path} {why}. GET /docs lists what there is."
        return answer(error.status_code, message, error.headers)

    @app.exception_handler(Exception)
    async def crash(_: Request, __: Exception) -> JSONResponse:
        return answer(503, CRASHED)


def _explain(errors: Any) -> str:
    """What is wrong with a body or a query: the first faults, with their places."""
    faults = []
    for error in errors[:3]:
        place = ".".join(map(str, error["loc"]))
        got = f"{error['msg'].removeprefix('Value error, ')}, got {shown(error['input'], 60)}"
        why = WRONG.get(error["type"], f"is wrong: {got}")
        if error["type"] == "json_invalid":
            place, why = "the body", f"is not JSON: {error['ctx']['error']}"
        faults.append(f"{place} {why}")
    more = f", and {len(errors) - 3} more faults" if len(errors) > 3 else ""
    return f"{'; '.join(faults)}{more}. GET /docs shows what is expected."
