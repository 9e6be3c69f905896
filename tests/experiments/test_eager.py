"""Runs that compile nothing do not import torch's compiler."""

from __future__ import annotations

import subprocess
import sys

import torch
from torch.optim import Optimizer

from tmln.experiments.eager import CALLS, REMEMBERED, eager

RUN = """
import sys
from pathlib import Path
from tmln.executors.config import ExecutorConfig
from tmln.executors.execute import execute
from tmln.executors.plan import Job
from tmln.experiments.config import RunConfig
from tmln.experiments.store import Store

for method in ("er", "tmln", "tmln-kfac+", "ocar"):
    config = RunConfig(benchmark="split-digits", method=method).with_settings({"epochs": 1, "benchmark.tasks": 2})
    assert not execute(Store(Path(sys.argv[1])), [Job(config)], executor=ExecutorConfig("serial"))
    assert "torch._dynamo" not in sys.modules, method
"""


def test_runs_do_not_import_the_compiler(tmp_path: object) -> None:
    subprocess.run([sys.executable, "-c", RUN, str(tmp_path)], check=True)


def test_afterwards_all_is_as_it_was() -> None:
    plain = [vars(Optimizer)[name].__wrapped__ for name in CALLS]
    with eager():
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
        optimizer.zero_grad()
        optimizer.load_state_dict(optimizer.state_dict())
    assert not any(vars(call).get(REMEMBERED) is call for call in plain)


def test_torch_still_remembers_there_what_to_call() -> None:
    """If torch does it otherwise, nothing fails but time is lost: this says so."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
    optimizer.zero_grad()
    assert hasattr(vars(Optimizer)["zero_grad"].__wrapped__, REMEMBERED)
