"""What a run counts on the way changes nothing of it, comes back after a kill, and agrees with what it says else."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tmln.analysis.read import find_defect
from tmln.evaluation_counts import class_accuracies, unpack_confusion
from tmln.experiments.config import RunConfig
from tmln.experiments.launch import RunOptions
from tmln.experiments.result import Result
from tmln.experiments.run import Execution
from tmln.experiments.run_state import PREDICTIONS, read_predictions
from tmln.experiments.store import Run, Store
from tmln.learner import Learner
from tmln.methods.recipes import RECIPES
from tmln.signals import Interrupted

pytestmark = pytest.mark.usefixtures("narrow")

SMALL = {"tasks": 2, "per_class": 16, "per_class_test": 6}
CONFIG = RunConfig.of({"benchmark": "split-digits", "benchmark_options": SMALL, "epochs": 2, "method": "er"})
WATCHED = RunOptions(eval_every=2, keep=("predictions",))


def finish(root: Path, terms: RunOptions | None = None, config: RunConfig = CONFIG, **more: Any) -> tuple[Run, Result]:
    run = Store(root).open(config)
    with run.lock:
        return run, Execution(run, terms, **more)()


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Result]:
    return finish(tmp_path_factory.mktemp("watched"), WATCHED)


def test_what_is_counted_agrees_with_the_matrix(watched: tuple[Run, Result]) -> None:
    run, result = watched
    assert not find_defect(result)
    tests = [30, 30]  # five classes of six samples each
    for row, text in zip(result.accuracy, result.confusion, strict=True):
        counts = unpack_confusion(text)
        assert counts.sum() == sum(tests)
        assert counts.trace() / counts.sum() == pytest.approx(np.average(row, weights=tests))
        assert np.mean(class_accuracies(counts)) == pytest.approx(np.mean(row))
    assert [sum(count) for count in result.calibration["count"]] == [30, 60]
    assert [sum(right) for right in result.calibration["right"]] == [
        pytest.approx(30 * sum(row[: k + 1])) for k, row in enumerate(result.accuracy)
    ]
    kept = read_predictions(run.path, result.predictions_sha256)
    assert kept["predicted"].shape == (2, 60)
    assert kept["predicted"].dtype == torch.uint8
    for k, row in enumerate(result.accuracy):
        right = (kept["predicted"][k] == kept["true"]).double()
        assert [float(right[kept["task"] == j].mean()) for j in range(2)] == pytest.approx(row)
    # 80 samples in batches of 32 are 3 steps, twice: tests at 2, 4 and 8, 10; at 6 and 12 a task ends
    assert result.within["step"] == [2, 4, 8, 10]
    assert result.within["task"] == [0, 0, 1, 1]
    assert [len(row) for row in result.within["accuracy"]] == [1, 1, 2, 2]
    assert {"aaa", "min_acc", "wc_acc", "worst_class", "ece", "dormant", "feature_rank"} <= result.metrics.keys()


def test_counting_changes_no_bit_of_a_run(tmp_path: Path, watched: tuple[Run, Result]) -> None:
    _, plain = finish(tmp_path)
    for name in ("name", "accuracy", "weights_sha256", "confusion"):
        assert getattr(plain, name) == getattr(watched[1], name), name
    assert not plain.within
    assert "aaa" not in plain.metrics


@pytest.mark.parametrize("stop_at", [3, 6, 8])
def test_a_killed_run_goes_on_with_what_it_counted(tmp_path: Path, watched: tuple[Run, Result], stop_at: int) -> None:
    whole, steps = watched[1], 0

    def stop() -> bool:
        nonlocal steps
        steps += 1
        return steps == stop_at

    with pytest.raises(Interrupted):
        finish(tmp_path, WATCHED, stop=stop)
    run, again = finish(tmp_path, WATCHED)
    for name in ("accuracy", "weights_sha256", "confusion", "calibration", "within", "dormant_units", "feature_rank"):
        assert getattr(again, name) == getattr(whole, name), name
    assert again.predictions_sha256 == whole.predictions_sha256
    assert [line["step"] for line in run.read_log() if "within" in line] == [2, 4, 8, 10]


def test_a_run_goes_on_as_it_began(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        finish(tmp_path, WATCHED, stop=lambda: True)
    with pytest.warns(UserWarning, match="goes on as it began, with --eval-every 2 and --keep predictions"):
        _, result = finish(tmp_path)
    assert result.within["step"] == [2, 4, 8, 10]


def test_damaged_predictions_are_not_read(tmp_path: Path, watched: tuple[Run, Result]) -> None:
    data = (watched[0].path / PREDICTIONS).read_bytes()
    (tmp_path / PREDICTIONS).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(ValueError, match="damaged"):
        read_predictions(tmp_path, watched[1].predictions_sha256)
    with pytest.raises(ValueError, match="--keep predictions"):
        read_predictions(tmp_path, "")


@pytest.mark.parametrize("key", ["dormant_units", "feature_rank"])
def test_odd_values_are_complained_about(watched: tuple[Run, Result], key: str) -> None:
    content = json.loads((watched[0].path / "result.json").read_text())
    assert find_defect(Result.of({**content, key: ["x"]})) == f"its {key.replace('_', ' ')} are no numbers"


@pytest.mark.parametrize("method", sorted(RECIPES))
def test_a_test_within_a_task_changes_no_method(method: str) -> None:
    """Whatever a method keeps between two steps: a test in between is as if it had not been."""
    draw = torch.Generator().manual_seed(0)
    tasks = [(torch.randn(24, 6, generator=draw), torch.randint(2, (24,), generator=draw) + 2 * k) for k in range(2)]
    ends = [weights_after(method, tasks, tested) for tested in (False, True)]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def weights_after(method: str, tasks: list[Any], tested: bool) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 4)]
    model = torch.nn.Sequential(*layers)

    def test(*_: object) -> None:
        if tested:
            learner.evaluate(tasks[0])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner = Learner(model, method, lr=0.01, batch_size=8, seed=1)
        for task in tasks:
            learner.learn(task, on_step=test)
    return model.state_dict()
