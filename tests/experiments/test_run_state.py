"""The state in a checkpoint: its schema, versions newer and older, and damage by meaning behind a right checksum."""

from __future__ import annotations

import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.golden.fingerprints import FIXTURES, digits_config
from tmln.experiments.result import Observations
from tmln.experiments.run import Execution
from tmln.experiments.run_state import VERSION, RunState
from tmln.experiments.store import Store
from tmln.learner.checkpoint import NewerFormat

OBSERVED = Observations(accuracy=[[0.5, 0.25]], baseline=[0.1, 0.2], seconds=1.0, steps=8, extra_accuracy={"x": [0.5]})
STATE = RunState({"tasks": 1}, OBSERVED, ["predictions"], [torch.arange(3)], 10, 5)


def test_a_state_comes_back() -> None:
    found = RunState.of(STATE.to_plain())
    assert found.observations.accuracy == OBSERVED.accuracy
    assert (found.observations.baseline, found.observations.extra_accuracy) == ([0.1, 0.2], {"x": [0.5]})
    assert (found.learner, found.keep, found.log_size, found.log_crc32) == ({"tasks": 1}, ["predictions"], 10, 5)
    assert torch.equal(found.predicted[0], torch.arange(3))


ODD: dict[str, Any] = {
    "learner": [],
    "keep": "predictions",
    "predicted": [1],
    "log_size": "10",
    "unheard_of": 1,
    "observations.steps": 8.5,
    "observations.baseline": ["a"],
    "observations.accuracy": {"a": 1},
    "observations.unheard_of": 1,
    "observations": None,
    "version": "2",
}


@pytest.mark.parametrize("key", ODD)
def test_what_is_of_another_kind_is_no_state(key: str) -> None:
    plain: Any = STATE.to_plain()
    inside = plain["observations"] if "." in key else plain
    inside[key.rpartition(".")[2]] = ODD[key]
    with pytest.raises(ValueError, match=r"^(?!.*\n)(its state|it is of another version)"):
        RunState.of(plain)


def test_a_newer_version_says_upgrade_and_an_older_one_that_is_unknown_says_what_to_do() -> None:
    with pytest.raises(NewerFormat, match=f"version {VERSION + 1}, .* upgrade tmln"):
        RunState.of({**STATE.to_plain(), "version": VERSION + 1})
    with pytest.raises(ValueError, match="another version of tmln"):
        RunState.of({"accuracy": [], "learner": {}})


def resume(tmp_path: Path, **changes: Any) -> None:
    """Resume the frozen run after its checkpoint's state was changed, its checksum with it."""
    shutil.copytree(FIXTURES / "unfinished-2", tmp_path / "runs")
    (file,) = (tmp_path / "runs").glob("*/checkpoint/*/state.json")
    content = json.loads(file.read_text())["content"]
    content["state"].update(changes)
    file.write_text(json.dumps({"checksum": zlib.crc32(json.dumps(content).encode()), "content": content}))
    run = Store(tmp_path / "runs").open(digits_config("tmln"))
    with run.lock:
        Execution(run)


@pytest.mark.parametrize("changes", [{"learner": {}}, {"learner": {"tasks": "x"}}, {"x": 1}, {"version": 4}], ids=str)
def test_a_run_whose_checkpoint_cannot_be_used_says_what_to_do(changes: dict[str, Any], tmp_path: Path) -> None:
    words = "upgrade tmln" if "version" in changes else "remove its folder checkpoint"
    with pytest.raises(ValueError, match=rf"^(?!.*\n)the checkpoint of run split-digits-tmln.* {words}"):
        resume(tmp_path, **changes)
