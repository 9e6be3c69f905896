"""Sweeps: which runs a grid, a draw and a space come to, what parts declare, and how mistakes are answered."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tmln.cli import app
from tmln.executors.execute import Failure
from tmln.executors.plan import Job
from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.store import Store
from tmln.methods import read_settings
from tmln.methods.recipes import FAMILIES, RECIPES
from tmln.tuning.space import Choices, Range, declared_spaces, read_space, read_values
from tmln.tuning.sweep import draw, read_grid, read_spaces, spaces_of, sweep

BASE = RunConfig(benchmark="split-digits", method="tmln")


def base(method: str) -> RunConfig:
    return RunConfig(benchmark="split-digits", method=method)


def values_of(configs: list[RunConfig], key: str) -> list[Any]:
    return [config.resolved()["settings"].get(key) for config in configs]


def test_a_grid_is_every_combination_times_seeds() -> None:
    found = sweep([BASE], {"step.trajectory": [0.1, 1], "lr": [0.01, 0.02]}, seeds=2)
    seen = [(c.settings["step.trajectory"], c.lr, c.seed) for c in found.configs]
    assert seen == [(t, lr, seed) for t in (0.1, 1) for lr in (0.01, 0.02) for seed in (0, 1)]
    assert not found.notes


def test_seeds_go_on_from_the_bases_own() -> None:
    assert [c.seed for c in sweep([BASE.with_setting("seed", 5)], {"lr": [0.1]}, seeds=3).configs] == [5, 6, 7]


def test_a_method_without_the_setting_is_run_once_and_it_is_said() -> None:
    found = sweep([BASE, base("er")], {"step.trajectory": [0.1, 1, 10]}, seeds=2)
    methods = [config.method for config in found.configs]
    assert (methods.count("tmln"), methods.count("er")) == (6, 2)
    assert found.notes == ["step 'sgd' has no trajectory: run without it"]


def test_a_part_in_the_grid_decides_which_settings_apply() -> None:
    found = sweep([BASE], {"step": ["tmln", "sgd"], "step.damping": [0.1, 0.2]})
    assert values_of(found.configs, "step.damping") == [0.1, 0.2, None]
    assert found.notes == ["step 'sgd' has no damping: run without it"]


@given(
    st.lists(st.sampled_from([0.1, 0.2, 1, 1.0, 2]), min_size=1, max_size=4),
    st.lists(st.sampled_from([0.01, 0.02, 1e-2]), min_size=1, max_size=3),
    st.integers(1, 3),
)
@settings(max_examples=20, deadline=None)
def test_every_run_is_there_once(dampings: list[float], rates: list[float], seeds: int) -> None:
    found = sweep([BASE], {"step.damping": dampings, "lr": rates}, seeds=seeds).configs
    assert len(found) == len(set(dampings)) * len(set(rates)) * seeds == len({run_id(config) for config in found})


def test_more_draws_add_to_those_before() -> None:
    space: dict[str, str | None] = {"step.damping": "1e-4..10", "replay.batch": "16,32", "epochs": "1..9"}
    few, many = draw(BASE, 5, space), draw(BASE, 50, space)
    assert many[:5] == few
    dampings, batches = values_of(many, "step.damping"), values_of(many, "replay.batch")
    assert all(1e-4 <= value <= 10 for value in dampings)
    assert sum(value < 0.0316 for value in dampings) in range(15, 36)  # the middle of the logarithms, 3.2 sigma
    assert set(batches) == {16, 32}
    assert {config.epochs for config in many} == set(range(1, 10))
    assert len({tuple(c.settings.items()) for c in many}) == 50


def test_draws_come_for_each_point_of_the_grid() -> None:
    found = sweep([BASE, base("naive")], {"lr": [0.1, 0.2]}, draws=3, space={"step.damping": "0.1..1"}).configs
    assert [config.method for config in found] == ["tmln"] * 6 + ["naive"] * 2
    assert values_of(found[:3], "step.damping") == values_of(found[3:6], "step.damping")


def test_what_is_set_is_not_searched_unless_named() -> None:
    fixed = BASE.with_setting("step.damping", 0.3)
    assert set(spaces_of(BASE, None)) - set(spaces_of(fixed, None)) == {"step.damping"}
    assert set(spaces_of(fixed, {"step.damping": None})) == {"step.damping"}


@pytest.mark.parametrize("method", RECIPES)
def test_momentum_is_searched_for_every_method_that_has_it(method: str) -> None:
    full = base(method).resolved()["settings"]
    momenta = {key for key in full if key.rpartition(".")[2] == "momentum"}
    if full.get("step.base") == "adam":  # whose direction excludes it
        momenta = set()
    assert momenta <= set(spaces_of(base(method), None))


def test_a_space_that_other_settings_exclude_is_left_out() -> None:
    assert spaces_of(BASE, None)["step.momentum"] == Range(0, 0.99)
    adam = BASE.with_setting("step.base", "adam")
    assert "step.momentum" not in spaces_of(adam, None)
    assert "step.damping" in spaces_of(adam, None)


@pytest.mark.parametrize(
    ("text", "key", "space"),
    [
        ("1e-4..10", "step.damping", Range(1e-4, 10, log=True)),
        ("1..100", "step.damping", Range(1, 100, log=True)),
        ("1..9", "step.damping", Range(1, 9)),
        ("1..9:log", "step.damping", Range(1, 9, log=True)),
        ("0.1..10:linear", "step.damping", Range(0.1, 10)),
        ("0..0.9", "step.momentum", Range(0, 0.9)),
        ("2..40", "epochs", Range(2, 40, log=True, whole=True)),
        ("32, 64", "batch_size", Choices((32, 64))),
        ("fisher,euclidean", "step.geometry", Choices(("fisher", "euclidean"))),
    ],
)
def test_spaces_as_written(text: str, key: str, space: Range | Choices) -> None:
    assert read_space(text, BASE, key) == space


def test_points_of_a_space() -> None:
    assert [Range(0.01, 100, log=True).at(share) for share in (0, 0.25, 0.5, 1)] == [0.01, 0.1, 1, 100]
    assert [Range(-1, 3).at(share) for share in (0, 0.5, 1)] == [-1, 1, 3]
    assert Range(0, 1).at(1 / 3) == 0.3333
    assert [Range(1, 4, whole=True).at(share) for share in (0, 0.5, 0.9999)] == [1, 2, 4]
    assert [Choices(("a", "b")).at(share) for share in (0, 0.49, 0.5, 0.9999)] == ["a", "a", "b", "b"]


def test_values_keep_what_is_in_brackets_together() -> None:
    assert read_values("1e-3, 2,x,true,[1,2],[3]") == [1e-3, 2, "x", True, [1, 2], [3]]
    assert read_grid(["lr=0.1,1", "lr=2", "step=sgd"]) == {"lr": [0.1, 1, 2], "step": ["sgd"]}


COMPONENTS = [(family, name) for family, table in FAMILIES.items() for name in table]


@pytest.mark.parametrize(("family", "name"), COMPONENTS, ids=[f"{family}-{name}" for family, name in COMPONENTS])
def test_what_every_component_declares_is_allowed_and_holds_its_default(family: str, name: str) -> None:
    part = FAMILIES[family][name]
    found = declared_spaces(RunConfig.of({"benchmark": "split-digits", family: name}), names=True)
    for key, space in found.items():
        setting = key.partition(".")[2]
        if not key.startswith(f"{family}."):
            continue
        if setting.startswith("inner."):
            continue  # the inner part's, which is walked as itself
        default = part.Settings.model_fields[setting].default
        if isinstance(space, Range):
            assert space.low <= default <= space.high
            assert space.whole == isinstance(default, int)
            ends: tuple[Any, ...] = (space.at(0), space.at(0.5), space.at(1))
        else:
            assert default in space.values
            ends = space.values
        for value in ends:
            assert getattr(read_settings(part, {setting: value}), setting) == value
    mine = [key for key in found if key.startswith(f"{family}.")]
    unsearched = (  # their numbers are a budget, or decide no prediction
        "none", "er", "er-ace", "last", "stable", "bias-corrected", "argmax", "ncm", "stream-ncm", "cosine", "frozen",
    )  # fmt: skip
    assert mine or name in unsearched


@pytest.mark.parametrize("method", RECIPES)
def test_every_method_has_something_to_search(method: str) -> None:
    spaces = spaces_of(base(method), None)
    assert spaces
    for point in draw(base(method), 5):
        point.resolved()
    assert all(isinstance(s, Range) or not isinstance(s.values[0], (bool, str)) for s in spaces.values())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--grid", "step.trajectry=1,2"], "did you mean 'trajectory'"),
        (["--grid", "stp.damping=1"], "did you mean 'step.damping'"),
        (["--grid", "epoch=1,2"], "did you mean 'epochs'"),
        (["--grid", "step.trajectory="], "the grid of step.trajectory is empty"),
        (["--grid", "step.trajectory=,"], "the grid of step.trajectory is empty"),
        (["--grid", "step.trajectory"], "KEY=V1,V2"),
        (["--grid", "step.trajectory=-1"], "greater than or equal to 0"),
        (["--grid", "lr=" + ",".join(map(str, range(1, 400))), "--seeds", "999"], "more than 100000"),
        ([], "nothing to sweep"),
        (["--methods", ","], "--methods is empty"),
        (["--methods", "er,tmln", "--method", "er"], "not both"),
        (["--methods", "er,tlmn"], "did you mean 'tmln'"),
        (["--space", "lr=1..2"], "--random N"),
        (["--random", "3", "--space", "epochs"], "declares a space for 'epochs'"),
        (["--random", "3", "--space", "step.dampin"], "did you mean 'damping'"),
        (["--grid", "step=sgd", "--grid", "step.damping=1"], "'sgd' has no setting 'damping'"),
        (["--random", "3", "--space", "step.damping=1..x"], "a range is LOW..HIGH"),
        (["--random", "3", "--space", "step.damping=2..1"], "from a number to a larger one"),
        (["--random", "3", "--space", "step.damping=0..1"], "greater than 0"),
        (["--random", "3", "--space", "step.damping=1..2:lg"], "log or linear"),
        (["--random", "3", "--space", "step.damping="], "--space takes"),
        (["--grid", "lr=1", "--executor", "lokal"], "did you mean 'local'"),
        (["--grid", "lr=1", "--address", "host:1"], "use --executor ray"),
    ],
)
def test_mistakes_are_answered(words: list[str], said: str, tmp_path: Path) -> None:
    words = ["sweep", "--benchmark", "split-digits", "--runs", str(tmp_path), "--int-reference", "none", *words]
    result = CliRunner().invoke(app, words)
    assert result.exit_code != 0
    assert isinstance(result.exception, ValueError)
    assert said in str(result.exception)
    assert "\n" not in str(result.exception)


def test_a_logarithm_begins_above_zero() -> None:
    with pytest.raises(ValueError, match="begins above 0, not at 0"):
        Range(0, 1, log=True)
    with pytest.raises(ValueError, match="0 draws and 1 seed"):
        sweep([BASE], seeds=0)
    with pytest.raises(ValueError, match="no values"):
        sweep([BASE], {"lr": []})
    with pytest.raises(ValueError, match="--space takes"):
        read_spaces(["=1..2"])


def test_a_dry_run_tells_what_is_there_and_what_is_to_come(tmp_path: Path) -> None:
    few = ["--set", "benchmark.per_class=24", "--set", "benchmark.per_class_test=10", "--epochs", "1"]
    words = ["sweep", "--benchmark", "split-digits", "--grid", "step.damping=0.1,1", "--seeds", "2", *few]
    done = RunConfig.of({"benchmark": "split-digits", "epochs": 1, "benchmark_options": {"per_class": 24}})
    done = done.with_settings({"benchmark.per_class_test": 10, "step.damping": 1})
    run = Store(tmp_path).open(done)
    with run.lock:
        run.finish({"accuracy": [[1.0]], "metrics": {"acc": 1.0, "fm": 0.0}})
    text = CliRunner().invoke(app, [*words, "--runs", str(tmp_path), "--dry-run"]).output
    assert "6 runs: 1 finished, 0 begun, 5 not begun; 2 of them as references for INT" in text
    assert re.search(
        r"about [\d.]+ s on this machine in its present state, \d at a time \(a few steps of each kind timed", text
    )
    assert "of disk for checkpoints" in text
    assert len(list(tmp_path.glob("split-*"))) == 1


def test_the_end_says_what_diverged_failed_or_is_of_other_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = sweep([BASE], {"step.damping": [0.1, 1]}, seeds=2).configs
    for number, config in enumerate(configs[:3]):
        run = Store(tmp_path).open(config)
        with run.lock:
            found = {"accuracy": [[1.0]], "metrics": {"acc": 0.5, "fm": 0.1}, "seconds": 1.0}
            diverged = "the loss is nan" if number == 1 else None
            run.finish({**found, "diverged": diverged, "versions": {"tmln": f"0.{number}", "torch": "2"}})
    failure = Failure(Job(configs[3]), "no space left on device")
    monkeypatch.setattr("tmln.executors.execute.execute", lambda *words, **options: [failure])
    words = [
        "sweep",
        "--benchmark",
        "split-digits",
        "--grid",
        "step.damping=0.1,1",
        "--seeds",
        "2",
        "--int-reference",
        "none",
    ]
    result = CliRunner().invoke(app, [*words, "--runs", str(tmp_path)], env={"COLUMNS": "200"})
    assert result.exit_code == 1
    for line in (
        "runs that diverged are left out of means: tmln step.damping=0.1: seed 1",
        "seeds that others have are missing: tmln step.damping=1.0: seed 1",
        "INT is not there: no joint reference has run",
        "runs were made with several versions of tmln: 0.0 (1 run); 0.1 (1 run); 0.2 (1 run)",
        "failed: tmln, seed 1: no space left on device",
        "1 of 4 runs failed; the same command tries them again",
    ):
        assert line in result.output
    assert "versions of torch" not in result.output


def test_a_job_is_called_by_method_and_seed() -> None:
    assert Job(BASE).label == "tmln, seed 0"
