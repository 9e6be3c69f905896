"""A small HTTP server that predicts by a state; it keeps nothing of what it is sent.

``POST /predict`` takes the bytes of one picture, or JSON: ``{"pictures": [base64, ...]}`` or, of a
model of arrays, ``{"inputs": [[...], ...]}``. ``GET /health`` and ``GET /metadata`` take nothing.
"""

from __future__ import annotations

import base64
import binascii
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from tmln.learner import Learner, Prediction
from tmln.learner.export import describe_export, takes_pictures

LOOPBACK = ("127.0.0.1", "localhost")
IDLE = 10.0  # seconds without a byte after which a connection is closed
PATIENCE = 0.5  # seconds that a request waits for a thread
LEFT = 1.0  # seconds that requests under way have at the end


@dataclass(frozen=True)
class Limits:
    """What one request and all of them may take."""

    body: int = 32 << 20  # bytes
    batch: int = 64  # pictures or rows
    threads: int = 8  # requests at a time; further ones are told to come again


class BadRequest(ValueError):
    """A request that cannot be answered, and the status that says so."""

    def __init__(self, message: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(message)
        self.status = status


def make_record(found: Prediction, judged: bool = False, top: int = 1) -> dict[str, Any]:
    """Return a prediction as plain values; ``judged``: it may be unknown."""
    record: dict[str, Any] = {"label": found.label, "probability": round(found.probability, 6)}
    if judged:
        record |= {"known": found.known, "nearest": found.nearest}
    if top > 1:
        record["top"] = [{"label": label, "probability": round(share, 6)} for label, share in found.top]
    return record


class PredictionServer(ThreadingHTTPServer):
    """Serves the predictions of one learner, one batch at a time."""

    daemon_threads = True
    block_on_close = False
    timeout = 0.2  # of handle_request, in seconds

    def __init__(self, learner: Learner, address: tuple[str, int], limits: Limits = Limits()) -> None:
        self.learner, self.limits = learner, limits
        self.lock = threading.Lock()
        self.free = threading.BoundedSemaphore(limits.threads)
        self.about = describe_export(learner)
        super().__init__(address, Handler)

    @property
    def url(self) -> str:
        """The address that it listens on."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, or that all threads are busy."""
        if self.free.acquire(timeout=PATIENCE):
            super().process_request(request, client_address)
            return
        with suppress(OSError):
            request.settimeout(0.1)
            request.recv(1 << 16)  # closed with unread bytes, a connection loses its answer
            request.sendall(b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n")
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one request, and free its place."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a connection that broke; report what else went wrong."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def run(self, stop: Callable[[], bool]) -> None:
        """Serve until ``stop`` returns True; requests under way have a second to end."""
        try:
            while not stop():
                self.handle_request()
        finally:
            self.server_close()
            end = time.monotonic() + LEFT
            for _ in range(self.limits.threads):
                self.free.acquire(timeout=max(0.0, end - time.monotonic()))

    def predict(self, data: Any, top: int, unknown: bool) -> list[dict[str, Any]]:
        """Return the records of the predictions."""
        with self.lock:
            found = self.learner.predict(data, top, unknown=unknown)
        return [make_record(one, unknown, top) for one in found]


class Handler(BaseHTTPRequestHandler):
    """Answers one request; HTTP/1.0, so that no connection keeps a thread."""

    server: PredictionServer
    server_version = "tmln"
    sys_version = ""
    timeout = IDLE

    def do_GET(self) -> None:
        """Answer /health and /metadata."""
        routes: dict[str, Callable[[], Any]] = {
            "/health": lambda: {"status": "ok"},
            "/metadata": lambda: self.server.about,
        }
        self._answer(routes, "POST" if self._path() == "/predict" else None)

    def do_POST(self) -> None:
        """Answer /predict."""
        self._answer({"/predict": self._predict}, "GET" if self._path() in ("/health", "/metadata") else None)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep no log of requests."""

    def _path(self) -> str:
        return urlsplit(self.path).path

    def _answer(self, routes: Mapping[str, Callable[[], Any]], other: str | None) -> None:
        status, content = HTTPStatus.OK, None
        try:
            self._check_host()
            if self._path() not in routes:
                missing = HTTPStatus.NOT_FOUND if other is None else HTTPStatus.METHOD_NOT_ALLOWED
                known = "POST /predict, GET /health, GET /metadata"
                raise BadRequest(f"no route {self.command} {self._path()[:100]} ({known})", missing)
            content = routes[self._path()]()
        except BadRequest as error:
            status, content = error.status, {"error": str(error)}
        except (ValueError, TypeError, OverflowError) as error:  # of the data, in one line
            status, content = HTTPStatus.BAD_REQUEST, {"error": " ".join(str(error).split())}
        self._send(status, content)

    def _send(self, status: HTTPStatus, content: Any) -> None:
        body = json.dumps(content).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def _check_host(self) -> None:
        """Refuse requests that a browser was led to send here under another name."""
        listening = str(self.server.server_address[0])
        name = (self.headers.get("Host") or listening).rsplit(":", 1)[0]
        if listening in LOOPBACK and name not in LOOPBACK:
            raise BadRequest(f"the server is asked for as {name[:100]!r}, not as {listening}", HTTPStatus.FORBIDDEN)

    def _read_body(self) -> bytes:
        length = self.headers.get("Content-Length")
        if length is None:
            raise BadRequest("the request does not say its Content-Length", HTTPStatus.LENGTH_REQUIRED)
        if not length.isdecimal():
            raise BadRequest("Content-Length is no number")
        if int(length) > self.server.limits.body:
            self._discard(min(int(length), 2 * self.server.limits.body))
            raise BadRequest(
                f"a request may have {self.server.limits.body:,} bytes, this one has {int(length):,}",
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            )
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise BadRequest("the request ended early")
        return body

    def _discard(self, count: int) -> None:
        """Read bytes and drop them: a client that is still sending would not hear the answer."""
        while count > 0 and (part := self.rfile.read(min(count, 1 << 16))):
            count -= len(part)

    def _predict(self) -> dict[str, Any]:
        body = self._read_body()
        requested = {key: values[-1] for key, values in parse_qs(urlsplit(self.path).query).items()}
        data: Any = [body]
        if self.headers.get_content_type() == "application/json":
            content = read_json(body)
            data = read_batch(content, self.server.learner, self.server.limits.batch)
            requested = {**requested, **{key: content[key] for key in ("top", "unknown") if key in content}}
        elif not takes_pictures(self.server.learner):
            raise BadRequest('the model takes arrays: send JSON, {"inputs": [[...], ...]}')
        top = requested.get("top", 1)
        if not str(top).isdecimal() or int(top) < 1:
            raise BadRequest(f"top is a number from 1 on, not {top!r}")
        unknown = str(requested.get("unknown", False)).lower() in ("1", "true", "yes")
        return {"predictions": self.server.predict(data, int(top), unknown)}


def read_json(body: bytes) -> dict[str, Any]:
    """Return the object that a body holds."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON ({error})") from None
    if not isinstance(content, dict):
        raise BadRequest('the body is JSON, but no object: {"pictures": [...]}')
    return content


def read_batch(content: Mapping[str, Any], learner: Learner, most: int) -> Any:
    """Return the pictures or the array of a JSON request."""
    name = "pictures" if takes_pictures(learner) else "inputs"
    rows = content.get(name)
    if not isinstance(rows, list) or not rows:
        raise BadRequest(f"the request has no list {name!r} of one {name[:-1]} or more")
    if len(rows) > most:
        raise BadRequest(f"{len(rows)} {name}; send at most {most} at a time", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    if name == "pictures":
        try:
            return [base64.b64decode(row, validate=True) for row in rows]
        except (binascii.Error, TypeError, ValueError) as error:
            raise BadRequest(f"pictures are base64 ({error})") from None
    stored = learner.seen.transforms
    assert stored is not None
    try:
        array = np.asarray(rows, dtype=stored["dtype"])
    except (ValueError, TypeError, OverflowError) as error:
        raise BadRequest(f"inputs are numbers of {stored['dtype']} ({error})") from None
    if list(array.shape[1:]) != list(stored["shape"]):
        raise BadRequest(f"inputs have the shape {list(array.shape)}; the model takes {['N', *stored['shape']]}")
    return array
