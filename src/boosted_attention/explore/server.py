"""The page's server: Python's own, on this machine only, for whoever has the address with its token.

Every request must carry the token in its path and name this server in its Host header, and one that says where it comes
from (Origin, Sec-Fetch-Site) must come from the page itself. Files are a fixed list; nothing is read by its path.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import sys
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from itertools import chain
from typing import Any

from boosted_attention.explore.explorer import Explorer
from boosted_attention.explore.questions import Question, StepQuestion, read
from boosted_attention.explore.turns import SupersededError, Turns
from boosted_attention.records import to_json
from boosted_attention.validation import InputError

ADDRESS = "127.0.0.1"
LARGEST_BODY = 256 * 1024  # bytes
MOST_DRAINED, SECONDS_DRAINED = 4 * 1024 * 1024, 1  # of a body that is too large
SECONDS = 20  # that a connection may stay silent
FILES = {
    "": ("page.html", "text/html; charset=utf-8"),
    "page.css": ("page.css", "text/css; charset=utf-8"),
    "page.js": ("page.js", "text/javascript; charset=utf-8"),
    "drawing.js": ("drawing.js", "text/javascript; charset=utf-8"),
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # the address holds the token
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
NO_TOKEN = (
    "This address has no valid token. Open the one that the running command printed; a saved view is what stands "
    "behind the # of its link, and goes behind that address."
)
OTHER_PAGE = "This server answers its own page only. Paste its address into a new tab instead of following a link."


def failure(error: Exception) -> str:
    """Say that an error of ours came between, by its name alone: its message might hold what was typed."""
    return f"The server failed: {type(error).__name__}."


class Server(ThreadingHTTPServer):
    """Serves the page of one explorer.

    Args:
        explorer: what answers the page's questions.
        port: port of this machine; 0 takes any that is free.
    """

    daemon_threads = True  # a reader who waits does not keep the program
    allow_reuse_address = sys.platform != "win32"  # where it would let two servers share a port
    request_queue_size = 64

    def __init__(self, explorer: Explorer, port: int = 0):
        self.explorer, self.turns = explorer, Turns()
        self.token = secrets.token_urlsafe(24)
        super().__init__((ADDRESS, port), Handler)
        names = (ADDRESS, "localhost")
        self.hosts = frozenset(f"{name}:{self.server_port}" for name in names)
        self.origins = frozenset(f"http://{host}" for host in self.hosts)

    @property
    def address(self) -> str:
        """The page's address, with the token."""
        return f"http://{ADDRESS}:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that end early; handlers answer all other errors."""


class RefusedError(Exception):
    """A request that gets no answer but a reason."""

    def __init__(self, status: HTTPStatus, reason: str):
        super().__init__(reason)
        self.status, self.reason = status, reason


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server_version, sys_version = "boosted-attention", ""
    timeout = SECONDS

    @property
    def served(self) -> Server:
        """The server, with what it serves."""
        assert isinstance(self.server, Server)
        return self.server

    def do_GET(self) -> None:
        """Send a file of the page, or what the page is about."""
        self.answer(self.get)

    def do_POST(self) -> None:
        """Answer a question."""
        self.answer(self.post)

    def answer(self, method: Callable[[str], None]) -> None:
        """Let a method answer a request that is allowed, and turn what goes wrong into one line of JSON."""
        try:
            method(self.allowed_path())
        except RefusedError as refusal:
            self.send_json({"error": refusal.reason}, refusal.status)
            if refusal.status is HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                self.drain()
        except InputError as error:
            self.send_json({"error": str(error)}, HTTPStatus.BAD_REQUEST)
        except SupersededError:
            self.send_json({"error": "superseded"}, HTTPStatus.CONFLICT)
        except OSError:  # whoever asked has gone, or says nothing more
            self.close_connection = True
        except Exception as error:
            self.send_json({"error": failure(error)}, HTTPStatus.INTERNAL_SERVER_ERROR)

    def allowed_path(self) -> str:
        """Return the path behind the token.

        Raises:
            RefusedError: the request lacks the token, names another server, or comes from another page.
        """
        if self.headers.get_all("Host", []) not in [[host] for host in self.served.hosts]:
            raise RefusedError(HTTPStatus.FORBIDDEN, "This server answers to its own name only.")
        origins = self.headers.get_all("Origin", [])
        if any(origin not in self.served.origins for origin in origins):
            raise RefusedError(HTTPStatus.FORBIDDEN, OTHER_PAGE)
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise RefusedError(HTTPStatus.FORBIDDEN, OTHER_PAGE)
        _, token, path = [*self.path.split("/", 2), "", ""][:3]
        if not secrets.compare_digest(token.encode("utf-8", "replace"), self.served.token.encode()):
            raise RefusedError(HTTPStatus.FORBIDDEN, NO_TOKEN)
        return path

    def get(self, path: str) -> None:
        """Send a file, or what the page is about."""
        if path == "about":
            self.send_json(to_json(self.served.explorer.about()))
        elif path in FILES:
            name, kind = FILES[path]
            self.send((files("boosted_attention.explore") / name).read_bytes(), kind)
        else:
            raise RefusedError(HTTPStatus.NOT_FOUND, "There is nothing at this address.")

    def post(self, path: str) -> None:
        """Answer a question when its turn has come; one that has no answer gets the reason, and is no failure."""
        explorer = self.served.explorer
        kinds: dict[str, tuple[type[Question], Callable[..., Iterator[Any]]]] = {
            "view": (Question, explorer.parts),
            "step": (StepQuestion, lambda question, check: iter([explorer.step(question, check)])),
        }
        if path not in kinds:
            raise RefusedError(HTTPStatus.NOT_FOUND, "There is nothing at this address.")
        kind, method = kinds[path]
        question = read(kind, self.body())
        parts = self.in_turns(question, method)
        try:
            first = next(parts)
        except InputError as error:
            self.send_json({"refused": str(error)})
        else:
            self.send_lines(chain([first], parts))

    def in_turns(self, question: Question, method: Callable[..., Iterator[Any]]) -> Iterator[Any]:
        """Yield the parts of an answer, each computed in a turn of its own: nobody waits for one who reads slowly."""
        parts: Iterator[Any] | None = None
        while True:
            with self.served.turns.turn(question.tab, question.number) as check:
                parts = method(question, check) if parts is None else parts
                part = next(parts, None)
            if part is None:
                return
            yield part

    def send_lines(self, parts: Iterator[Any]) -> None:
        """Send the parts of an answer as they are known, one line of JSON each; the connection's end is their end."""
        self.begin("application/x-ndjson", HTTPStatus.OK)
        try:
            for part in parts:
                self.wfile.write(json.dumps(to_json(part)).encode() + b"\n")
        except SupersededError:  # nobody reads the rest
            self.close_connection = True
        except OSError:
            raise
        except InputError as error:
            self.wfile.write(json.dumps({"error": str(error)}).encode() + b"\n")
        except Exception as error:
            self.wfile.write(json.dumps({"error": failure(error)}).encode() + b"\n")

    def body(self) -> bytes:
        """Read the body of a request, which must be JSON of a stated and allowed length."""
        if self.headers.get_content_type() != "application/json":
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "A question is application/json.")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or "Transfer-Encoding" in self.headers:
            raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "A question states its length.")
        if len(length) > 9 or int(length) > LARGEST_BODY:
            raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The text is too long for this page.")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "The question ended early.")
        return body

    def drain(self) -> None:
        """Read what a sender still sends: one who is cut off would not read the reason."""
        self.connection.settimeout(SECONDS_DRAINED)
        with contextlib.suppress(OSError):
            self.rfile.read(MOST_DRAINED)

    def send_json(self, value: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        """Send a value as JSON."""
        self.send(json.dumps(value).encode(), "application/json", status)

    def send(self, body: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        """Send a whole answer."""
        self.begin(kind, status, len(body))
        self.wfile.write(body)

    def begin(self, kind: str, status: HTTPStatus, length: int | None = None) -> None:
        """Begin an answer with the headers that keep the page to itself; one without a length ends the connection."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if length is not None:
            self.send_header("Content-Length", str(length))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what the library could not read, without repeating any of it."""
        known = {HTTPStatus.NOT_IMPLEMENTED: HTTPStatus.METHOD_NOT_ALLOWED}
        status = known.get(HTTPStatus(code), HTTPStatus(code) if 400 <= code < 500 else HTTPStatus.BAD_REQUEST)
        self.close_connection = True
        self.send_json({"error": status.phrase}, status)

    def log_message(self, format: str, *args: Any) -> None:
        """Write no log: what is typed stays on the page."""
