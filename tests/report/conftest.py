"""Folders of runs that are written, not trained: every number in them is known."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.report.browser import chromium
from tmln.analysis.read import attach_references
from tmln.experiments.config import RunConfig
from tmln.experiments.files import to_json
from tmln.experiments.identity import run_name
from tmln.experiments.result import Result, checksum_of

TASKS = 3
LONG = "split-digits-of-somebody-with-a-very-long-name-for-a-benchmark"
JOINT = 0.99  # what the reference of INT has on every task when it has just learned it


def matrix(base: float, drop: float) -> list[list[float]]:
    """A task is learned to ``base`` and loses ``drop`` with every later one."""
    return [[max(0.0, base - drop * (k - j)) if j <= k else 0.0 for j in range(TASKS)] for k in range(TASKS)]


def result(method: str, seed: int, base: float = 0.9, drop: float = 0.1, **more: Any) -> dict[str, Any]:
    """A finished run of split-digits in three tasks, whatever the method is called."""
    known = more.pop("known", method if method.isascii() and method.isalpha() else "er")
    values = {
        "benchmark": "split-digits",
        "benchmark_options": {"tasks": TASKS},
        "method": known,
        "seed": seed,
        "settings": more.pop("settings", {}),
    }
    config = {**RunConfig.of(values).resolved(), "method": method}
    config["benchmark"] = benchmark = more.pop("benchmark", "split-digits")
    accuracy = matrix(base, drop)
    last = accuracy[-1]
    return {
        "benchmark": benchmark,
        "method": method,
        "seed": seed,
        "config": config,
        "accuracy": accuracy,
        "metrics": {"acc": math.fsum(last) / TASKS, "fm": 1.5 * drop, "int": JOINT - base, **more.pop("metrics", {})},
        "oracle": "prefix",
        "diverged": None,
        "steps": 10,
        "seconds": 1.0 + seed,
        "parameters": 123,
        "stream": {"class_order": list(range(10))},
        "versions": {"tmln": "0.1.0", "torch": "2.6.0", "python": "3.11.0"},
        **more,
    }


def keep(folder: Path, results: list[dict[str, Any]]) -> Path:
    """Written as runs are: one folder each, named by its configuration."""
    for one in results:
        place = folder / run_name(one["config"])
        place.mkdir(parents=True)
        content = json.loads(to_json({"format": 2, **one}))  # also what no run would write
        (place / "result.json").write_text(json.dumps({**content, "checksum": checksum_of(content)}), encoding="utf-8")
        (place / "config.yaml").write_text("benchmark: split-digits\n", encoding="utf-8")
    return folder


def read(results: list[dict[str, Any]]) -> list[Result]:
    """As they are read from a folder."""
    return attach_references(Result.of(one, run_name(one["config"])) for one in results)


def usual() -> list[dict[str, Any]]:
    """Two methods that differ clearly, one in two settings, one that lacks a seed, one run that diverged."""
    return [
        *(result("tmln", seed, 0.95 + 0.01 * seed, 0.02) for seed in range(3)),
        *(result("tmln", seed, 0.93 - 0.02 * seed, 0.05, settings={"step.damping": 0.5}) for seed in range(3)),
        *(result("er", seed, 0.9 + 0.015 * seed * seed, 0.1) for seed in range(2)),
        *(result("naive", seed, 0.8 + 0.01 * seed, 0.4) for seed in range(3)),
        result("ewc", 0, 0.7, 0.3),
        result("ewc", 1, 0.7, 0.3, accuracy=[[0.5, 0.0, 0.0]], metrics={"acc": math.nan}, diverged="the loss is nan"),
        *(result("joint", seed, JOINT, 0.0) for seed in range(3)),
    ]


def swept() -> list[dict[str, Any]]:
    """tmln in a grid of 7 x 2, chosen on validation data; er in 2, chosen on the tests; two more benchmarks."""
    runs = []
    for step, damping in enumerate((0.001, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0)):
        for trajectory in (1.0, 2.0):
            base = 0.97 - 0.01 * abs(step - 2) - 0.01 * trajectory
            more = {"settings": {"step.damping": damping, "step.trajectory": trajectory}, "effective_rate": 0.1}
            accuracy = [[base] * 3] * 3
            runs += [result("tmln", s, base + 0.004 * s, 0.02, validation_accuracy=accuracy, **more) for s in range(3)]
    for capacity, base in ((100, 0.8), (500, 0.85)):
        runs += [result("er", s, base + 0.01 * s * s, 0.1, settings={"replay.capacity": capacity}) for s in range(3)]
    for where in ("split-digits", "apart", LONG):
        for method, base in (("naive", 0.75), ("joint", 0.98), *(() if where == "split-digits" else (("tmln", 0.9),))):
            runs += [result(method, s, base + 0.006 * s, 0.0, benchmark=where, effective_rate=0.01) for s in range(3)]
    return runs


browser = pytest.fixture(scope="package")(chromium)  # it takes longer to start than most tests with it


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return keep(tmp_path / "runs", usual())
