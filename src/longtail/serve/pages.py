"""The page for people, its files, and the page of the API: nothing comes from elsewhere."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import PurePath
from typing import Any

from fastapi import FastAPI, Response
from starlette.exceptions import HTTPException

from longtail.report.jinja import render_html, text_file

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Browsers ask again whether it changed.
FRESH = {"Cache-Control": "no-cache"}


def add_pages(app: FastAPI) -> None:
    """GET /, /static/{file} and /docs."""

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return Response(_files()["index.html"], media_type=KINDS[".html"], headers=FRESH)

    @app.get("/static/{file}", include_in_schema=False)
    async def static(file: str) -> Response:
        if file not in _files():
            raise HTTPException(404)
        kind = KINDS[PurePath(file).suffix]
        return Response(_files()[file], media_type=kind, headers=FRESH)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        api = app.openapi()
        schemas = api["components"]["schemas"]
        objects = {name: fields(schema) for name, schema in schemas.items()}
        html = render_html("api.html.j2", api=api, operations=operations(api), objects=objects)
        return Response(html, media_type=KINDS[".html"])


@cache
def _files() -> dict[str, bytes]:
    """The files of the page and of the docs, by name: nothing else is served."""
    folder = resources.files("longtail.serve").joinpath("page")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    files["api.css"] = text_file("api.css").encode()
    return {name: content for name, content in files.items() if PurePath(name).suffix in KINDS}


def operations(api: dict[str, Any]) -> list[dict[str, Any]]:
    """Every operation of an OpenAPI document, as the template shows it."""
    return [
        {
            "method": method.upper(),
            "path": path,
            "what": operation.get("description", ""),
            "parameters": [
                {**parameter, "type": _kind(parameter["schema"])}
                for parameter in operation.get("parameters", ())
            ],
            "body": _schema_name(operation.get("requestBody", {})),
            "answers": [
                (status, answer["description"], _schema_name(answer))
                for status, answer in operation["responses"].items()
            ],
        }
        for path, methods in api["paths"].items()
        for method, operation in methods.items()
    ]


def fields(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The fields of an object, as the template shows them."""
    required = schema.get("required", ())
    return [
        {
            "name": name,
            "type": _kind(field),
            "what": field.get("description", ""),
            "required": name in required,
            "example": field.get("examples", [None])[0],
        }
        for name, field in schema.get("properties", {}).items()
    ]


def _kind(schema: dict[str, Any]) -> str:
    """A type in words, such as `list of Document`."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f'"{one}"' for one in schema["enum"])
    if "const" in schema:
        return f'"{schema["const"]}"'
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}"
    if schema.get("type") == "object" and "additionalProperties" in schema:
        return f"object of {_kind(schema['additionalProperties'])}"
    limits = [f"at least {schema[k]}" for k in ("minimum", "minLength") if k in schema]
    limits += [f"at most {schema[k]}" for k in ("maximum", "maxLength") if k in schema]
    kind = str(schema.get("type", "any"))
    return f"{kind} ({', '.join(limits)})" if limits else kind


def _schema_name(part: dict[str, Any]) -> str:
    schemas = [content["schema"] for content in part.get("content", {}).values()]
    return _kind(schemas[0]) if schemas and schemas[0] else ""
