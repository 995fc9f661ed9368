"""A stand-in for the Hugging Face hub on this machine: it keeps repositories in memory and can be told to fail."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

TOKEN = "hf_secretsecretsecret"
BROKEN = 0  # in the place of a status: the connection ends without an answer


@dataclass
class Repository:
    """Files of a repository by name."""

    private: bool = False
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def commit(self) -> str:
        return hashlib.sha1(repr(sorted(self.files.items())).encode()).hexdigest()


class StandIn(ThreadingHTTPServer):
    """The server; ``failing`` maps a pattern of "METHOD path" to a status, or BROKEN, and the message with it."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, Repository] = {}
        self.objects: dict[str, bytes] = {}  # large files by sha256
        self.failing: dict[str, tuple[int, str]] = {}
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address) -> None:
        """Say nothing of clients that have gone."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer in one piece: two would wait for each other
    server: StandIn

    def log_message(self, format, *args) -> None: ...

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def answer(self, status: int, content: bytes | dict = b"", **headers: str) -> None:
        data = json.dumps(content).encode() if isinstance(content, dict) else content
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def handle_request(self) -> None:
        path, body = self.path.partition("?")[0], self.body()
        asked = f"{self.command} {path}"
        self.server.asked.append(asked)
        for pattern, (status, message) in self.server.failing.items():
            if re.search(pattern, asked):
                if status == BROKEN:
                    self.close_connection = True
                    return
                return self.answer(status, {"error": message})
        if not path.startswith("/objects/") and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.answer(401, {"error": "Invalid username or password."})
        for pattern, act in ROUTES.items():
            if found := re.fullmatch(pattern, asked):
                return act(self, body, **found.groupdict())
        self.answer(404, {"error": asked}, X_Error_Code="EntryNotFound")

    do_GET = do_HEAD = do_POST = do_PUT = handle_request  # noqa: N815

    def create(self, body: bytes) -> None:
        asked = json.loads(body)
        name = f"{asked['organization']}/{asked['name']}"
        new = name not in self.server.repositories
        if new:
            self.server.repositories[name] = Repository(private=asked.get("visibility") == "private")
        self.answer(200 if new else 409, {"url": f"{self.server.address}/{name}"})

    def info(self, body: bytes, repo: str, revision: str = "main") -> None:
        held = self.server.repositories.get(repo)
        if held is None:
            return self.answer(404, X_Error_Code="RepoNotFound")
        files = [{"rfilename": name} for name in held.files]
        self.answer(200, {"id": repo, "private": held.private, "sha": held.commit, "siblings": files})

    def validate(self, body: bytes) -> None:
        self.answer(200, {"errors": [], "warnings": []})

    def preupload(self, body: bytes, repo: str) -> None:
        files = [
            {
                "path": one["path"],
                "uploadMode": "lfs" if one["path"].endswith(".safetensors") else "regular",
                "shouldIgnore": False,
            }
            for one in json.loads(body)["files"]
        ]
        self.answer(200, {"files": files})

    def batch(self, body: bytes, repo: str) -> None:
        objects = [
            {**one, "actions": {"upload": {"href": f"{self.server.address}/objects/{one['oid']}"}}}
            for one in json.loads(body)["objects"]
        ]
        self.answer(200, {"transfer": "basic", "objects": objects})

    def store(self, body: bytes, oid: str) -> None:
        self.server.objects[oid] = body
        self.answer(200 if hashlib.sha256(body).hexdigest() == oid else 400)

    def commit(self, body: bytes, repo: str) -> None:
        held = self.server.repositories[repo]
        for line in body.splitlines():
            item = SimpleNamespace(**json.loads(line))
            if item.key == "file":
                held.files[item.value["path"]] = base64.b64decode(item.value["content"])
            elif item.key == "lfsFile":
                held.files[item.value["path"]] = self.server.objects[item.value["oid"]]
        address = f"{self.server.address}/{repo}/commit/{held.commit}"
        self.answer(200, {"success": True, "commitOid": held.commit, "commitUrl": address})

    def resolve(self, body: bytes, repo: str, name: str) -> None:
        held = self.server.repositories.get(repo)
        if held is None or name not in held.files:
            return self.answer(404, X_Error_Code="RepoNotFound" if held is None else "EntryNotFound")
        content = held.files[name]
        self.answer(200, content, ETag=f'"{hashlib.sha1(content).hexdigest()}"', X_Repo_Commit=held.commit)


REPO = r"(?P<repo>[\w.-]+/[\w.-]+)"
ROUTES = {
    "POST /api/repos/create": Handler.create,
    "POST /api/validate-yaml": Handler.validate,
    f"GET /api/models/{REPO}(/revision/(?P<revision>.+))?": Handler.info,
    f"POST /api/models/{REPO}/preupload/main": Handler.preupload,
    f"POST /api/models/{REPO}/commit/main": Handler.commit,
    rf"POST /{REPO}\.git/info/lfs/objects/batch": Handler.batch,
    "PUT /objects/(?P<oid>[0-9a-f]{64})": Handler.store,
    f"(GET|HEAD) /{REPO}/resolve/[^/]+/(?P<name>.+)": Handler.resolve,
}


@contextmanager
def standing_in():
    """Run the stand-in in a thread of its own."""
    server = StandIn()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
