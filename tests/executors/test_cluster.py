"""What the pool for Ray does with what it hears, without Ray: losses, stops, collected files."""

from __future__ import annotations

import importlib.util
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.experiments.killing import config
from tmln.executors import cluster
from tmln.executors.bundle import pack
from tmln.executors.cluster import RayPool
from tmln.executors.config import ExecutorConfig
from tmln.executors.interfaces import Outcome, RunRequest
from tmln.executors.plan import Job
from tmln.executors.wish import Wish, room
from tmln.experiments.lock import RunLocked
from tmln.experiments.run_options import RunOptions
from tmln.experiments.store import Store


class FakeLine:
    """Answers what a test puts into ``answers``; an ``EOFError`` in there is the end of the cluster."""

    def __init__(self, wish: Wish) -> None:
        self.wish, self.cores, self.told = wish, 2, list[Any]()
        self.answers: list[Any] = []
        LINES.append(self)

    def tell(self, *words: Any) -> None:
        self.told.append(words)

    def heard(self, seconds: float) -> list[Any]:
        found, self.answers = self.answers, []
        if found and isinstance(found[0], EOFError):
            raise found[0]
        return found

    def close(self) -> None:
        self.told.append(("close",))

    def end(self) -> None:
        self.told.append(("end",))


LINES: list[FakeLine] = []


@pytest.fixture(autouse=True)
def _no_ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(cluster, "Line", FakeLine)
    monkeypatch.setattr(cluster, "reach", lambda address: None)
    monkeypatch.setattr(cluster, "PAUSE", 0.0)
    LINES.clear()
    yield
    assert all(line.told[-1] in (("close",), ("end",)) for line in LINES), "no process stays"


def task(root: Path, seed: int = 0) -> RunRequest:
    return RunRequest(Job(config("naive", epochs=1, seed=seed)), str(root), RunOptions())


def begun(name: str) -> tuple[str, bytes]:
    return name, pickle.dumps("begun")


def test_a_lost_cluster_gives_back_what_had_begun_and_sends_the_rest_again(tmp_path: Path) -> None:
    said: list[tuple[str, Any]] = []
    pool = RayPool(ExecutorConfig("ray", address="host:1"), 2)
    for name in ("a", "b"):
        pool.submit(name, task(tmp_path))
    pool.wait(0, lambda *heard: said.append(heard))
    LINES[0].answers = [begun("a")]
    pool.wait(0, lambda *heard: said.append(heard))
    LINES[0].answers = [EOFError()]
    pool.wait(0, lambda *heard: said.append(heard))
    assert [(name, getattr(message, "state", message)) for name, message in said] == [("a", "begun"), ("a", "away")]
    pool.submit("a", task(tmp_path))  # as the schedule does
    pool.wait(0, lambda *heard: said.append(heard))  # it is there again
    pool.wait(0, lambda *heard: said.append(heard))
    assert [words[1] for words in LINES[1].told if words[0] == "do"] == ["b", "a"]
    pool.close()
    assert not list(tmp_path.glob(".command-*"))


def test_who_is_asked_to_stop_while_the_cluster_is_away_need_not_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[str, Any]] = []
    pool = RayPool(ExecutorConfig("ray", address="host:1"), 2)
    for name in ("a", "b"):
        pool.submit(name, task(tmp_path))
    LINES[0].answers = [EOFError()]
    pool.wait(0, lambda *heard: said.append(heard))

    def refuse(wish: Wish) -> Any:
        raise ValueError("no Ray cluster")

    monkeypatch.setattr(cluster, "Line", refuse)
    pool.wait(0, lambda *heard: said.append(heard))
    pool.stop()
    pool.wait(0, lambda *heard: said.append(heard))
    assert [(name, message.state) for name, message in said] == [("a", "away"), ("b", "stopped")]
    monkeypatch.setattr(cluster, "AWAY", -1.0)
    other = RayPool.__new__(RayPool)
    other.__dict__ |= {**vars(pool), "_stopping": False}
    with pytest.raises(ValueError, match="the same command goes on"):
        other.wait(0, lambda *heard: None)
    pool.close()


def test_collected_files_are_put_into_the_run_that_was_locked_for_it(tmp_path: Path) -> None:
    said: list[tuple[str, Any]] = []
    wanted = task(tmp_path / "runs")
    pool = RayPool(ExecutorConfig("ray", collect=True), 2)
    pool.submit("a", wanted)
    pool.wait(0, lambda *heard: said.append(heard))
    run = Store(wanted.root).open(wanted.job.config)
    with pytest.raises(RunLocked):
        run.lock.acquire()
    ((_, name, threads, letter),) = LINES[0].told
    assert (name, threads, pickle.loads(letter).collect) == ("a", 1, True)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "log.jsonl").write_text("logged")
    LINES[0].answers = [("a", pickle.dumps((Outcome("stopped"), pack(tmp_path / "there"))))]
    pool.wait(0, lambda *heard: said.append(heard))
    assert said == [("a", Outcome("stopped"))]
    assert run.log.read_text() == "logged"
    run.lock.acquire()  # it is free
    pool.submit("a", wanted)
    pool.wait(0, lambda *heard: said.append(heard))
    assert said[-1][1].state == "locked"
    run.lock.release()
    pool.close()


@pytest.mark.parametrize(
    ("executor", "option"), [(ExecutorConfig(collect=True), "--collect"), (ExecutorConfig(fetch=True), "--fetch")]
)
def test_options_of_ray_without_ray(executor: ExecutorConfig, option: str) -> None:
    with pytest.raises(ValueError, match=f"{option} is for machines of a Ray cluster"), executor.pool():
        pass


def test_memory_is_asked_of_a_machine_that_has_it() -> None:
    nodes = [
        {"Alive": True, "Resources": {"CPU": 2.0, "memory": 4e9}},
        {"Alive": True, "Resources": {"CPU": 1.0, "memory": 64e9}},
        {"Alive": False, "Resources": {"CPU": 99.0, "memory": 999e9}},
    ]
    ray = SimpleNamespace(nodes=lambda: nodes)
    assert room(ray, Wish(None, None, 1, 0.0)) == 2
    assert room(ray, Wish(None, None, 1, 0.0, 8 * 10**9)) == 1
    with pytest.raises(ValueError, match=r"has 2 CPUs and 0 GPUs and 8\.0 GB of memory.*largest has 2 CPUs"):
        room(ray, Wish(None, None, 2, 0.0, 8 * 10**9))


def test_a_process_that_is_connected_already_shares_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(gcs_address="10.0.0.1:6379")
    ray = SimpleNamespace(is_initialized=lambda: True, get_runtime_context=lambda: context)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    pool = RayPool(ExecutorConfig("ray"), 2)
    assert LINES[0].wish.address == "10.0.0.1:6379"
    pool.close()
