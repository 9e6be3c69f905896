"""State files and run folders of others: nothing is built larger than what is in them, fetched, or made elsewhere."""

from __future__ import annotations

import resource
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tmln.deploy.learn import LearnRequest, learn_into
from tmln.deploy.state_file import learner_of_run, open_learner
from tmln.experiments.config import RunConfig
from tmln.experiments.run import Execution
from tmln.experiments.store import Store
from tmln.learner.checkpoint import load_file, save_file


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("state")
    np.savez(root / "a.npz", x=np.random.RandomState(0).rand(20, 4).astype(np.float32), y=np.arange(20) % 2)
    learn_into(root / "s.tmln", root / "a.npz", LearnRequest(epochs=1, settings={"model.hidden": "8"}))
    return root / "s.tmln"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("options", {"hidden": 50_000_000}),
        ("options", {"hidden": [1] * 200_000}),
        ("options", {"hidden": 8, "depth": 10**9}),
        ("options", {"hidden": 8, "more": 1}),
        ("outputs", 2**30),
        ("outputs", 10**12),
        ("shape", [2**15, 2**15]),
        ("shape", [4, 2**20]),
        ("shape", [-4]),
        ("mean", [0.0, 0.0]),
        ("std", [0.0]),
        ("std", [float("nan")]),
        ("model", "helper:Network"),
        ("model", "resnet18"),
        ("model", 3),
        ("freeze", "yes"),
        ("head", "linear.weight"),
    ],
)
def test_a_model_is_no_larger_than_its_file(key: str, value: Any, state: Path, tmp_path: Path) -> None:
    content = load_file(state)
    content["about"] = {**content["about"], "freeze": key == "head", key: value}
    save_file(tmp_path / "hostile.tmln", content)
    begin, memory = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r"\S") as caught:
        open_learner(tmp_path / "hostile.tmln")
    assert "\n" not in str(caught.value)
    assert time.monotonic() - begin < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 100_000  # KiB


def test_notes_of_the_users_own_stay(state: Path, tmp_path: Path) -> None:
    learner = open_learner(state)
    learner.about["note"] = {"camera": 2}
    learner.save(tmp_path / "s.tmln")
    assert open_learner(tmp_path / "s.tmln").about["note"] == {"camera": 2}


def test_a_run_folder_is_the_one_that_it_is_named_by(tmp_path: Path) -> None:
    config = RunConfig(benchmark="split-digits", method="er", benchmark_options={"per_class": 12}, epochs=1)
    run = Store(tmp_path / "runs").open(config)
    with run.lock:
        Execution(run)()
    plain = yaml.safe_load((run.path / "config.yaml").read_text())
    (run.path / "config.yaml").write_text(
        yaml.safe_dump({**plain, "settings": {**plain["settings"], "replay.path": str(tmp_path / "elsewhere")}})
    )
    shutil.rmtree(run.path / "checkpoint", ignore_errors=True)  # so that it learns again
    learner_of_run(run.path)  # where a memory is, is no part of a run's name: it is left out
    assert not (tmp_path / "elsewhere").exists()
    (run.path / "config.yaml").write_text(yaml.safe_dump({**plain, "seed": 5}))
    with pytest.raises(ValueError, match=r"config"):
        learner_of_run(run.path)
