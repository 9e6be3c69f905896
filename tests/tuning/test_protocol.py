"""Tuning for a comparison: a choice on validation data, one budget for all methods, fresh seeds, another benchmark."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from torch import nn
from typer.testing import CliRunner

from tests.tuning.test_search import FEW
from tmln.cli import app
from tmln.experiments.config import RunConfig
from tmln.experiments.result import Result, read_result
from tmln.learner import Learner
from tmln.methods.recipes import RECIPES
from tmln.tuning.protocol import Tuned, final_configs, fresh_seeds, has_split, how_chosen, with_split
from tmln.tuning.search import Trial
from tmln.tuning.space import EFFECTIVE_LR, EFFECTIVE_RANGE, LR, apply_point
from tmln.tuning.sweep import draw, spaces_for, spaces_of

BASE = RunConfig(benchmark="split-digits", method="tmln")


def test_a_split_is_there_unless_it_is_turned_off() -> None:
    assert with_split(BASE).resolved()["benchmark_options"]["validation"] == 0.1
    mine = BASE.with_setting("benchmark.validation", 0.3)
    assert with_split(mine) == mine
    assert not has_split(with_split(BASE.with_setting("benchmark.validation", 0)))
    assert has_split(mine)


def test_how_it_was_chosen_in_words() -> None:
    assert how_chosen(["val_acc"], 20) == "chosen on validation data from 20 trials"
    assert how_chosen(["val_fm", "acc"], 3) == "chosen on the test data from 3 trials"


def test_fresh_seeds_by_hand() -> None:
    assert list(fresh_seeds(0, 1, 5)) == [1, 2, 3, 4, 5]
    assert list(fresh_seeds(7, 3, 2)) == [10, 11]


def test_what_is_chosen_is_run_on_the_stage() -> None:
    chosen = Trial(3, BASE.with_setting("lr", 0.05), {"lr": 0.05, "step.damping": 0.2}, (0.5,))
    stage = RunConfig(benchmark="rotated-digits", method="tmln")
    runs = final_configs(Tuned(BASE, {}, [chosen], chosen), stage, [4, 6])
    assert [run.seed for run in runs] == [4, 6]
    assert {(run.benchmark, run.lr, run.settings["step.damping"]) for run in runs} == {("rotated-digits", 0.05, 0.2)}
    assert final_configs(Tuned(BASE, {}, [], None), stage, [4]) == []


def test_the_rate_is_searched_for_every_method_unless_it_is_set() -> None:
    for method in ("naive", "er", "tmln", "joint"):
        base = BASE.with_setting("method", method)
        assert spaces_of(base, None)[EFFECTIVE_LR] == EFFECTIVE_RANGE
        assert len({point.lr for point in draw(base, 4)}) == 4
    assert EFFECTIVE_LR not in spaces_of(BASE.with_setting("lr", 0.1), None)
    assert spaces_of(BASE, {"effective_lr": None}) == {EFFECTIVE_LR: EFFECTIVE_RANGE}
    with pytest.raises(ValueError, match=r"--space effective_lr=-1\.\.1"):
        spaces_of(BASE, {"effective_lr": "-1..1"})
    assert spaces_of(BASE, {"lr": None}) == {"lr": LR}
    fixed = RunConfig(benchmark="split-digits", method="naive", lr=0.1, settings={"step.momentum": 0.0})
    with pytest.raises(ValueError, match="lr is set, and no component of 'naive' declares"):
        spaces_of(fixed, None)


@pytest.mark.parametrize(
    ("values", "factor"),
    [
        ({"method": "adamw"}, 1),
        ({"method": "naive"}, 10),  # 1 / (1 - 0.9)
        ({"method": "naive", "settings": {"step.momentum": 0.5}}, 2),
        ({"method": "sam"}, 10),
        ({"method": "tmln"}, 10),  # 1 / 0.1
        ({"method": "tmln", "settings": {"step.damping": 0.5, "step.momentum": 0.75}}, 8),
        ({"method": "tmln", "settings": {"step.damping": 0.5, "step.match_base_lr": True}}, 1),
        ({"method": "tmln", "settings": {"step.form": "proximal"}}, 1),
        ({"method": "tmln-adam"}, 1),
        ({"method": "ocar", "settings": {"step.damping": 0.25}}, 4),
        ({"method": "slda"}, 1),
    ],
)
def test_an_effective_rate_by_hand(values: dict[str, Any], factor: float) -> None:
    config = RunConfig.of({"benchmark": "split-digits", **values})
    assert apply_point(config, {EFFECTIVE_LR: 0.4}).lr == pytest.approx(0.4 / factor)


def test_an_effective_rate_counts_with_what_is_drawn_beside_it() -> None:
    config = apply_point(BASE, {EFFECTIVE_LR: 0.4, "step.damping": 0.5, "step.momentum": 0.5})
    assert (config.lr, config.settings["step.damping"]) == (0.1, 0.5)


@pytest.mark.parametrize("method", RECIPES)
def test_the_factor_is_the_steps_own_without_momentum(method: str) -> None:
    """The rate that a run reports, which takes no momentum into account, by a learner that is built."""
    config = RunConfig.of({"benchmark": "split-digits", "method": method, "benchmark_options": {"per_class": 4}})
    full = config.resolved()["settings"]
    momentum = next((value for key, value in full.items() if key.endswith(".momentum")), 0.0)
    kind, settings = config.recipe().resolve("step")
    learner = Learner(nn.Linear(4, 4), config.recipe(), lr=0.01)
    factor = kind.lr_factor(settings)  # type: ignore[attr-defined]
    assert factor * (1 - momentum) == pytest.approx(learner.step.effective_lr / 0.01)


def test_a_method_goes_without_a_field_that_its_parts_lack() -> None:
    given = {"lr": "0.01..0.1", "step.damping": None}
    naive = BASE.with_setting("method", "naive")
    spaces, notes = spaces_for([BASE, naive], given)
    assert [list(space) for space in spaces] == [["lr", "step.damping"], ["lr"]]
    assert notes == ["naive: step 'sgd' has no damping, searched without it"]
    with pytest.raises(ValueError, match=r"'naive' has none of step\.damping to search; add --space effective_lr"):
        spaces_for([BASE, naive], {"step.damping": None})
    for text in (None, "1..2"):  # a field that no method has is a slip of the finger
        with pytest.raises(ValueError, match="dampin"):
            spaces_for([naive, BASE], {"lr": None, "step.dampin": text})


def invoke(out: Path, *words: str) -> str:
    few = [*FEW, "--int-reference", "none", "--executor", "serial", "--runs", str(out)]
    done = CliRunner().invoke(app, ["tune", "--benchmark", "split-digits", *words, *few])
    assert done.exit_code == 0, done.output
    return done.output


def results(out: Path) -> dict[str, Result]:
    return {path.parent.name: read_result(path) for path in out.glob("*/result.json")}


def test_several_methods_one_budget_and_fresh_seeds(tmp_path: Path) -> None:
    said = invoke(tmp_path, "--methods", "naive,tmln", "--trials", "2", "--final-seeds", "2")
    (path,) = tmp_path.glob("tune-*.json")
    kept, runs = json.loads(path.read_text()), results(tmp_path)
    assert [one["method"] for one in kept["methods"]] == ["naive", "tmln"]
    for one in kept["methods"]:
        assert len(one["trials"]) == 2
        assert "effective_lr" in one["spaces"]
        best = max(one["trials"], key=lambda trial: runs[trial["runs"][0]].metrics["val_acc"])
        assert one["params"] == best["params"]
        for trial in one["trials"]:
            assert trial["values"] == [runs[trial["runs"][0]].metrics["val_acc"]]
            assert [runs[name].seed for name in trial["runs"]] == kept["seeds"] == [0]
    final = [runs[name] for name in kept["final_runs"]]
    assert sorted((run.method, run.seed) for run in final) == [("naive", 1), ("naive", 2), ("tmln", 1), ("tmln", 2)]
    for run in final:
        (lr,) = [one["lr"] for one in kept["methods"] if one["method"] == run.method]
        assert run.config["lr"] == lr
    assert len(runs) == 2 * 2 + 4
    assert said.count("chosen on validation data from 2 trials") == 3
    assert len(re.findall(r"^val ACC [\d.]+, test ACC [\d.]+ \(trial \d\)$", said, re.M)) == 2
    assert "equal numbers of trials and unequal numbers of searched settings" in said
    assert re.search(
        r"^searched: naive: 2 trials over 2 settings \(effective_lr, step.momentum\); tmln: 2 ", said, re.M
    )
    table = said[said.index("the search: ") :]
    assert "lr=" not in table  # one row a method: trials are in the file, not in the table


def test_tuned_on_one_benchmark_and_reported_on_another(tmp_path: Path) -> None:
    words = ["--method", "naive", "--trials", "2", "--report-on", "rotated-digits", "--final-seeds", "1"]
    said = invoke(tmp_path, *words, "--set", "benchmark.tasks=2")
    runs = results(tmp_path).values()
    assert sorted((run.benchmark, run.seed) for run in runs) == [
        ("rotated-digits", 1),
        ("split-digits", 0),
        ("split-digits", 0),
    ]
    (other,) = [run for run in runs if run.benchmark == "rotated-digits"]
    best = max((run for run in runs if run is not other), key=lambda run: run.metrics["val_acc"])
    assert other.config["lr"] == pytest.approx(best.config["lr"])
    assert "val_acc" not in other.metrics  # nothing is chosen there, and all data are trained on
    assert "chosen on validation data from 2 trials of split-digits" in said


def test_what_is_chosen_may_train_on_the_validation_data(tmp_path: Path) -> None:
    invoke(tmp_path, "--method", "naive", "--trials", "1", "--final-seeds", "1", "--give-back")
    (path,) = tmp_path.glob("tune-*.json")
    kept, runs = json.loads(path.read_text()), results(tmp_path)
    (final,) = kept["final_runs"]
    assert kept["final_runs_keep_the_split"] is False
    assert "val_acc" not in runs[final].metrics
    assert {key for run in runs.values() for key in run.config["benchmark_options"] if key == "validation"}


def test_the_best_of_a_sweep_is_chosen_on_validation_data(tmp_path: Path) -> None:
    few = [*FEW, "--int-reference", "none", "--executor", "serial", "--runs", str(tmp_path), "--method", "naive"]
    done = CliRunner().invoke(app, ["sweep", "--benchmark", "split-digits", "--grid", "lr=0.001,0.1", "--best", *few])
    assert done.exit_code == 0, done.output
    runs = results(tmp_path).values()
    best = max(runs, key=lambda run: run.metrics["val_acc"])
    (line,) = [text for text in done.output.splitlines() if "): val ACC" in text]
    assert line.startswith(f"naive (lr={best.config['lr']}, chosen on validation data from 2): val ACC ")
    assert f"test ACC {100 * best.metrics['acc']:.1f} (1 seed of split-digits)" in line
    assert f"--set lr={best.config['lr']}" in done.output.splitlines()[-1]


def test_without_a_split_it_is_said_that_the_tests_chose(tmp_path: Path) -> None:
    said = invoke(tmp_path, "--method", "naive", "--trials", "1", "--set", "benchmark.validation=0")
    assert "chosen on the test data from 1 trial" in said
