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


class Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def respond(self, status: int, content: Any = b"", **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def refused(self, write: bool) -> bool:
        """Respond if the hub fails or the token is wrong."""
        self.server.requests.append(f"{self.command} {self.path}")
        if self.server.failing is not None:
            self.body()
            self.respond(self.server.failing, {"error": self.server.message})
            return True
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if (write or token) and token != TOKEN:
            self.body()
            self.respond(401, {"error": "Invalid username or password."})
            return True
        return False

    def repository(self, name: str) -> Repository | None:
        repository = self.server.repositories.get(name)
        if repository is None or (repository.private and "Authorization" not in self.headers):
            self.respond(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
            return None
        return repository

    def files(self, repository: Repository, revision: str) -> dict[str, bytes] | None:
        for branch, files in repository.branches.items():
            if revision in (branch, commit_of(files)):
                return files
        self.respond(404, {"error": "no revision"}, X_Error_Code="RevisionNotFound")
        return None

    def do_POST(self) -> None:
        if self.refused(write=True):
            return
        parts = [unquote(part) for part in urlsplit(self.path).path.split("/")[1:]]
        content = self.body()
        if parts == ["api", "repos", "create"]:
            self.create(json.loads(content))
        elif parts == ["api", "validate-yaml"]:
            self.respond(200, {"errors": [], "warnings": []})
        else:
            self.change(parts, content)

    def create(self, request: dict[str, Any]) -> None:
        name = f"{request['organization'] or OWNER}/{request['name']}"
        if not name.startswith(f"{OWNER}/"):
            self.respond(403, {"error": f"You don't have the rights to create {name}"})
            return
        known = name in self.server.repositories
        is_private = request.get("visibility") == "private" or bool(request.get("private"))
        self.server.repositories.setdefault(name, Repository(is_private))
        self.respond(409 if known else 200, {"url": f"{self.server.address}/{name}"})

    def change(self, parts: list[str], body: bytes) -> None:
        _, _, owner, name, verb, revision = parts
        repository = self.repository(f"{owner}/{name}")
        if repository is None:
            return
        if verb == "branch":
            known = revision in repository.branches
            repository.branches.setdefault(revision, dict(repository.branches["main"]))
            self.respond(409 if known else 200, {"error": "Reference exists"} if known else {})
            return
        files = self.files(repository, revision)
        if files is None:
            return
        if verb == "preupload":
            mode = {"uploadMode": "regular", "shouldIgnore": False}
            modes = [{"path": file["path"], **mode} for file in json.loads(body)["files"]]
            self.respond(200, {"files": modes})
            return
        assert verb == "commit"
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "header":
                repository.messages.append(value["summary"])
            elif entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "deletedFile":
                del files[value["path"]]
        url = f"{self.server.address}/{owner}/{name}/commit/{commit_of(files)}"
        self.respond(200, {"commitUrl": url, "commitOid": commit_of(files)})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if self.refused(write=False):
            return
        parts = [unquote(part) for part in urlsplit(self.path).path.split("/")[1:]]
        if parts[0] != "api":
            self.resolve(*parts[:2], parts[3], "/".join(parts[4:]))
            return
        owner, name, verb, revision = (*parts[2:4], *(*parts[4:6], "revision", "main"))[:4]
        repository = self.repository(f"{owner}/{name}")
        files = None if repository is None else self.files(repository, revision)
        if files is None:
            return
        if verb == "tree":
            rows = [
                {"type": "file", "path": p, "size": len(files[p]), "oid": commit_of({p: files[p]})}
                for p in files
            ]
            self.respond(200, rows)
            return
        siblings = [{"rfilename": path} for path in files]
        info = {"id": f"{owner}/{name}", "modelId": f"{owner}/{name}", "sha": commit_of(files)}
        self.respond(200, info | {"siblings": siblings, "tags": [], "private": False})

    def resolve(self, owner: str, name: str, revision: str, path: str) -> None:
        repository = self.repository(f"{owner}/{name}")
        files = None if repository is None else self.files(repository, revision)
        if files is None:
            return
        if path not in files:
            self.respond(404, {"error": "no entry"}, X_Error_Code="EntryNotFound")
            return
        tag = f'"{hashlib.sha1(files[path]).hexdigest()}"'
        self.respond(200, files[path], ETag=tag, X_Repo_Commit=commit_of(files))
