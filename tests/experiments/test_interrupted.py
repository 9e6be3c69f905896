"""Interrupted in any phase a run ends soon, and goes on from its last checkpoint to the bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from tests.cli.typed import typed
from tests.experiments.killing import PATIENCE, config, gone, worker_of
from tests.experiments.test_run import comparable, result_of
from tmln import signals
from tmln.executors.config import ExecutorConfig
from tmln.executors.execute import Event, execute
from tmln.executors.plan import Job, plan
from tmln.experiments.launch import RunOptions
from tmln.experiments.reference_runs import reference_config
from tmln.experiments.store import Store
from tmln.models import MLP
from tmln.signals import Interrupted


def stuck(number: int) -> None:
    """A phase that would go on for ever: nothing but the signal ends it."""
    signal.raise_signal(number)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        time.sleep(0.01)
    raise AssertionError("nobody came")


def at_call(monkeypatch: pytest.MonkeyPatch, target: str, which: int, number: int) -> None:
    """The signal comes in the nth call of a function."""
    true: Callable[..., Any] = resolve_name(target)
    calls: list[int] = []

    def call(*arguments: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == which:
            stuck(number)
        return true(*arguments, **named)

    monkeypatch.setattr(target, call)


PHASES = {
    "reading the data": ("tmln.experiments.build.make_stream", 1),
    "planning the memory": ("tmln.experiments.run.fit_to_memory", 1),
    "the first tests": ("tmln.learner.learner.evaluate_tasks", 1),
    "the tests after a task": ("tmln.learner.learner.evaluate_tasks", 3),
    "a Fisher pass": ("tmln.methods.steps.tmln.diagonal_fisher", 2),
    "a boundary": ("tmln.methods.steps.tmln.TMLNStep.end", 2),
    "the result": ("tmln.experiments.run.fingerprint", 1),
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store that has the run, done without interruption."""
    store = Store(tmp_path_factory.mktemp("whole"))
    assert execute(store, [Job(config("tmln"))]) == []
    return store


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("phase", PHASES)
def test_interrupted_in_a_phase_it_goes_on_to_the_bit(
    phase: str, number: int, undisturbed: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "ASKED", 0.05)
    job = Job(config("tmln"))
    at_call(monkeypatch, *PHASES[phase], number)
    with pytest.raises(Interrupted, match="the same command goes on"):
        execute(Store(tmp_path / "stopped"), [job], RunOptions(checkpoint_steps=4))
    monkeypatch.undo()
    assert Store(tmp_path / "stopped").open(job.config).result is None
    assert execute(Store(tmp_path / "stopped"), [job], RunOptions(checkpoint_steps=4)) == []
    stores = [undisturbed, Store(tmp_path / "stopped")]
    runs = [store.open(job.config) for store in stores]
    whole, stopped = (comparable(result_of(store, job.config)) for store in stores)
    assert whole == stopped
    assert runs[0].read_log() == runs[1].read_log()


def test_interrupted_in_a_joint_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "ASKED", 0.05)
    jobs = plan([config("tmln")], "prefix")
    at_call(monkeypatch, "tmln.learner.learner.evaluate_tasks", 3, signal.SIGTERM)
    with pytest.raises(Interrupted):
        execute(Store(tmp_path), jobs, RunOptions("prefix"), ExecutorConfig("serial"))
    monkeypatch.undo()
    assert execute(Store(tmp_path), jobs, RunOptions("prefix"), ExecutorConfig("serial")) == []
    wanted = reference_config(config("tmln"), "prefix")
    assert wanted is not None
    for each in (wanted, config("tmln")):
        assert Store(tmp_path).open(each).finished


class Deaf(MLP):
    """From its third training pass on it is one long call that hears no signal."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(64, 16, classes)
        self.left = 3

    def forward(self, x: Any) -> Any:
        self.left -= self.training
        if self.left < 0:
            import hashlib

            hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
        return super().forward(x)


@pytest.mark.usefixtures("warm")
def test_workers_that_hear_nothing_end_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMLN_ALLOW_CODE", "1")
    monkeypatch.setattr(signals, "ASKED", 1e6)  # the schedule asks by itself
    jobs = [Job(config("naive", model=f"{__name__}:Deaf", seed=seed)) for seed in (0, 1)]
    pids: list[int] = []

    def look(event: Event) -> None:
        if event.info is not None:
            pids.extend(pid for job in jobs if (pid := worker_of(Store(tmp_path).open(job.config))) is not None)
            signal.raise_signal(signal.SIGTERM) if not os.environ.get("SENT") else None
            monkeypatch.setenv("SENT", "1")

    with pytest.raises(Interrupted, match="stopped with 2 of 2 runs to go"):
        execute(Store(tmp_path), jobs, RunOptions(), ExecutorConfig(workers=2), on_event=look)
    assert pids
    assert all(gone(pid) for pid in pids)


WITHOUT_ROOM = """
import resource, runpy
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))
runpy.run_module("tmln", run_name="__main__", alter_sys=True)
"""


@pytest.mark.usefixtures("warm")
def test_a_sweep_without_room_stops_with_the_line_of_the_first_that_met_it(tmp_path: Path) -> None:
    """Not one failure after the other; with room the same goes on."""
    few = ["--set", "benchmark.per_class=24", "--set", "benchmark.per_class_test=10", "--epochs", "1"]
    words = [
        "sweep",
        "--benchmark",
        "split-digits",
        "--grid",
        "step.damping=0.1,0.2,0.3,0.4",
        *few,
        "--int-reference",
        "none",
    ]
    words += ["--checkpoint-steps", "3", "--runs", str(tmp_path / "runs")]
    met = subprocess.run(
        [sys.executable, "-c", WITHOUT_ROOM, *words, "--workers", "1"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert met.returncode == 2, met.stderr
    last = met.stderr.strip().splitlines()[-1]
    assert last.startswith(f"tmln: cannot write {tmp_path}/runs/split-digits-tmln-s0-")
    assert met.stderr.count("cannot write") == 1
    assert "Traceback" not in met.stderr
    again = typed(*words, "--executor", "serial")
    assert again.returncode == 0, again.stderr
