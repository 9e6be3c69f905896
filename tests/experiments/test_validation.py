"""Runs with a validation split: what they record, that nobody trains on it, and that a stop changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.experiments.test_run import comparable, config, finish
from tmln import metrics
from tmln.experiments.build import build, merge
from tmln.experiments.command import command_of
from tmln.experiments.reference_runs import reference_config
from tmln.experiments.result import ORACLES
from tmln.learner.evaluation import evaluate
from tmln.signals import Interrupted

SPLIT: dict[str, Any] = {"benchmark_options": {"per_class": 24, "per_class_test": 10, "validation": 0.25}}


@pytest.mark.parametrize("method", ["tmln", "joint"])
def test_the_result_has_a_matrix_of_its_own(method: str, tmp_path: Path) -> None:
    wanted = config(method, **SPLIT)
    result = finish(tmp_path, wanted)
    stream, learner = build(wanted)
    for k, task in enumerate(stream):
        learner.learn(task.train, result.config["epochs"], classes=task.classes)
        found = [evaluate(learner.model, other.validation, stream.prepare) for other in stream if other.validation]
        assert [each["accuracy"] for each in found] == result.validation_accuracy[k]
    assert result.metrics["val_acc"] == metrics.average_accuracy(result.validation_accuracy)
    assert result.metrics["val_fm"] == metrics.forgetting(result.validation_accuracy)


def test_a_run_without_a_split_has_none(tmp_path: Path) -> None:
    result = finish(tmp_path, config("naive"))
    assert list(result.validation_accuracy) == []
    assert "val_acc" not in result.metrics


def test_stopped_and_resumed_it_is_the_same_to_the_bit(tmp_path: Path) -> None:
    wanted = config("er", **SPLIT)
    whole = finish(tmp_path / "whole", wanted)
    for at in (3, whole.steps // 2, whole.steps - 1):
        steps: list[int] = []
        told = {"on_step": lambda moment, seen=steps: seen.append(moment.step)}
        with pytest.raises(Interrupted):
            finish(tmp_path / str(at), wanted, **told, stop=lambda at=at, seen=steps: seen[-1] == at)
        resumed = finish(tmp_path / str(at), wanted)
        assert comparable(resumed) == comparable(whole)
        assert resumed.validation_accuracy == whole.validation_accuracy


def test_references_do_not_train_on_it_either() -> None:
    wanted = config(**SPLIT)
    for oracle in ORACLES:
        reference = reference_config(wanted, oracle)
        assert reference is not None
        assert reference.resolved()["benchmark_options"]["validation"] == 0.25
    stream, _ = build(wanted)
    assert len(merge(stream).train) == 10 * 18


def test_the_command_names_it() -> None:
    assert "--set benchmark.validation=0.25" in command_of(config(**SPLIT))
    assert "validation" not in command_of(config())
