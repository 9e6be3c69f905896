"""The runs: shared by items, waiting for data, and foretold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.paper.conftest import SMALL, TINY
from tmln.executors.config import ExecutorConfig
from tmln.executors.estimate import RunEstimate
from tmln.executors.execute import execute
from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.launch import RunOptions
from tmln.experiments.store import Store
from tmln.paper.items import ITEMS, estimate_study, group_by_data, plan_jobs
from tmln.paper.scales import SCALES, Scale
from tmln.paper.study import Study

STAND = TINY.setup("split-cifar10")


def test_items_share_their_runs() -> None:
    scale = SCALES["smoke"]
    apart = [{run_id(job.config) for job in plan_jobs([item], scale)} for item in ITEMS.values()]
    together = [run_id(job.config) for job in plan_jobs(ITEMS.values(), scale)]
    assert len(together) == len(set(together)) < sum(map(len, apart))
    assert set(together) == set().union(*apart)
    assert plan_jobs(ITEMS.values(), scale)[0].config.method == "joint"


def test_runs_without_data_wait(nowhere: Study) -> None:
    assert {job.config.benchmark for job in plan_jobs(ITEMS.values(), nowhere.scale)} == {"rotated-digits"}
    found = group_by_data([ITEMS["table1"]], nowhere.scale)
    assert found.keys() == {"cifar100", "core50"}


@pytest.fixture
def foreseen(monkeypatch: pytest.MonkeyPatch) -> list[RunConfig]:
    """Ten seconds a run, four tasks, a gigabyte of weights; nothing is tried."""
    asked: list[RunConfig] = []
    gib = 2**30

    def outlook(configs: Sequence[RunConfig], terms: RunOptions) -> Any:
        asked.extend(configs)
        need = RunEstimate(10.0, 1, steps=100, tasks=4, model_bytes=gib, disk=gib, memory=gib)
        return SimpleNamespace(
            estimate=lambda config: need,
            timings={"a": SimpleNamespace(memory=SimpleNamespace(pieces=None))},
            kinds=3,
            load=0.1,
        )

    monkeypatch.setattr("tmln.executors.estimate.Estimator", outlook)
    return asked


def said(store: Store, *items: str) -> list[str]:
    return estimate_study([ITEMS[item] for item in items], TINY, store, RunOptions("prefix"), ExecutorConfig(workers=2))


def test_a_forecast_counts_what_is_left(tmp_path: Path, foreseen: list[RunConfig]) -> None:
    store = Store(tmp_path)
    jobs = plan_jobs([ITEMS["table2"]], TINY)
    assert len(jobs) == 14  # joint and six rows, two seeds
    lines = said(store, "table2")
    assert "14 runs: 0 finished, 0 begun, 14 not begun" in lines
    assert [config.method for config in foreseen] == [job.config.method for job in jobs]
    assert lines[-2].startswith(
        "about 70 s on this machine in its present state, 2 at a time (a few steps of 1 of 3 kinds"
    )
    assert lines[-1].startswith("at most 1.1 GB of memory for each run (calculated), of ")
    assert lines[-1].endswith("; up to 15.0 GB of disk for checkpoints")
    assert execute(store, jobs[:3], RunOptions("prefix"), ExecutorConfig("serial")) == []
    store.open(jobs[3].config)
    assert "14 runs: 3 finished, 1 begun, 10 not begun" in said(store, "table2")


@pytest.mark.usefixtures("foreseen")
def test_a_forecast_counts_recordings_once(tmp_path: Path) -> None:
    points = 3 * (1 + 2 * 20) + 3 * (1 + 2)  # 6 recordings of 2 tasks of 4, 5 s each
    wanted = f"then 30 s to train once more and record weights, {1024 * points} MiB of them"
    assert said(Store(tmp_path), "table5", "figure2")[-1] == wanted


def test_a_forecast_says_which_data_are_awaited(nowhere: Study) -> None:
    lines = estimate_study([ITEMS["table1"]], nowhere.scale, nowhere.store, RunOptions(), ExecutorConfig())
    assert "0 runs: 0 finished, 0 begun, 0 not begun" in lines
    assert any("wait for core50, which is not at hand: tmln data get core50" in line for line in lines)
    assert lines[-1] == "nothing is to be trained"


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_only_a_forecast_says_how_long(scale: Scale) -> None:
    assert not re.search("minutes|hours|days", scale.about)


def test_a_scale_with_other_settings_makes_other_runs() -> None:
    stand = replace(STAND, settings={**SMALL, "epochs": 2})
    assert run_id(stand.config("er")) != run_id(STAND.config("er"))
