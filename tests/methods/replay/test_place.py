"""Replay parts with their memory on disk: the same run, the same bits, whatever is killed, fails or moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.launch import RunOptions
from tmln.experiments.result import Result
from tmln.experiments.run import Execution
from tmln.experiments.store import Store
from tmln.learner import Learner
from tmln.methods.replay import REPLAYS
from tmln.signals import Interrupted

WITH_MEMORY = [name for name, part in REPLAYS.items() if "capacity" in part.Settings.model_fields]
SMALL = {"benchmark": "split-digits", "benchmark_options": {"per_class": 24, "per_class_test": 10}, "epochs": 2}


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 6))


def task(k: int) -> tuple[Tensor, Tensor]:
    y = torch.arange(30) % 2 + 2 * k
    return torch.randn(30, 5, generator=torch.Generator().manual_seed(k)) + y[:, None], y


def learner(name: str, place: Path | None) -> Learner:
    settings: dict[str, Any] = {"replay.capacity": 12, "replay.path": None if place is None else str(place)}
    return Learner(network(), replay=name, step="tmln", settings=settings, batch_size=10)


def weights(learned: Learner) -> Tensor:
    return torch.cat([p.detach().flatten() for p in learned.model.parameters()])


class Stop(Exception):
    """What a user's own callback raises."""


def stop_at(number: int) -> Any:
    def on_step(epoch: int, step: int, loss: float) -> None:
        if step == number:
            raise Stop

    return on_step


@pytest.mark.parametrize("name", WITH_MEMORY)
def test_a_learner_learns_the_same_saved_loaded_and_failed_on_the_way(name: str, tmp_path: Path) -> None:
    ram, disk = learner(name, None), learner(name, tmp_path / "place")
    for k in range(3):
        ram.learn(task(k), epochs=2)
    disk.learn(task(0), epochs=2)
    disk.save(tmp_path / "saved")
    disk.learn(task(2), epochs=2)  # went astray: back to what was saved
    disk = Learner.load(tmp_path / "saved", network())
    assert disk.replay.memory is not None
    assert list(disk.replay.memory.state_dict()) == ["capacity", "seen", "generator", "files"]
    disk.learn(task(1), epochs=2)
    with pytest.raises(Stop):
        disk.learn(task(2), epochs=2, on_step=stop_at(1))
    disk.learn(task(2), epochs=2)
    assert torch.equal(weights(disk), weights(ram))


def test_a_first_task_that_fails(tmp_path: Path) -> None:
    ram, disk = learner("er-ace", None), learner("er-ace", tmp_path)
    with pytest.raises(Stop):
        disk.learn(task(0), on_step=stop_at(2))
    assert disk.replay.memory is not None
    assert len(disk.replay.memory) == 0
    for one in (ram, disk):
        one.learn(task(0))
        one.learn(task(1))
    assert torch.equal(weights(disk), weights(ram))


def config(place: Path | None, **changes: Any) -> RunConfig:
    settings = {"replay.capacity": 20, **({} if place is None else {"replay.path": str(place)})}
    return RunConfig.of({**SMALL, "method": "tmln+der++", "settings": settings, **changes})


def finish(root: Path, wanted: RunConfig, stop_after: int | None = None) -> Result | None:
    """The result; none if it was stopped, after so many steps from here."""
    run, steps = Store(root).open(wanted), [0]

    def stop() -> bool:
        steps[0] += 1
        return stop_after is not None and steps[0] >= stop_after

    with run.lock:
        try:
            return Execution(run, RunOptions(checkpoint_steps=3), stop=stop)()
        except Interrupted:
            return None


def test_where_the_memory_is_does_not_concern_what_a_run_is(tmp_path: Path) -> None:
    assert run_id(config(tmp_path)) == run_id(config(None))
    assert config(tmp_path).resolved() == config(None).resolved()
    assert str(tmp_path) not in config(tmp_path).to_yaml()
    with pytest.raises(ValueError, match=r"replay\.path = 3"):
        config(None, method="er", settings={"replay.path": 3})


def test_runs_share_a_place_and_go_on_there_or_elsewhere(tmp_path: Path) -> None:
    place = tmp_path / "place"
    expected = [finish(tmp_path / "ram", config(None, seed=seed)) for seed in (0, 1)]
    assert finish(tmp_path / "disk", config(place, seed=0), stop_after=7) is None
    assert finish(tmp_path / "disk", config(place, seed=1), stop_after=11) is None
    assert len(list(place.glob("memory-*"))) == 2
    assert finish(tmp_path / "disk", config(place, seed=0), stop_after=5) is None
    assert len(list(place.glob("memory-*"))) == 2
    found = [finish(tmp_path / "disk", config(place, seed=0)), finish(tmp_path / "disk", config(None, seed=1))]
    for one, other in zip(found, expected, strict=True):
        assert one is not None
        assert other is not None
        assert one.weights_sha256 == other.weights_sha256
        assert one.accuracy == other.accuracy
