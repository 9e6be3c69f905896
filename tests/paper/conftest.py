"""A scale so small that every item of the paper is made in seconds, and one whose data are not there."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tmln.executors.config import ExecutorConfig
from tmln.executors.execute import execute
from tmln.experiments.config import RunConfig
from tmln.experiments.launch import RunOptions
from tmln.experiments.store import Store
from tmln.measure.overhead import PeakMemory
from tmln.paper import measurements, recipes, shield, tables
from tmln.paper.anchors import Anchor
from tmln.paper.items import ITEMS, plan_jobs
from tmln.paper.published import TABLE6
from tmln.paper.scales import SCALES, BenchmarkSetup, Scale
from tmln.paper.study import Study

SMALL = {"benchmark.per_class": 10, "benchmark.per_class_test": 6, "benchmark.tasks": 2, "epochs": 1}
TINY = Scale(
    "smoke",
    "seconds",
    {
        "split-cifar100": BenchmarkSetup("split-cifar100", "split-digits", SMALL),
        "split-cifar10": BenchmarkSetup("split-cifar10", "split-digits", SMALL),
        "core50": BenchmarkSetup("core50", "rotated-digits", SMALL),
    },
    seeds=2,
    grid_seeds=1,
    resolution=3,
    samples=10,
    rounds=2,
    larger={"model.hidden": 32},
    anchors=(Anchor("split-digits", "er", SMALL, 90.0, "a library", "two tasks"),),
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*strength.*", category=UserWarning)
        yield


@pytest.fixture(scope="package", autouse=True)
def _few() -> Iterator[None]:
    """A few methods, one value of each grid, no processes for memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "TABLE1_METHODS", ("joint", "naive", "tmln"))
        patch.setattr(recipes, "METHODS", ("tmln", "tmln+"))
        patch.setattr(recipes, "CONFIRM_METHODS", ("tmln", "tmln+"))
        patch.setattr(shield, "SHIELDS", shield.SHIELDS[:1])
        patch.setattr(shield, "FEWER", (2,))
        patch.setattr(shield, "MEMORIES", (20,))
        patch.setattr(shield, "SEEDS", 2)
        patch.setattr(shield, "DOMAINS", TINY.setup("core50"))
        patch.setattr(measurements, "TABLE4_METHODS", ("naive", "rwalk", "tmln"))
        patch.setattr(measurements, "TABLE4_STEPS", 3)
        patch.setattr("tmln.measure.overhead.measure_peak_memory", lambda config, threads: PeakMemory(10**8))
        patch.setattr(tables, "SWEPT", {m: tables.SWEPT[m] for m in ("naive", "rwalk", "ocar")})
        first = {method: dict(list(grid.items())[:1]) for method, grid in TABLE6.items()}
        patch.setattr(tables, "TABLE6", first)
        yield


@pytest.fixture(scope="package")
def store(tmp_path_factory: pytest.TempPathFactory, _few: None) -> Store:
    """Every run of the tiny scale, done once."""
    store = Store(tmp_path_factory.mktemp("paper") / "runs")
    assert execute(store, plan_jobs(ITEMS.values(), TINY), RunOptions("prefix"), ExecutorConfig("serial")) == []
    return store


@pytest.fixture
def study(store: Store) -> Study:
    return Study(TINY, store)


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """The full scale where no data set is at hand."""
    monkeypatch.setenv("TMLN_DATA", str(tmp_path / "no-data"))
    return Study(SCALES["full"], Store(tmp_path / "runs"))


def finish(store: Store, config: RunConfig, accuracy: list[list[float]], **more: Any) -> None:
    """A made-up result."""
    last = accuracy[-1] if accuracy else [float("nan")]
    found = {"metrics": {"acc": sum(last) / len(last), "fm": 0.25}, "accuracy": accuracy, "seconds": 1.0}
    run = store.open(config)
    with run.lock:
        run.finish({**found, **more})


def single(study: Study) -> Study:
    return replace(study, scale=replace(study.scale, seeds=1))
