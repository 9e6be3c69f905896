"""Intransigence is against one reference, which every run of the same data, model and seed shares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tmln import metrics
from tmln.fleet.plan import plan
from tmln.lab.config import RunConfig, run_id
from tmln.lab.oracle import reference_config, reference_of, with_reference, with_references
from tmln.lab.store import Store
from tmln.recipes import RECIPES

R = [[0.9, 0.1], [0.5, 0.7]]


def result(config: RunConfig | None, accuracy: list[list[float]] = R, **more: Any) -> dict[str, Any]:
    assert config is not None
    full = config.resolved()
    found = {"acc": 0.6, "fm": 0.4, "own": 1.0}
    return {
        **{key: full[key] for key in ("benchmark", "method", "seed")},
        "config": full,
        "accuracy": accuracy,
        "metrics": found,
        "oracle": "none",
        **more,
    }


BASE = RunConfig.of({"benchmark": "split-digits", "method": "er", "benchmark_options": {"tasks": 2}})
JOINT = [[0.95, 0.0], [0.9, 0.85]]
MERGED = [[0.8, 0.75]]


def test_the_reference_of_the_same_seed_is_used() -> None:
    other = BASE.with_setting("seed", 1)
    runs = [result(BASE), result(other), result(reference_config(BASE, "prefix"), JOINT)]
    first, second, joint = with_references(runs)
    assert first["metrics"]["int"] == pytest.approx(0.85 - 0.7)
    assert first["metrics"]["int_all"] == metrics.intransigence(R, [0.95, 0.85], over="all")
    assert first["oracle"] == "prefix"
    assert first["metrics"]["own"] == 1.0  # what is there stays
    assert "int" not in second["metrics"]
    assert joint is runs[2]
    assert "int" not in runs[0]["metrics"]  # what was given is not touched


def test_the_full_oracle_is_preferred_to_the_shortcut() -> None:
    shortcut = result(reference_config(BASE, "final"), MERGED)
    (first, _) = with_references([result(BASE), shortcut])
    assert (first["oracle"], first["metrics"]["int"]) == ("final", pytest.approx(0.75 - 0.7))
    joint = result(reference_config(BASE, "prefix"), JOINT)
    for given in (result(BASE), first):
        filled = with_references([given, shortcut, joint])[0]
        assert (filled["oracle"], filled["metrics"]["int"]) == ("prefix", pytest.approx(0.85 - 0.7))


def test_a_diverged_reference_is_none() -> None:
    joint = result(reference_config(BASE, "prefix"), JOINT, diverged="the loss is nan")
    assert "int" not in with_references([result(BASE), joint])[0]["metrics"]
    whole = result(reference_config(BASE, "prefix"), JOINT)
    broken = result(BASE, [[0.5, 0.5]], diverged="the loss is nan")
    assert with_references([broken, whole])[0] is broken


def test_results_of_another_version_are_left_as_they_are() -> None:
    old = result(BASE)
    old["config"] = {**old["config"], "forgotten_field": 3}
    assert with_references([old, result(reference_config(BASE, "prefix"), JOINT)])[0] is old
    assert with_references([]) == []


# -- which run is the reference ----------------------------------------------------------------------------------------


@pytest.fixture
def independent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe may be there already; any one that trains will do to test what is made of it."""
    monkeypatch.setitem(RECIPES, "independent", RECIPES.get("independent", RECIPES["naive"]))


CHANGED: dict[str, Any] = {
    "benchmark": "rotated-digits",
    "benchmark_options": {"per_class": 7},
    "model": "cnn",
    "model_options": {"hidden": [7]},
    "epochs": 3,
    "batch_size": 7,
    "seed": 7,
    "logit_mask": "seen",
    "compile": True,
    "train_accuracy": True,
}


@pytest.mark.parametrize("oracle", ["prefix", "final", "independent"])
@pytest.mark.parametrize("key", CHANGED)
def test_data_model_epochs_batch_seed_and_scoring_are_handed_on(oracle: Any, key: str, independent: None) -> None:
    plain = RunConfig(benchmark="split-digits", method="er")
    changed = RunConfig.of({**plain.model_dump(), key: CHANGED[key]})
    usual, wanted = reference_config(plain, oracle), reference_config(changed, oracle)
    assert usual is not None
    assert wanted is not None
    assert getattr(wanted, key) == CHANGED[key]
    assert run_id(wanted) != run_id(usual)
    assert {k for k, v in wanted.model_dump().items() if v != getattr(usual, k)} == {key}


@pytest.mark.parametrize("oracle", ["prefix", "final", "independent"])
@pytest.mark.parametrize(
    "change",
    [{"lr": 0.5}, {"method": "tmln"}, {"replay": "der++"}, {"settings": {"step.momentum": 0.5}}],
    ids=["lr", "method", "part", "setting"],
)
def test_what_is_the_methods_own_is_not(oracle: Any, change: dict[str, Any], independent: None) -> None:
    changed = RunConfig.of({**BASE.model_dump(), **change})
    assert reference_config(changed, oracle) == reference_config(BASE, oracle)


def test_the_kinds_of_reference(independent: None) -> None:
    kinds = [reference_config(BASE, oracle) for oracle in ("prefix", "final", "independent")]
    assert [(kind.method, kind.merged) for kind in kinds if kind] == [
        ("joint", False),
        ("naive", True),
        ("independent", False),
    ]
    assert reference_config(BASE, "none") is None
    for reference in kinds:
        assert reference is not None
        assert [reference_config(reference, oracle) for oracle in ("prefix", "final", "independent")] == [None] * 3
    jobs = plan([BASE, RunConfig.of({**BASE.model_dump(), "method": "independent"})], "independent")
    assert [(job.config.method, job.reference) for job in jobs] == [("independent", False), ("er", False)]


def test_the_independent_reference_is_the_diagonal(tmp_path: Path, independent: None) -> None:
    wanted = reference_config(BASE, "independent")
    assert wanted is not None
    store = Store(tmp_path)
    assert reference_of(store, BASE, "independent") is None
    run = store.open(wanted)
    with run.lock:
        run.finish({"accuracy": [[0.97, 0.1], [0.2, 0.9]], "metrics": {}})
    assert reference_of(store, BASE, "independent") == [0.97, 0.9]
    assert run.result is not None
    filled = with_references([result(BASE), run.result])[0]
    assert (filled["oracle"], filled["metrics"]["int"]) == ("independent", pytest.approx(0.9 - 0.7))


def test_one_kind_can_be_asked_for(independent: None) -> None:
    joint, alone = (result(reference_config(BASE, oracle), JOINT) for oracle in ("prefix", "independent"))
    alone["accuracy"] = [[1.0, 0.0], [0.0, 1.0]]
    runs = [result(BASE), joint, alone]
    found = {oracle: with_references(runs, oracle)[0] for oracle in (None, "prefix", "independent", "final", "none")}
    assert {oracle: one["oracle"] for oracle, one in found.items()} == {
        None: "prefix",
        "prefix": "prefix",
        "independent": "independent",
        "final": "none",
        "none": "none",
    }
    assert found["independent"]["metrics"]["int"] == pytest.approx(0.3)
    assert "int" not in found["final"]["metrics"]


# -- what a result says itself -----------------------------------------------------------------------------------------

FAST = BASE.with_setting("lr", 0.5)
STATED: dict[str, Any] = {"metrics": {"acc": 0.6, "int": 0.11, "int_all": 0.1, "int_last": 0.11}, "oracle": "prefix"}


def stated(config: RunConfig, **more: Any) -> dict[str, Any]:
    return result(config, **{**STATED, **more})


def test_what_was_found_against_the_same_reference_counts_without_it() -> None:
    reference = reference_config(BASE, "prefix")
    assert reference is not None
    for given in (stated(BASE), stated(BASE, reference=run_id(reference)), stated(FAST, reference=run_id(reference))):
        assert with_references([given]) == [given]


def test_what_was_found_against_another_does_not() -> None:
    """Runs that do not name their reference had one at their own rate, which is another where that is not the usual."""
    for given in (stated(FAST), stated(BASE, reference="split-digits-joint-s0-0123456789abcdef")):
        (found,) = with_references([given])
        assert (found["oracle"], found["metrics"]) == ("none", {"acc": 0.6})
        assert given["metrics"]["int"] == 0.11  # what was given is not touched


def test_the_reference_that_is_there_is_better_than_what_was_said() -> None:
    joint = result(reference_config(BASE, "prefix"), JOINT)
    for given in (stated(BASE), stated(FAST)):
        assert with_references([given, joint])[0]["metrics"]["int"] == pytest.approx(0.85 - 0.7)


def test_other_tasks_are_no_reference() -> None:
    joint = result(reference_config(BASE, "prefix"), [[0.9]])
    assert "int" not in with_references([result(BASE), joint])[0]["metrics"]


def test_a_result_is_asked_for_its_own_reference_only() -> None:
    asked: list[tuple[str, RunConfig]] = []

    def find(name: str, config: RunConfig) -> None:
        asked.append((name, config))

    wanted = reference_config(FAST, "prefix")
    assert wanted is not None
    with_reference(result(FAST), find, ("prefix",))
    assert [(name, run_id(config)) for name, config in asked] == [(run_id(wanted), run_id(wanted))]
