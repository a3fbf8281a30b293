"""The routes of the service: see docs/serving.md."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer

from longtail import __version__
from longtail.serve import schemas
from longtail.serve.batching import BusyError
from longtail.serve.corrections import store
from longtail.serve.guard import App, Guard
from longtail.serve.observe import Metrics
from longtail.serve.pages import add_pages
from longtail.serve.queues import Queues
from longtail.serve.refusals import (
    ERRORS,
    KEY,
    TooLargeError,
    UnknownModelError,
    add_refusals,
)
from longtail.serve.served import Served
from longtail.serve.settings import Service


def create_app(service: Service, served: dict[str, Served] | None = None) -> App:
    """The ASGI application; loads the models unless `served` has them."""
    served = served or {name: Served.load(name, service) for name in service.runs}
    state = State(service, served, Metrics())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await state.stop()

    app = FastAPI(
        title="longtail",
        version=__version__,
        description="Predict the labels of texts, with reasons, and collect corrections.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    add_refusals(app)
    _add_state_routes(app, state)
    _add_model_routes(app, state)
    add_pages(app)
    return Guard(app, service, state.metrics)


class State:
    """The models of a running application, each with its queues."""

    def __init__(self, service: Service, served: dict[str, Served], metrics: Metrics) -> None:
        self.service, self.served, self.metrics = service, served, metrics
        self.status = "ready"
        self.queues = {
            name: Queues(model, service.limits, metrics) for name, model in served.items()
        }
        # A thread of its own, so that a slow disk does not delay predictions.
        self.disk = ThreadPoolExecutor(1, "corrections")

    async def stop(self) -> None:
        """Finish the requests that were accepted."""
        self.status = "stopping"
        for queues in self.queues.values():
            await queues.close()
        self.disk.shutdown()

    def model(self, name: str) -> Served:
        if name not in self.served:
            known = ", ".join(self.served) or "none"
            raise UnknownModelError(f"expected one of the models {known}, got {name!r}.")
        return self.served[name]


def _add_state_routes(app: FastAPI, state: State) -> None:
    @app.head("/health", include_in_schema=False)
    @app.get("/health", response_model=schemas.Health, tags=["state"])
    async def health() -> Any:
        """Whether the process answers."""
        return JSONResponse({"status": "ok", "version": __version__})

    not_ready: dict[int | str, Any] = {503: {"model": schemas.Ready, "description": "Not ready."}}

    @app.head("/ready", include_in_schema=False)
    @app.get("/ready", response_model=schemas.Ready, responses=not_ready, tags=["state"])
    async def ready() -> Any:
        """Whether the models accept requests."""
        is_ready = state.status == "ready"
        body = {"status": state.status, "models": list(state.served) if is_ready else []}
        return JSONResponse(body, 200 if is_ready else 503)

    @app.get("/metrics", response_class=Response, tags=["state"])
    async def metrics() -> Response:
        """Counts and times, in Prometheus' format."""
        return Response(state.metrics.text(), media_type="text/plain; version=0.0.4")


def _add_model_routes(app: FastAPI, state: State) -> None:
    service, limits = state.service, state.service.limits
    has_key = service.api_key is not None

    def options(*statuses: int) -> dict[str, Any]:
        return {
            "dependencies": [Depends(HTTPBearer(auto_error=False))] if has_key else [],
            "responses": {status: ERRORS[status] for status in statuses} | (KEY if has_key else {}),
            "response_description": "The answer.",
            "tags": ["models"],
        }

    @app.get("/models", response_model=schemas.Models, **options())
    async def models() -> Any:
        """The models that are served."""
        return JSONResponse({"models": [served.summary for served in state.served.values()]})

    @app.get("/models/{name}", response_model=schemas.ModelDetails, **options(404, 422))
    async def model(name: str) -> Any:
        """A model: its card, its held-out scores, and the limits of requests."""
        names = schemas.RequestLimits.model_fields
        of_requests = {field: getattr(limits, field) for field in names}
        extra = {"examples": list(service.examples), "limits": of_requests}
        return JSONResponse(state.model(name).details | extra)

    @app.get("/models/{name}/labels", response_model=schemas.Labels, **options(404, 422))
    async def labels(name: str, query: Annotated[schemas.LabelSearch, Query()]) -> Any:
        """Labels, with precision and recall on held-out documents."""
        total, rows = state.model(name).find_labels(query.search, query.offset, query.limit)
        return JSONResponse({"total": total, "offset": query.offset, "labels": rows})

    @app.post("/models/{name}/predict", response_model=schemas.PredictAnswer, **options(*ERRORS))
    async def predict(name: str, body: schemas.PredictRequest, request: Request) -> Any:
        """The labels of texts, best first."""
        model = state.model(name)
        documents = body.documents
        request.scope["longtail"] = {"model": name, "documents": len(documents)}
        if len(documents) > limits.max_documents:
            raise TooLargeError(
                f"expected at most {limits.max_documents} documents, got {len(documents)}. "
                "Send them in several requests."
            )
        for document in documents:
            _check_length(document.text, limits.max_text_length)
        texts = [document.text for document in documents]
        answers = await _in_time(
            state.queues[name].predict(texts, body.top_k, body.reasons, body.reasons_for),
            limits.timeout,
        )
        state.metrics.documents.labels(name).inc(len(documents))
        pairs = zip(documents, answers, strict=True)
        rows = [{"id": document.id, "labels": answer} for document, answer in pairs]
        return JSONResponse({"model": model.name, "documents": rows})

    @app.post(
        "/models/{name}/corrections",
        response_model=schemas.Stored,
        status_code=201,
        **options(*ERRORS),
    )
    async def correct(name: str, correction: schemas.Correction, request: Request) -> Any:
        """Store the correct labels of a text, as training data."""
        model = state.model(name)
        request.scope["longtail"] = {"model": name}
        _check_length(correction.text, limits.max_text_length)
        path, loop = service.corrections_of(name), asyncio.get_running_loop()
        storing = loop.run_in_executor(
            state.disk, store, path, name, correction.model_dump(mode="json")
        )
        correction_id = await _in_time(storing, limits.timeout)
        state.metrics.corrections.labels(name).inc()
        new = [label for label in dict.fromkeys(correction.labels) if label not in model.known]
        return JSONResponse({"stored": True, "id": correction_id, "new_labels": new}, 201)


def _check_length(text: str, limit: int) -> None:
    if len(text) > limit:
        raise TooLargeError(
            f"expected texts of at most {limit:,} characters, got one of {len(text):,}. Shorten "
            "it, or split it into several documents."
        )


async def _in_time(work: Any, seconds: float) -> Any:
    """Await `work`; cancel it and raise BusyError after `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        message = f"no answer within {seconds:g} seconds: the service is busy. Try again later."
        raise BusyError(message) from None
