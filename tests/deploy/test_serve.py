"""Predictions by HTTP, on loopback at a free port: what is answered, what is refused, and how it ends."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tmln
from tests.cli.typed import typed
from tests.deploy.test_commands import run
from tmln.deploy.learn import LearnRequest, learn_into
from tmln.deploy.serve import Limits, PredictionServer
from tmln.learner import Learner


class Running:
    """A server in a thread, and requests to it."""

    def __init__(self, learner: Learner, **limits: int) -> None:
        self.ended = threading.Event()
        self.server = PredictionServer(learner, ("127.0.0.1", 0), Limits(**limits))
        self.thread = threading.Thread(target=self.server.run, args=(self.ended.is_set,))
        self.thread.start()

    def ask(
        self, path: str, body: bytes | None = None, headers: dict[str, str] | None = None, method: str | None = None
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_address[1], timeout=20)
        connection.request(method or ("GET" if body is None else "POST"), path, body, headers or {})
        response = connection.getresponse()
        text = response.read()
        connection.close()
        return response.status, json.loads(text) if text else None

    def json(self, **content: Any) -> tuple[int, Any]:
        return self.ask("/predict", json.dumps(content).encode(), {"Content-Type": "application/json"})

    def stop(self) -> None:
        self.ended.set()
        self.thread.join(10)
        assert not self.thread.is_alive()


@pytest.fixture(scope="module")
def state(weeks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("serve") / "shop.tmln"
    learn_into(path, weeks / "week1", LearnRequest(epochs=15))
    return path


@pytest.fixture(scope="module")
def running(state: Path) -> Iterator[Running]:
    made = Running(tmln.open(state), body=100_000, batch=3)
    yield made
    made.stop()


def test_a_picture_and_a_batch_are_predicted_as_by_the_command(running: Running, state: Path, weeks: Path) -> None:
    paths = [weeks / "test" / "owl" / "3.png", weeks / "test" / "bee" / "4.png"]
    expected = json.loads(run("predict", "--state", state, *paths, "--top", 2, "--format", "json").stdout)
    for one in expected:
        one.pop("path")
    status, found = running.ask("/predict?top=2", paths[0].read_bytes())
    assert (status, found) == (200, {"predictions": expected[:1]})
    pictures = [base64.b64encode(path.read_bytes()).decode() for path in paths]
    assert running.json(pictures=pictures, top=2) == (200, {"predictions": expected})
    status, found = running.json(pictures=pictures, unknown=True)
    judged = tmln.open(state).predict(paths, unknown=True)
    assert [one["known"] for one in found["predictions"]] == [one.known for one in judged]


def test_health_and_metadata(running: Running) -> None:
    assert running.ask("/health") == (200, {"status": "ok"})
    status, found = running.ask("/metadata")
    assert (status, found["classes"], found["input"]["shape"]) == (200, ["bee", "owl"], ["N", 12, 12, 3])


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "said"),
    [
        ("/predict", b"no picture", {}, 400, "picture 0: not an image"),
        ("/predict?top=0", b"x", {}, 400, "top is a number from 1 on"),
        ("/predict", b"x" * 100_001, {}, 413, "100,000 bytes"),
        ("/predict", b"{", {"Content-Type": "application/json"}, 400, "not JSON"),
        ("/predict", b"[]", {"Content-Type": "application/json"}, 400, "no object"),
        ("/predict", b'{"pictures": []}', {"Content-Type": "application/json"}, 400, "no list 'pictures'"),
        ("/predict", b'{"pictures": ["?"]}', {"Content-Type": "application/json"}, 400, "base64"),
        ("/predict", b'{"pictures": [1]}', {"Content-Type": "application/json"}, 400, "base64"),
        ("/predict", b'{"pictures": ["", "", "", ""]}', {"Content-Type": "application/json"}, 413, "at most 3"),
        ("/predict", None, {}, 405, "no route GET /predict"),
        ("/health", b"", {}, 405, "no route POST /health"),
        ("/../shop.tmln", None, {}, 404, "no route"),
        ("/health", None, {"Host": "attacker.example"}, 403, "attacker.example"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_one_line(
    running: Running, path: str, body: bytes | None, headers: dict[str, str], status: int, said: str
) -> None:
    found, content = running.ask(path, body, headers)
    assert found == status
    assert said in content["error"]
    assert "\n" not in content["error"]
    assert running.ask("/health")[0] == 200


def test_a_request_without_a_length_and_one_that_breaks_off(running: Running) -> None:
    for text, status in ((b"", b"411"), (b"Content-Length: x\r\n", b"400"), (b"Content-Length: 50\r\n", b"400")):
        with socket.create_connection(("127.0.0.1", running.server.server_address[1])) as connection:
            connection.sendall(b"POST /predict HTTP/1.0\r\n" + text + b"\r\nabc")
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(100).split()[1] == status


def test_arrays_and_a_full_server() -> None:
    torch.manual_seed(0)
    learner = Learner(nn.Linear(3, 2), "naive", batch_size=8)
    x = torch.randn(16, 3)
    learner.learn((x, (x[:, 0] > 0).long()), 5, classes=["low", "high"])
    served = Running(learner, threads=1)
    try:
        expected = [one.label for one in learner.predict(x[:4])]
        _, found = served.json(inputs=x[:4].tolist())
        assert [one["label"] for one in found["predictions"]] == expected
        assert served.json(inputs=[[1.0, 2.0]])[0] == 400
        assert served.json(inputs=[["a", 1, 2]])[0] == 400
        assert "send JSON" in served.ask("/predict", b"abc")[1]["error"]
        assert "no sample was held out" in served.json(inputs=[[1, 2, 3]], unknown=True)[1]["error"]
        with socket.create_connection(("127.0.0.1", served.server.server_address[1])) as idle:
            idle.sendall(b"GET /health HTTP/1.0\r\n")  # holds the only thread
            assert served.ask("/health")[0] == 503
    finally:
        served.stop()


def test_a_port_that_is_taken(running: Running, state: Path) -> None:
    done = typed("serve", str(state), "--port", str(running.server.server_address[1]))
    assert done.returncode == 2
    assert "--port 0 chooses a free port" in done.stderr


def test_the_command_serves_and_ends(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: after the first answer it is asked to stop, as by Ctrl-C."""
    asked: list[Any] = []

    def serve_once(self: PredictionServer, stop: Any) -> None:
        assert stop() is False
        worker = threading.Thread(target=lambda: asked.append(np.asarray(self.url)))
        worker.start()
        worker.join()
        self.server_close()

    monkeypatch.setattr(PredictionServer, "run", serve_once)
    done = typed("serve", str(state), "--port", "0")
    assert (done.returncode, done.stderr.strip()) == (0, "stopped")
    assert f"{state} on {asked[0]}: POST /predict" in done.stdout
