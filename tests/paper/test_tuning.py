"""Equal tuning: as many trials for all, chosen on validation data of a seed that no table has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.paper.conftest import TINY
from tmln.executors.config import ExecutorConfig
from tmln.executors.execute import execute
from tmln.experiments.launch import RunOptions
from tmln.experiments.store import Store
from tmln.methods.recipes import RECIPES
from tmln.paper import tables, tuning
from tmln.paper.items import ITEMS, plan_jobs
from tmln.paper.scales import SCALES
from tmln.paper.study import Study
from tmln.paper.tuning import MAIN, RATES, SEED, Attempt, choose_best, list_grid

CPU = SCALES["cpu"]


def test_every_method_of_the_tables_is_tuned() -> None:
    named = {line.method for line in tables.list_table1_rows(CPU.setup("core50"))}
    named |= {line.method for line in tables.list_table2_rows(CPU.setup("split-cifar10"))}
    assert {name for name in named if not RECIPES[name].joint} <= MAIN.keys()


@pytest.mark.parametrize("method", MAIN)
def test_all_have_as_many_trials_at_the_same_rates(method: str) -> None:
    stand = CPU.setup("split-cifar10")
    found = list_grid(stand, method)
    assert len(found) == len(RATES) * len(MAIN[method][1]) == 8
    for k, settings in enumerate(found):
        full = tuning.make_trial(stand, method, settings).resolved()
        numbers = full["settings"]
        rate = full["lr"] / (numbers.get("step.damping", 1.0) * (1 - numbers.get("step.momentum", 0.0)))
        assert rate == pytest.approx(RATES[k % len(RATES)])
        assert (full["seed"], full["benchmark_options"]["validation"]) == (SEED, 0.1)


def test_no_table_has_the_seed_of_the_search() -> None:
    assert all(config.seed < SEED for name, item in ITEMS.items() if name != "tuning" for config in item.runs(CPU))


def test_the_best_is_chosen_once_all_have_run() -> None:
    found = [Attempt({"lr": 1}, 0.3), Attempt({"lr": 2}, 0.5), Attempt({"lr": 3}, 0.5), Attempt({}, None, "diverged")]
    assert choose_best(found) is found[1]
    assert choose_best([*found, Attempt({}, None, "not run")]) is None
    assert choose_best(found[3:]) is None


def test_a_search_from_trials_to_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "MAIN", {"er": ("step.momentum", (0.0, 0.9))})
    monkeypatch.setattr(tuning, "RATES", (1e-6, 0.1))
    scale = replace(TINY, tuned=True, setups={"split-cifar10": TINY.setup("split-cifar10")})
    study = Study(scale, Store(tmp_path))
    item = ITEMS["tuning"]
    before = item.render(study)
    assert all(record["why"] == "not run" for record in before.records)
    assert execute(study.store, plan_jobs([item], scale), RunOptions("none"), ExecutorConfig("serial")) == []
    page = item.render(study)
    (chosen,) = [record for record in page.records if record["chosen"]]
    assert chosen["settings"]["lr"] > 1e-3
    assert chosen["val_acc"] == max(record["val_acc"] for record in page.records)
    assert any("the tables use {}" in note for note in page.notes)
    assert tuning.choose_settings(scale, study.store) == {"split-digits": {"er": chosen["settings"]}}
    used = replace(scale.setup("split-cifar10"), chosen={"er": chosen["settings"]})
    assert used.config("er").resolved()["lr"] == chosen["settings"]["lr"]
    again = item.render(replace(study, scale=replace(scale, setups={"split-cifar10": used})))
    assert not any("the tables use" in note for note in again.notes)
