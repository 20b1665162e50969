"""A small Hugging Face Hub: an HTTP server on this machine that speaks the routes of the real one.

Repositories are in memory. What huggingface_hub asks for here it asks for there: model info, tree,
resolve, create, branch, preupload and commit; all files are regular ones, without LFS.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

HERE = "127.0.0.1,localhost"


def git_sha(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Repository:
    """Branches and tags to commits, commits to files. `token`: needed to see it at all."""

    files: dict[str, bytes]
    token: str | None = None
    gated: bool = False
    private: bool = False
    refs: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.commit("main", self.files)

    def commit(self, ref: str, files: dict[str, bytes]) -> str:
        seed = f"{ref}{len(self.commits)}" + "".join(f"{n}{git_sha(c)}" for n, c in files.items())
        sha = hashlib.sha1(seed.encode()).hexdigest()
        self.commits[sha], self.refs[ref] = dict(files), sha
        return sha


@dataclass
class Hub:
    """The server's state; `requests` holds "METHOD path" of everything that was asked."""

    url: str = ""
    repos: dict[str, Repository] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    writers: set[str] = field(default_factory=lambda: {"hf_writer"})
    status: int | None = None
    silent: threading.Event | None = None

    def add(self, repo_id: str, folder: Path | dict[str, bytes], **options: Any) -> Repository:
        if isinstance(folder, Path):
            paths = [path for path in folder.rglob("*") if path.is_file()]
            folder = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
        self.repos[repo_id] = Repository(folder, **options)
        return self.repos[repo_id]


class Refused(Exception):
    def __init__(self, status: int, code: str = "", message: str = "") -> None:
        self.status, self.code, self.message = status, code, message


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *arguments: Any) -> None:
        pass

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer_json(self, content: Any, status: int = 200) -> None:
        self.answer(status, json.dumps(content).encode(), Content_Type="application/json")

    @property
    def token(self) -> str | None:
        return (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None

    def handle_any(self) -> None:
        path = urlsplit(self.path).path
        if path == "/api/agent-harnesses":  # the client's own business, once a day
            return self.answer_json({"standardEnvVars": [], "harnesses": {}})
        self.hub.requests.append(f"{self.command} {path}")
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length) if length else b""
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                self.body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        if self.hub.silent is not None:
            self.hub.silent.wait(20)
            self.close_connection = True
            return
        try:
            if self.hub.status is not None:
                raise Refused(self.hub.status)
            self.route([unquote(part) for part in path.strip("/").split("/")])
        except Refused as refused:
            headers = {"X_Error_Code": refused.code} if refused.code else {}
            if refused.message:
                headers["X_Error_Message"] = refused.message
            self.answer(refused.status, b"", **headers)

    do_GET = do_HEAD = do_POST = handle_any

    def repository(self, parts: list[str]) -> Repository:
        repo = self.hub.repos.get("/".join(parts[:2]))
        if repo is None or (repo.token is not None and self.token != repo.token):
            if self.token == "hf_invalid":
                raise Refused(401, message="Invalid credentials in Authorization header")
            raise Refused(
                401 if self.token is None else 404, "RepoNotFound", "Repository not found"
            )
        if repo.gated:
            raise Refused(403, "GatedRepo", "Access to this model is restricted")
        return repo

    def revision(self, repo: Repository, ref: str) -> tuple[str, dict[str, bytes]]:
        sha = repo.refs.get(ref, ref)
        if sha not in repo.commits:
            raise Refused(404, "RevisionNotFound", f"Invalid rev id: {ref}")
        return sha, repo.commits[sha]

    def writer(self) -> None:
        if self.token not in self.hub.writers:
            raise Refused(403, message="you must have write access")

    def route(self, parts: list[str]) -> None:
        if parts == ["api", "repos", "create"]:
            return self.create()
        if parts == ["api", "validate-yaml"]:
            return self.answer_json({"errors": [], "warnings": []})
        if parts[:2] == ["api", "models"]:
            return self.model(parts[2:])
        if parts[2:3] == ["resolve"]:
            return self.resolve(self.repository(parts), parts[3], "/".join(parts[4:]))
        raise Refused(404)

    def create(self) -> None:
        self.writer()
        asked = json.loads(self.body)
        repo_id = f"{asked['organization']}/{asked['name']}"
        if repo_id in self.hub.repos:
            return self.answer_json({"url": f"{self.hub.url}/{repo_id}"}, 409)
        private = asked.get("visibility") == "private" or asked.get("private", False)
        self.hub.add(repo_id, {".gitattributes": b"* lfs\n"}, private=private)
        return self.answer_json({"url": f"{self.hub.url}/{repo_id}"})

    def model(self, parts: list[str]) -> None:
        repo, verb = self.repository(parts), parts[2] if len(parts) > 2 else "revision"
        ref = parts[3] if len(parts) > 3 else "main"
        if verb == "branch":
            self.writer()
            if ref in repo.refs:
                return self.answer_json({"error": "exists"}, 409)
            repo.refs[ref] = repo.refs["main"]
            return self.answer_json({})
        sha, files = self.revision(repo, ref)
        if verb == "revision":
            siblings = [{"rfilename": name} for name in files]
            info = {"id": "/".join(parts[:2]), "sha": sha, "private": repo.private, "tags": []}
            return self.answer_json(info | {"siblings": siblings, "downloads": 0})
        if verb == "tree":
            return self.answer_json(
                [
                    {"type": "file", "path": n, "size": len(c), "oid": git_sha(c)}
                    for n, c in files.items()
                ]
            )
        self.writer()
        if verb == "preupload":
            modes = {"uploadMode": "regular", "shouldIgnore": False}
            named = [{"path": one["path"]} | modes for one in json.loads(self.body)["files"]]
            return self.answer_json({"files": named})
        if verb == "commit":
            return self.commit(repo, ref, dict(files))
        raise Refused(404)

    def commit(self, repo: Repository, ref: str, files: dict[str, bytes]) -> None:
        for line in self.body.splitlines():
            item = json.loads(line)
            value = item["value"]
            if item["key"] == "header":
                repo.messages.append(value["summary"])
            elif item["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif item["key"] == "deletedFile":
                del files[value["path"]]
        sha = repo.commit(ref, files)
        url = (
            self.hub.url + urlsplit(self.path).path.removeprefix("/api/models").split("/commit/")[0]
        )
        self.answer_json({"commitOid": sha, "commitUrl": f"{url}/commit/{sha}"})

    def resolve(self, repo: Repository, ref: str, name: str) -> None:
        sha, files = self.revision(repo, ref)
        if name not in files:
            raise Refused(404, "EntryNotFound", "Entry not found")
        content = files[name]
        return self.answer(200, content, ETag=f'"{git_sha(content)}"', X_Repo_Commit=sha)


@contextmanager
def running() -> Iterator[Hub]:
    """A Hub on a free port of this machine, until the block ends."""
    hub = Hub()
    handler = type("HandlerOfThisHub", (Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        if hub.silent is not None:
            hub.silent.set()
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def client(monkeypatch: Any, hub: Hub, home: Path) -> Iterator[None]:
    """Turn huggingface_hub in this process to `hub`, with a cache, and no token, of its own."""
    import huggingface_hub
    from huggingface_hub import constants

    for name, value in {
        "ENDPOINT": hub.url,
        "HUGGINGFACE_CO_URL_TEMPLATE": hub.url + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HOME": str(home),
        "HF_HUB_CACHE": str(home / "hub"),
        "HF_TOKEN_PATH": str(home / "token"),
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_OFFLINE": False,
    }.items():
        monkeypatch.setattr(constants, name, value)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    # Workplaces put proxies into the environment, and this machine needs none to reach itself.
    monkeypatch.setenv("NO_PROXY", HERE)
    monkeypatch.setenv("no_proxy", HERE)
    close = getattr(huggingface_hub, "close_session", lambda: None)
    close()
    try:
        yield
    finally:
        close()


def environment(hub: Hub, home: Path) -> dict[str, str]:
    """What a process of its own needs to talk to `hub`."""
    return {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"} | {
        "NO_PROXY": HERE,
        "no_proxy": HERE,
    }
