"""The web page, its static files, and the API documentation, all without external resources."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import PurePath
from typing import Any

from fastapi import FastAPI, Response
from starlette.exceptions import HTTPException

from longtail.report.jinja import render_html, text_file

MIME_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
REVALIDATE = {"Cache-Control": "no-cache"}  # after an upgrade browsers must not show the old page


def add_pages(app: FastAPI) -> None:
    """GET /, /static/{file} and /docs."""

    def static_file(name: str) -> Response:
        mime_type = MIME_TYPES[PurePath(name).suffix]
        return Response(_files()[name], media_type=mime_type, headers=REVALIDATE)

    @app.head("/", include_in_schema=False)
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return static_file("index.html")

    @app.get("/static/{file}", include_in_schema=False)
    async def static(file: str) -> Response:
        if file not in _files():
            raise HTTPException(404)
        return static_file(file)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        api = app.openapi()
        schemas = api["components"]["schemas"]
        objects = {name: fields(schema) for name, schema in schemas.items()}
        html = render_html("api.html.j2", api=api, operations=operations(api), objects=objects)
        return Response(html, media_type=MIME_TYPES[".html"])


@cache
def _files() -> dict[str, bytes]:
    """The static files by name; no other file is served."""
    folder = resources.files("longtail.serve").joinpath("page")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    files["api.css"] = text_file("api.css").encode()
    return {name: content for name, content in files.items() if PurePath(name).suffix in MIME_TYPES}


def operations(api: dict[str, Any]) -> list[dict[str, Any]]:
    """The operations of an OpenAPI document, for the template."""
    return [
        {
            "method": method.upper(),
            "path": path,
            "what": operation.get("description", ""),
            "parameters": [
                {**parameter, "type": _type(parameter["schema"])}
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
    """The fields of an object, for the template."""
    required = schema.get("required", ())
    return [
        {
            "name": name,
            "type": _type(field),
            "what": field.get("description", ""),
            "required": name in required,
            "example": field.get("examples", [None])[0],
        }
        for name, field in schema.get("properties", {}).items()
    ]


def _type(schema: dict[str, Any]) -> str:
    """A type in words, such as `list of Document`."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f'"{value}"' for value in schema["enum"])
    if "const" in schema:
        return f'"{schema["const"]}"'
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    if schema.get("type") == "object" and "additionalProperties" in schema:
        return f"object of {_type(schema['additionalProperties'])}"
    limits = [f"at least {schema[k]}" for k in ("minimum", "minLength") if k in schema]
    limits += [f"at most {schema[k]}" for k in ("maximum", "maxLength") if k in schema]
    name = str(schema.get("type", "any"))
    return f"{name} ({', '.join(limits)})" if limits else name


def _schema_name(part: dict[str, Any]) -> str:
    schemas = [content["schema"] for content in part.get("content", {}).values()]
    return _type(schemas[0]) if schemas and schemas[0] else ""
