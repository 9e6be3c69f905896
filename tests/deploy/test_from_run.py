"""A run of the lab becomes a state: with its weights to the bit, and the names of its classes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tmln.deploy.state_file import learner_of_run, open_learner
from tmln.experiments.config import RunConfig
from tmln.experiments.run import Execution, fingerprint
from tmln.experiments.store import Store


def test_a_finished_run_goes_on_as_a_state(tmp_path: Path) -> None:
    config = RunConfig(benchmark="split-digits", method="tmln", benchmark_options={"per_class": 20}, epochs=1)
    run = Store(tmp_path / "runs").open(config)
    with run.lock:
        result = Execution(run)()
    learner = learner_of_run(run.path)
    assert fingerprint(learner.model) == result.weights_sha256
    assert learner.names == tuple("0123456789")
    learner.save(tmp_path / "digits.tmln")
    again = open_learner(tmp_path / "digits.tmln")
    assert fingerprint(again.model) == result.weights_sha256
    again.learn((torch.randint(17, (20, 1, 8, 8), dtype=torch.uint8), torch.zeros(20, dtype=torch.long)), classes=["a"])
    assert again.names[-1] == "a"
    again.undo()
    assert again.names == learner.names


def test_what_is_no_finished_run(tmp_path: Path) -> None:
    (tmp_path / "runs" / "nothing").mkdir(parents=True)
    with pytest.raises(ValueError, match="no finished run"):
        learner_of_run(tmp_path / "runs" / "nothing")
