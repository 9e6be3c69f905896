"""The three runs, how their curves are taken, and the file that keeps them, which ``python -m tests.golden`` writes.

What is bit-deterministic, and what is not: docs/reliability.md.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch

from tmln.experiments.config import RunConfig
from tmln.experiments.machine import instructions
from tmln.experiments.run import Execution, StepInfo
from tmln.experiments.store import Store

KEPT = Path(__file__).parent / "curves.json"
RUNS = {
    "digits, er": RunConfig.of(
        {"benchmark": "split-digits", "method": "er", "benchmark_options": {"per_class": 40, "tasks": 3}, "epochs": 3}
    ),
    "digits, tmln": RunConfig.of(
        {"benchmark": "split-digits", "method": "tmln", "benchmark_options": {"per_class": 40, "tasks": 3}, "epochs": 3}
    ),
    "images, tmln+": RunConfig.of(
        {
            "benchmark": "split-cifar100",
            "method": "tmln+",
            "model": "convnet",
            "model_options": {"width": 8},
            "benchmark_options": {"per_class": 8, "per_class_test": 10, "tasks": 10, "shrink": 2},
            "settings": {"replay.capacity": 100},
            "batch_size": 32,
            "epochs": 2,
        }
    ),
}


def curve(config: RunConfig) -> dict[str, Any]:
    """The loss of every step, and the accuracy matrix, on one thread."""
    losses: list[float] = []

    def note(moment: StepInfo) -> None:
        losses.append(moment.loss)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = Store(Path(folder)).open(config)
            with run.lock:
                result = Execution(run, on_step=note)()
    finally:
        torch.set_num_threads(threads)
    return {"loss": losses, "accuracy": [list(row) for row in result.accuracy]}


def kept() -> dict[str, dict[str, Any]]:
    """By the CPU's instructions, with which the last bits change: the curves of every run."""
    found: dict[str, dict[str, Any]] = json.loads(KEPT.read_text(encoding="utf-8"))
    return found


def write(anew: bool = False) -> None:
    """The curves as they are now, in place of those with the same instructions; ``anew``, of all that are kept."""
    found = {**({} if anew else kept()), instructions(): {name: curve(config) for name, config in RUNS.items()}}
    KEPT.write_text(json.dumps(found, indent=None, separators=(",", ":")).replace('},"', '},\n"') + "\n")
