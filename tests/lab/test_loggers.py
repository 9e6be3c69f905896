"""Numbers go to TensorBoard and W&B, and a resumed run does not write them twice."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tmln.lab.config import RunConfig
from tmln.lab.loggers import make_logger
from tmln.lab.run import Execution
from tmln.lab.store import Run, Store
from tmln.lab.terms import Terms

SMALL = {"benchmark": "split-digits", "benchmark_options": {"per_class": 24, "per_class_test": 10}, "epochs": 12}


def run_of(root: Path) -> Run:
    return Store(root).open(RunConfig.of({**SMALL, "method": "naive"}))


def test_tensorboard_holds_loss_and_accuracy(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = run_of(tmp_path)
    with run.lock:
        result = Execution(run, Terms(logger="tensorboard"))()
    events = EventAccumulator(str(run.tensorboard))
    events.Reload()
    last = [event.value for event in events.Scalars("accuracy/task 5")]
    assert last == pytest.approx([row[4] for row in result.accuracy])
    assert [event.step for event in events.Scalars("loss")] == [r["step"] for r in run.read_log() if "loss" in r]


def test_what_a_killed_run_wrote_past_its_checkpoint_is_purged(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = run_of(tmp_path)
    killed = make_logger("tensorboard", run, 0)
    assert killed is not None
    for step in (1, 2, 3, 4):
        killed.scalars({"loss": float(step)}, step)
    killed.close()
    resumed = make_logger("tensorboard", run, 2)  # the checkpoint is of step 2
    assert resumed is not None
    resumed.scalars({"loss": 30.0}, 3)
    resumed.close()
    events = EventAccumulator(str(run.tensorboard))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(1, 1.0), (2, 2.0), (3, 30.0)]


def test_wandb_gets_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the package: what it is called with."""
    said: list[Any] = []
    stand_in: Any = types.ModuleType("wandb")
    stand_in.__spec__ = types.SimpleNamespace()

    class Online:
        def log(self, values: dict[str, float], step: int) -> None:
            said.append((step, values))

        def finish(self) -> None:
            said.append("finished")

    def init(**options: Any) -> Online:
        said.append(options)
        return Online()

    stand_in.init = init
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    run = run_of(tmp_path)
    with run.lock:
        Execution(run, Terms(logger="wandb"))()
    assert said[0]["id"] == run.name
    assert said[0]["resume"] == "allow"
    assert said[-1] == "finished"
    assert any("accuracy/seen" in values for _, values in said[1:-1])


def test_loggers_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(tmp_path)
    assert make_logger("none", run, 0) is None
    with pytest.raises(ValueError, match="did you mean 'tensorboard'"):
        make_logger("tensorbord", run, 0)
    monkeypatch.setattr("tmln.lab.loggers.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'tmln\[wandb\]'"):
        make_logger("wandb", run, 0)


def test_wandb_without_a_login_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**_: Any) -> None:
        raise Exception("No API key configured.\nUse wandb login.")

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    monkeypatch.setattr("tmln.lab.loggers.find_spec", lambda name: True)
    with pytest.raises(
        ValueError, match=r"^W&B cannot be started \(No API key configured. Use wandb login.\); log in "
    ):
        make_logger("wandb", run_of(tmp_path), 0)
