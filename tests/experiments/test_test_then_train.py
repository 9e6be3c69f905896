"""The online protocol: each batch is predicted before it is trained on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.experiments.test_run import comparable, config, finish
from tests.experiments.test_run_numbers import stopped_at
from tmln.evaluation_counts import online_accuracies
from tmln.experiments.build import build
from tmln.experiments.config import run_id
from tmln.experiments.result import FORMAT, read_result
from tmln.experiments.run_state import VERSION, RunState
from tmln.experiments.store import Store
from tmln.learner.checkpoint import read_newest
from tmln.signals import Interrupted


def online(method: str = "er", **changes: Any) -> Any:
    return config(method, test_then_train=True, **changes)


@pytest.mark.parametrize("method", ["naive", "er"])
def test_counts_are_those_of_a_loop_by_hand(tmp_path: Path, method: str) -> None:
    result = finish(tmp_path, online(method))
    stream, learner = build(online(method))
    right = [0] * len(stream)

    def count(epoch: int, number: int, x: torch.Tensor, y: torch.Tensor) -> None:
        if epoch == 0:
            learner.model.eval()
            right[learner.tasks] += int((learner.model(learner.prepare(x)).argmax(1) == y).sum())
            learner.model.train()

    for task in stream:
        learner.learn(task.train, learner_epochs(method), classes=task.classes, on_batch=count)
    found = result.online
    assert [sum(n for task, n in zip(found["task"], found["samples"], strict=True) if task == k) for k in range(2)] == [
        len(task.train) for task in stream
    ][:2]
    expected = [count / len(task.train) for count, task in zip(right, stream, strict=True)]
    assert online_accuracies(found) == pytest.approx(expected)
    total = sum(right) / sum(len(task.train) for task in stream)
    assert result.metrics["online"] == pytest.approx(total)


def learner_epochs(method: str) -> int:
    return int(config(method).resolved()["epochs"])


def test_training_is_unaffected_and_the_file_is_read_again(tmp_path: Path) -> None:
    plain, tested = finish(tmp_path, config("er")), finish(tmp_path, online("er"))
    assert tested.weights_sha256 == plain.weights_sha256
    assert tested.accuracy == plain.accuracy
    assert plain.name == run_id(config("er"))
    assert plain.name != tested.name
    written = [json.loads((tmp_path / one.name / "result.json").read_text()) for one in (plain, tested)]
    assert [one["format"] for one in written] == [2, FORMAT]
    assert "online" not in written[0]  # earlier versions read it
    assert read_result(tmp_path / tested.name / "result.json").online == tested.online
    lines = [json.loads(line) for line in (tmp_path / tested.name / "log.jsonl").read_text().splitlines()]
    assert [line["online"] for line in lines if "online" in line] == pytest.approx(online_accuracies(tested.online))


@pytest.mark.parametrize("step", [1, 7])
def test_a_run_that_was_stopped_goes_on_counting(tmp_path: Path, step: int) -> None:
    whole = finish(tmp_path / "whole", online("er"))
    with pytest.raises(Interrupted):
        finish(tmp_path / "cut", online("er"), **stopped_at(step))
    run = Store(tmp_path / "cut").open(online("er"))
    saved = read_newest(run.checkpoints)
    assert saved is not None
    assert saved[0]["version"] == VERSION
    assert RunState.of(saved[0]).observations.online["task"]
    assert comparable(finish(tmp_path / "cut", online("er"))) == comparable(whole)


def test_a_checkpoint_without_counts_is_as_before(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        finish(tmp_path, config("er"), **stopped_at(3))
    saved = read_newest(Store(tmp_path).open(config("er")).checkpoints)
    assert saved is not None
    assert saved[0]["version"] == 2
    assert "online" not in saved[0]["observations"]


def test_a_method_that_takes_no_steps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"test_then_train=true .* step 'frozen' takes none"):
        finish(tmp_path, online("slda"))
