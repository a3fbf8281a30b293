"""A small HTTP service around a trained classifier; needs the extra `serve`.

GET /health, POST /predict with {"texts": [...]}.
"""

from __future__ import annotations

from typing import Any

from longtail import __version__
from longtail.classifier import LongTailClassifier
from longtail.errors import LongtailError, MissingExtraError


def create_app(classifier: LongTailClassifier) -> Any:
    """A FastAPI application that predicts with this classifier."""
    try:
        from fastapi import Body, FastAPI
        from fastapi.responses import JSONResponse
    except ImportError as error:
        raise MissingExtraError("the service", "fastapi", "serve") from error

    app = FastAPI(title="longtail", version=__version__)

    @app.exception_handler(LongtailError)
    def show_error(_request: Any, error: LongtailError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, status_code=422)

    @app.get("/health")
    def health() -> dict[str, Any]:
        return {"status": "ok", "labels": len(classifier.classes_), "version": __version__}

    @app.post("/predict")
    def predict(texts: list[str] = Body(embed=True)) -> dict[str, Any]:  # noqa: B008
        return {"labels": classifier.predict_labels(texts)}

    return app
