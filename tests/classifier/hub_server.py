"""A local hub with the few endpoints that uploading and downloading a model need."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_right"
OWNER = "somebody"


@dataclass
class Repository:
    private: bool = False
    branches: dict[str, dict[str, bytes]] = field(default_factory=lambda: {"main": {}})
    messages: list[str] = field(default_factory=list)


def commit_of(files: dict[str, bytes]) -> str:
    """The hash of a state, as long as git's."""
    return hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()


class Hub(ThreadingHTTPServer):
    """Repositories by name, and the requests so far."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, Repository] = {}
        self.requests: list[str] = []
        self.failing: int | None = None
        """The status of all responses, with this message."""
        self.message = "not today"

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


Answer = tuple[int, Any, dict[str, str]]
"""Status, content as bytes or for JSON, headers."""


def not_here(code: str) -> Answer:
    return 404, {"error": code}, {"X-Error-Code": code}


class Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        self.server.requests.append(f"{self.command} {self.path}")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = [unquote(part) for part in urlsplit(self.path).path.split("/")[1:]]
        status, content, headers = self.answer(parts, body)
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(content))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_GET(self) -> None:
        self.do_POST()

    def do_HEAD(self) -> None:
        self.do_POST()

    def answer(self, parts: list[str], body: bytes) -> Answer:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.server.failing is not None:
            return self.server.failing, {"error": self.server.message}, {}
        if (self.command == "POST" or token) and token != TOKEN:
            return 401, {"error": "Invalid username or password."}, {}
        if parts == ["api", "repos", "create"]:
            return self.create(json.loads(body))
        if parts == ["api", "validate-yaml"]:
            return 200, {"errors": [], "warnings": []}, {}
        if parts[0] != "api":
            owner, name, verb, revision, *path = parts
        else:
            owner, name, verb, revision = (*parts[2:4], *(*parts[4:6], "revision", "main"))[:4]
            path = []
        repository = self.server.repositories.get(f"{owner}/{name}")
        if repository is None or (repository.private and not token):
            return not_here("RepoNotFound")
        if verb == "branch":
            known = revision in repository.branches
            repository.branches.setdefault(revision, dict(repository.branches["main"]))
            return 409 if known else 200, {"error": "Reference exists"} if known else {}, {}
        for branch, files in repository.branches.items():
            if revision in (branch, commit_of(files)):
                place = f"{self.server.address}/{owner}/{name}"
                return answer_of_files(files, verb, "/".join(path), body, repository, place)
        return not_here("RevisionNotFound")

    def create(self, request: dict[str, Any]) -> Answer:
        name = f"{request['organization'] or OWNER}/{request['name']}"
        if not name.startswith(f"{OWNER}/"):
            return 403, {"error": f"You don't have the rights to create {name}"}, {}
        known = name in self.server.repositories
        is_private = request.get("visibility") == "private" or bool(request.get("private"))
        self.server.repositories.setdefault(name, Repository(is_private))
        return 409 if known else 200, {"url": f"{self.server.address}/{name}"}, {}


def answer_of_files(
    files: dict[str, bytes], verb: str, path: str, body: bytes, repository: Repository, place: str
) -> Answer:
    """The response to a request for a branch: its files, one file, or a commit."""
    if verb == "preupload":
        mode = {"uploadMode": "regular", "shouldIgnore": False}
        return 200, {"files": [{"path": f["path"], **mode} for f in json.loads(body)["files"]]}, {}
    if verb == "commit":
        for line in body.splitlines():
            key, value = json.loads(line)["key"], json.loads(line)["value"]
            if key == "header":
                repository.messages.append(value["summary"])
            elif key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "deletedFile":
                del files[value["path"]]
        oid = commit_of(files)
        return 200, {"commitUrl": f"{place}/commit/{oid}", "commitOid": oid}, {}
    if verb == "tree":
        oids = {name: commit_of({name: content}) for name, content in files.items()}
        row = {"type": "file"}
        return 200, [row | {"path": p, "size": len(files[p]), "oid": oids[p]} for p in files], {}
    if verb == "revision":
        name = "/".join(place.split("/")[-2:])
        info = {"id": name, "modelId": name, "sha": commit_of(files), "tags": [], "private": False}
        return 200, info | {"siblings": [{"rfilename": path} for path in files]}, {}
    if path not in files:
        return not_here("EntryNotFound")
    tag = f'"{hashlib.sha1(files[path]).hexdigest()}"'
    return 200, files[path], {"ETag": tag, "X-Repo-Commit": commit_of(files)}
