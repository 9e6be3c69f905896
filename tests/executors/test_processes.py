"""Worker processes: how each ends is known, whoever ends it, and whatever becomes of the server that forks them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from torch import Tensor

from tests.experiments.killing import Mortal, config, gone
from tmln.executors.interfaces import Outcome, RunRequest
from tmln.executors.plan import Job
from tmln.executors.processes import START, ProcessExecutor, start_server
from tmln.experiments.config import RunConfig
from tmln.experiments.launch import RunOptions
from tmln.experiments.run import StepInfo

if TYPE_CHECKING:
    from tmln.executors.interfaces import Message

pytestmark = pytest.mark.skipif(START.get_start_method() != "forkserver", reason="workers are forks on Linux only")
LONG = 100_000  # epochs


class Loud(Mortal):
    """Prints a line and ends its process."""

    def forward(self, x: Tensor) -> Tensor:
        os.write(1, b"first\nno such device\n")
        os._exit(3)


class Work:
    """A pool at some runs, and what was heard of each."""

    def __init__(self, root: Path) -> None:
        self.pool, self.root = ProcessExecutor(3, 3), root
        self.heard: dict[str, list[Message]] = {}

    def submit(self, name: str, wanted: RunConfig) -> None:
        self.heard[name] = []
        self.pool.submit(name, RunRequest(Job(wanted), str(self.root), RunOptions(allow_code=True)))

    def until(self, kind: type[StepInfo] | type[Outcome], *names: str) -> None:
        while not all(any(isinstance(message, kind) for message in self.heard[name]) for name in names):
            self.pool.wait(0.1, lambda name, message: self.heard[name].append(message))

    def outcome(self, name: str) -> Outcome:
        self.until(Outcome, name)
        last = self.heard[name][-1]
        assert isinstance(last, Outcome)
        return last

    def pids(self) -> list[int]:
        return [int(worker.process.pid or 0) for worker in self.pool._workers]


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    work = Work(tmp_path)
    yield work
    work.pool.close()


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_one_that_is_killed_is_told_the_others_go_on_and_all_end_with_the_pool(work: Work) -> None:
    for name, seed in (("a", 0), ("b", 1)):
        work.submit(name, config(epochs=LONG, seed=seed))
    work.until(StepInfo, "a", "b")
    first, second = pids = work.pids()
    assert parent_of(first) == parent_of(second) != os.getpid()
    assert [os.getsid(pid) for pid in pids] == pids  # Ctrl-C in the terminal does not reach them
    os.kill(first, signal.SIGKILL)
    outcome = work.outcome("a")
    assert (outcome.state, outcome.error) == ("lost", "its process was killed by SIGKILL; out of memory?")
    work.heard["b"].clear()
    work.until(StepInfo, "b")
    work.pool.stop()
    assert work.outcome("b").state == "stopped"
    work.pool.close()
    assert gone(second)


def test_the_last_line_of_one_that_ends_is_told(work: Work, tmp_path: Path) -> None:
    options = {"after": str(tmp_path / "after"), "at": 0}
    work.submit("a", config(model=f"{__name__}:Loud", model_options=options))
    assert work.outcome("a").error == "its process ended with exit code 3 (no such device)"


def test_a_worker_does_one_run_after_another(work: Work) -> None:
    for seed in range(2):
        work.submit("a", config(epochs=1, seed=seed))
        assert work.outcome("a").state == "finished"
    assert len(work.pids()) == 1


def test_when_the_server_is_killed_workers_go_on_and_another_is_started(work: Work) -> None:
    work.submit("a", config(epochs=LONG))
    work.until(StepInfo, "a")
    (first,) = work.pids()
    server = parent_of(first)
    os.kill(server, signal.SIGKILL)
    work.heard["a"].clear()
    work.until(StepInfo, "a")
    work.submit("b", config(epochs=1))
    assert work.outcome("b").state == "finished"
    assert parent_of(work.pids()[1]) not in (server, os.getpid())
    os.kill(first, signal.SIGKILL)
    assert work.outcome("a").state == "lost"


def test_signals_and_threads_are_as_before_once_the_server_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(forkserver, "ensure_running", lambda: seen.append(os.environ["OMP_NUM_THREADS"]))
    seen: list[str] = []
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    start_server()
    assert seen == ["1"]
    assert "OMP_NUM_THREADS" not in os.environ
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked
