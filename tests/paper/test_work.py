"""Doing the runs: shared by items, never stopped by one that fails, and foretold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.paper.conftest import SMALL, TINY
from tmln.fleet.plan import Job
from tmln.lab.config import run_id
from tmln.lab.store import Store
from tmln.paper.evidence import Study
from tmln.paper.forecast import Kind, forecast, kind_of, try_kind
from tmln.paper.items import ITEMS
from tmln.paper.scales import SCALES
from tmln.paper.work import jobs_of, run_all, waiting

STAND = TINY.stand("split-cifar10")


def test_items_share_their_runs() -> None:
    scale = SCALES["smoke"]
    apart = [{run_id(job.config) for job in jobs_of([item], scale)} for item in ITEMS.values()]
    together = [run_id(job.config) for job in jobs_of(ITEMS.values(), scale)]
    assert len(together) == len(set(together)) < sum(map(len, apart))
    assert set(together) == set().union(*apart)
    assert jobs_of(ITEMS.values(), scale)[0].config.method == "joint"


def test_runs_without_data_wait(nowhere: Study) -> None:
    assert jobs_of(ITEMS.values(), nowhere.scale) == []
    found = waiting([ITEMS["table1"]], nowhere.scale)
    assert found.keys() == {"cifar100", "core50"}


@pytest.mark.parametrize("executor", ["serial", "local"])
def test_a_run_that_fails_stops_no_other(executor: str, tmp_path: Path) -> None:
    broken = STAND.config("er").with_setting("benchmark.tasks", 11)  # of ten classes
    whole = STAND.config("naive")
    failed = run_all(Store(tmp_path), [Job(broken), Job(whole)], executor, 1)
    assert failed.keys() == {run_id(broken)}
    run = Store(tmp_path).find(whole)
    assert run is not None
    assert run.finished


def test_a_kind_is_what_runs_share() -> None:
    assert kind_of(STAND.config("er", 0)) == kind_of(STAND.config("er", 1, {"replay.capacity": 7, "lr": 1.0}))
    assert kind_of(STAND.config("er")) != kind_of(STAND.config("naive"))
    assert kind_of(STAND.config("er")) != kind_of(STAND.config("er", changes={"epochs": 2}))


def test_a_kinds_steps_and_sizes_are_counted() -> None:
    weights = 4 * (64 * 128 + 128 + 128 * 10 + 10)
    speeds: dict[str, float] = {}
    try_kind(STAND.config("naive"), 2, speeds)
    (key,) = speeds
    assert speeds[key] > 0
    naive = try_kind(STAND.config("naive"), 2, {key: 1.0})
    # two tasks of five classes: 50 samples in batches of 32, and 30 tests; each task is tested twice
    assert naive == Kind(2 * 2 + 2 * 60 / 3 / 32, 2, weights, 2 * weights)  # momentum too
    joint = try_kind(STAND.config("joint"), 2, {key: 1.0})  # at the same speed, on one task and then on both
    assert joint.seconds == pytest.approx(2 + 4 + 2 * 60 / 3 / 32)


def test_a_forecast_counts_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tmln.paper.forecast.try_kind", lambda config, tries, speeds: Kind(10.0, 2, 1000, 5000))
    monkeypatch.setattr("tmln.paper.forecast.SMALL", 0)
    store, items = Store(tmp_path), [ITEMS["table2"]]
    jobs = jobs_of(items, TINY)
    assert len(jobs) == 14  # joint and six rows, two seeds
    said = forecast(items, TINY, store, 2)
    assert "14 runs: 0 finished, 0 begun, 14 not begun" in said
    assert any(line.startswith("about 2 min of training: by the best of 2 steps of 0 kinds") for line in said)
    assert any("with 2 workers at a time about 70 s" in line for line in said)
    assert any(line.startswith("at most 0.00 GB") for line in said)
    run_all(store, jobs[:3], "serial")
    store.open(jobs[3].config)
    assert "14 runs: 3 finished, 1 begun, 10 not begun" in forecast(items, TINY, store, 2)


def test_a_forecast_counts_recordings_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tmln.paper.forecast.try_kind", lambda config, tries, speeds: Kind(10.0, 4, 10**9, 0))
    said = forecast([ITEMS["table5"], ITEMS["figure2"]], TINY, Store(tmp_path), 1)
    assert any("s of training and 30 s once more" in line for line in said)  # 6 recordings of 2 tasks of 4, 5 s each
    points = 3 * (1 + 2 * 20) + 3 * (1 + 2)
    assert any(line.startswith(f"at most {points}.00 GB") for line in said)


def test_a_forecast_says_which_data_are_awaited(nowhere: Study) -> None:
    said = forecast([ITEMS["table1"]], nowhere.scale, nowhere.store, 2)
    assert "0 runs: 0 finished, 0 begun, 0 not begun" in said
    assert any("wait for core50, which is not at hand: tmln data get core50" in line for line in said)
    assert said[-1] == "nothing is to be trained"


def test_a_scale_with_other_settings_makes_other_runs() -> None:
    stand = replace(STAND, settings={**SMALL, "epochs": 2})
    assert run_id(stand.config("er")) != run_id(STAND.config("er"))
