"""Recordings: the run's own weights, at the steps asked for, trained once and read again."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from tmln.experiments.build import build
from tmln.experiments.config import RunConfig
from tmln.experiments.result import write_result
from tmln.experiments.run import Execution, StepInfo, fingerprint
from tmln.experiments.store import Store
from tmln.measure import trajectory
from tmln.measure.trajectory import Recording, record, record_all, recording_path

SMALL = {"benchmark": "split-digits", "benchmark_options": {"per_class": 24, "per_class_test": 10}, "epochs": 2}


def config(method: str = "tmln", **changes: Any) -> RunConfig:
    return RunConfig.of({**SMALL, "method": method, **changes})


def test_it_is_the_runs_own_way(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run = store.open(config())
    with run.lock:
        result = Execution(run)()
    found = record(config(), store, checkpoints=0)
    assert (found.note, found.diverged) == ("", None)
    assert [(point.task, point.step) for point in found.checkpoints] == [
        (0, 0),
        (0, 4),
        (1, 8),
        (2, 12),
        (3, 16),
        (4, 20),
    ]
    assert found.solutions == found.checkpoints[1:]
    model = found.model
    model.load_state_dict(found.solutions[-1].state)
    assert fingerprint(model) == result.weights_sha256
    _, fresh = build(config())
    assert all(torch.equal(value, found.start.state[name]) for name, value in fresh.model.state_dict().items())
    weights = found.weights(found.start)
    assert weights.dtype == torch.float64
    assert len(weights) == result.parameters
    assert torch.equal(weights[:64], fresh.model.state_dict()["hidden.0.weight"][0].double())


def test_methods_start_at_the_same_weights(tmp_path: Path) -> None:
    one, two = (record(config(method), Store(tmp_path), tasks=1, checkpoints=0) for method in ("naive", "ewc++"))
    assert list(Store(tmp_path).runs()) == [], "a recording is no run"
    assert torch.equal(one.weights(one.start), two.weights(two.start))
    assert not torch.equal(one.weights(one.solutions[0]), two.weights(two.solutions[0]))


def test_checkpoints_are_evenly_spaced_and_a_part_of_the_same_way(tmp_path: Path) -> None:
    seen: list[StepInfo] = []
    store = Store(tmp_path)
    short = record(config("naive", epochs=3), store, tasks=2, checkpoints=4, on_step=seen.append)
    steps = [(point.task, point.step, point.solution) for point in short.checkpoints]
    first = [(0, 0, False), (0, 1, False), (0, 3, False), (0, 4, False), (0, 6, True)]
    assert steps == [*first, (1, 7, False), (1, 9, False), (1, 10, False), (1, 12, True)]
    assert [moment.step for moment in seen] == list(range(1, 13))
    assert {moment.steps for moment in seen} == {12}
    whole = record(config("naive", epochs=3), store, checkpoints=0)
    for mine, other in zip(short.solutions, whole.solutions, strict=False):
        assert torch.equal(short.weights(mine), whole.weights(other))
    many = record(config("naive", epochs=3), store, tasks=1, checkpoints=100)
    assert [point.step for point in many.checkpoints] == [0, 1, 2, 3, 4, 5, 6]


def test_what_was_recorded_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    model = {"model": "resnet18-slim", "model_options": {"width": 2}}  # channels_last weights, running statistics
    one = record(config("naive", **model), store, tasks=1, checkpoints=2)

    def never(*_: Any) -> None:
        raise AssertionError("it was trained again")

    monkeypatch.setattr(trajectory, "_train", never)
    two = record(config("naive", **model), store, tasks=1, checkpoints=2)
    for mine, other in zip(one.checkpoints, two.checkpoints, strict=True):
        assert (mine.task, mine.step, mine.solution) == (other.task, other.step, other.solution)
        assert all(torch.equal(value, other.state[name]) for name, value in mine.state.items())
    record_all([config("naive", **model)], store, tasks=1, checkpoints=2)
    with pytest.raises(AssertionError, match="again"):
        record(config("naive", **model), store, tasks=1, checkpoints=3)


def test_a_damaged_recording_is_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(tmp_path)
    one = record(config(), store, tasks=1)
    path = recording_path(store, config(), 1, 20)
    path.write_bytes(path.read_bytes()[:1000])
    with caplog.at_level(logging.WARNING):
        two = record(config(), store, tasks=1)
    assert "recorded again" in caplog.text
    assert torch.equal(one.weights(one.solutions[0]), two.weights(two.solutions[0]))


def test_another_result_is_noted(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run = store.open(config("naive"))
    with run.lock:
        Execution(run)()
    file = run.path / "result.json"
    write_result(file, {**json.loads(file.read_text()), "weights_sha256": "0" * 64})
    assert "not, to the last bit" in record(config("naive"), store, checkpoints=0).note
    assert not record(config("naive"), store, tasks=2, checkpoints=0).note  # a part cannot tell


def test_a_run_that_diverges_is_recorded_so_far(tmp_path: Path) -> None:
    found = record(config("naive", lr=1e12), Store(tmp_path))
    assert found.diverged is not None
    assert found.solutions == ()
    again: Recording = record(config("naive", lr=1e12), Store(tmp_path))
    assert again.diverged == found.diverged


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        ({"merged": True}, {}, "merged run"),
        ({}, {"tasks": 6}, "has 5 task"),
        ({}, {"tasks": 0}, "at least 1 task"),
        ({}, {"checkpoints": -1}, "not None and -1"),
    ],
    ids=["merged", "too many tasks", "no task", "negative"],
)
def test_mistakes_are_answered(tmp_path: Path, changes: dict[str, Any], options: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        record(config("naive", **changes), Store(tmp_path), **options)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
