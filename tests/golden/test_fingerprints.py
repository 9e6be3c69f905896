"""Moving and renaming code changes no number: every recipe trains to the recorded weights, old files still work."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

import tmln
from tests.golden import states
from tests.golden.fingerprints import FIXTURES, RESULTS, digits_config, fingerprint, fingerprint_of, recorded, run_once
from tmln.analysis.read import read_results
from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.machine import instructions
from tmln.experiments.store import Store
from tmln.learner.state import VERSION
from tmln.methods.recipes import RECIPES

# With other instructions rounding differs: after 30 steps of a small network a few of 100 test samples.
OTHER_CPU = 0.15


@pytest.mark.parametrize("method", RECIPES)
def test_every_recipe_trains_to_the_recorded_weights(method: str) -> None:
    every = recorded()
    here = every.get(instructions(), {})
    if method in here:
        assert fingerprint(method) == here[method], "numbers changed; see python -m tests.golden"
    else:
        other = next(row[method] for row in every.values() if method in row)
        assert fingerprint(method)["accuracy"] == pytest.approx(other["accuracy"], abs=OTHER_CPU)


def test_other_settings_have_other_fingerprints(tmp_path: Path) -> None:
    changed = fingerprint_of(run_once(digits_config("tmln").with_setting("step.trajectory", 1.1), tmp_path))
    assert changed["weights"] not in {row["tmln"]["weights"] for row in recorded().values() if "tmln" in row}


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.name)
def test_published_configurations_keep_their_run_names(path: Path) -> None:
    runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
    assert runs
    wrong = [run["name"] for run in runs if run_id(RunConfig.of(run["config"])) != run["name"]]
    assert not wrong


@pytest.mark.parametrize("fixture", ["unfinished", "unfinished-2"])
def test_a_run_killed_in_task_2_goes_on_to_the_same_result(fixture: str, tmp_path: Path) -> None:
    """From the checkpoints of state versions 1 (tmln 0.2.0) and 2."""
    shutil.copytree(FIXTURES / fixture, tmp_path / "runs")
    (name,) = (path.name for path in (tmp_path / "runs").iterdir())
    assert name == run_id(digits_config("tmln"))
    found = fingerprint_of(run_once(digits_config("tmln"), tmp_path / "runs"))
    expected = recorded().get(instructions())
    if expected is not None and "tmln" in expected:
        assert found == expected["tmln"]
    log = [json.loads(line) for line in (tmp_path / "runs" / name / "log.jsonl").read_text().splitlines()]
    assert [line["task"] for line in log if "accuracy" in line] == [0, 1, 2, 3, 4]  # task 1 is not trained again


def test_a_finished_run_folder_of_version_0_2_is_read(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "finished", tmp_path / "runs")
    run = Store(tmp_path / "runs").open(digits_config("er"))
    result = run.result
    assert result is not None
    expected = json.loads((FIXTURES / "finished" / run.name / "result.json").read_text())
    assert result.weights_sha256 == expected["weights_sha256"]
    assert [list(row) for row in result.accuracy] == expected["accuracy"]
    assert result.metrics["acc"] == pytest.approx(expected["metrics"]["acc"])


def test_a_published_file_of_version_0_2_is_read() -> None:
    results = read_results(FIXTURES / "published.json")[0]
    assert [result.method for result in results] == ["er", "tmln"]
    assert all(result.metrics["acc"] > 0.2 for result in results)


@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_a_state_file_of_every_version_predicts_and_learns_on(version: int) -> None:
    learner = tmln.Learner.load(states.fixture(version), states.network())
    expected = json.loads((FIXTURES / "learner.json").read_text())
    x = torch.tensor(expected["inputs"])
    assert [found.label for found in learner.predict(x)] == expected["labels"]
    learner.learn((x, torch.zeros(len(x), dtype=torch.int64)), classes=["heron"])
    assert learner.tasks == expected["tasks"] + 1


def test_another_format_of_states_is_another_version() -> None:
    """Of components, also what they save and default to; a new component or setting changes no older state."""
    now, then = states.present(), json.loads(states.STATES.read_text(encoding="utf-8"))[str(VERSION)]
    remedy = "raise VERSION in tmln/learner/state.py (if it was released), then: python -m tests.golden state"
    assert now["keys"] == then["keys"], remedy
    for name, component in then["components"].items():
        assert now["components"][name]["saved"] == component["saved"], f"{name}: {remedy}"
        found = {key: now["components"][name]["defaults"].get(key, "gone") for key in component["defaults"]}
        assert found == component["defaults"], f"{name}: {remedy}"
