"""Intransigence is against one reference, found by its name: in the folder, or as the result says it was there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tmln import metrics
from tmln.analysis.read import attach_reference, attach_references, with_reference_names
from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.reference_runs import reference_config, reference_names
from tmln.experiments.result import Oracle, Result

R = [[0.9, 0.1], [0.5, 0.7]]
BASE = RunConfig.of({"benchmark": "split-digits", "method": "er", "benchmark_options": {"tasks": 2}})
JOINT = [[0.95, 0.0], [0.9, 0.85]]
MERGED = [[0.8, 0.75]]


@pytest.fixture(params=["written now", "of an earlier version"], autouse=True)
def _both(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results name their references; of those that do not, the names are worked out."""
    monkeypatch.setattr(f"{__name__}.NAMED", request.param == "written now")


NAMED = True


def result(config: RunConfig | None, accuracy: list[list[float]] = R, **more: Any) -> Result:
    assert config is not None
    full = config.resolved()
    if NAMED:
        more = {"references": reference_names(full), "name": run_id(config), **more}
    return Result(
        full["benchmark"], config.method, config.seed, full, accuracy=accuracy, **{"said": {"own": 1.0}, **more}
    )


def test_the_reference_of_the_same_seed_is_used() -> None:
    other = BASE.with_setting("seed", 1)
    runs = [result(BASE), result(other), result(reference_config(BASE, "prefix"), JOINT)]
    first, second, joint = attach_references(runs)
    assert first.metrics["int"] == pytest.approx(0.85 - 0.7)
    assert first.metrics["int_all"] == metrics.intransigence(R, [0.95, 0.85], over="all")
    assert first.oracle == "prefix"
    assert first.metrics["own"] == 1.0  # what is there stays
    assert "int" not in second.metrics
    assert "int" not in joint.metrics
    assert "int" not in runs[0].metrics  # what was given is not touched


def test_the_full_oracle_is_preferred_to_the_shortcut() -> None:
    shortcut = result(reference_config(BASE, "final"), MERGED)
    (first, _) = attach_references([result(BASE), shortcut])
    assert first.oracle == "final"
    assert first.metrics["int"] == pytest.approx(0.75 - 0.7)
    joint = result(reference_config(BASE, "prefix"), JOINT)
    for given in (result(BASE), first):
        filled = attach_references([given, shortcut, joint])[0]
        assert filled.oracle == "prefix"
        assert filled.metrics["int"] == pytest.approx(0.85 - 0.7)


def test_a_diverged_reference_is_none() -> None:
    joint = result(reference_config(BASE, "prefix"), JOINT, diverged="the loss is nan")
    assert "int" not in attach_references([result(BASE), joint])[0].metrics
    whole = result(reference_config(BASE, "prefix"), JOINT)
    broken = result(BASE, [[0.5, 0.5]], diverged="the loss is nan")
    assert attach_references([broken, whole])[0].metrics == broken.metrics


def test_results_of_another_version_are_left_as_they_are() -> None:
    """But for those that name their references themselves."""
    plain, joint = result(BASE, said={"int": 0.11}), result(reference_config(BASE, "prefix"), JOINT)
    old = replace(plain, config={**plain.config, "forgotten_field": 3})
    found = attach_references([old, joint])[0]
    assert found.metrics["int"] == (pytest.approx(0.85 - 0.7) if NAMED else 0.11)
    assert (found is old) == (not NAMED)
    assert attach_references([]) == []


def test_one_kind_can_be_asked_for() -> None:
    joint = result(reference_config(BASE, "prefix"), JOINT)
    alone = result(reference_config(BASE, "independent"), [[1.0, 0.0], [0.0, 1.0]])
    runs = [result(BASE), joint, alone]
    asked: list[Oracle | None] = [None, "prefix", "independent", "final", "none"]
    found = {oracle: attach_references(runs, oracle)[0] for oracle in asked}
    assert {oracle: one.oracle for oracle, one in found.items()} == {
        None: "prefix",
        "prefix": "prefix",
        "independent": "independent",
        "final": "none",
        "none": "none",
    }
    assert found["independent"].metrics["int"] == pytest.approx(0.3)
    assert "int" not in found["final"].metrics


# -- what a result says itself -----------------------------------------------------------------------------------------

FAST = BASE.with_setting("lr", 0.5)
SAID = {"int": 0.11, "int_all": 0.1, "int_last": 0.11}


def stated(config: RunConfig, **more: Any) -> Result:
    return result(config, **{"said": SAID, "oracle": "prefix", **more})


def test_what_was_found_against_the_same_reference_counts_without_it() -> None:
    reference = reference_config(BASE, "prefix")
    assert reference is not None
    unnamed = [] if NAMED else [stated(BASE)]
    for given in (*unnamed, *(stated(config, reference=run_id(reference)) for config in (BASE, FAST))):
        (found,) = attach_references([given])
        assert (found.oracle, found.metrics) == ("prefix", given.metrics)


def test_what_the_reference_had_is_enough_for_a_metric_that_was_not_written() -> None:
    reference = reference_config(BASE, "prefix")
    assert reference is not None
    given = result(BASE, oracle="prefix", reference=run_id(reference), reference_accuracy=[0.95, 0.85])
    (found,) = attach_references([given])
    assert found.metrics["int"] == pytest.approx(0.85 - 0.7)


def test_what_was_found_against_another_does_not() -> None:
    """Runs that do not name their reference had one at their own rate, which is another where that is not the usual."""
    for given in (stated(FAST), stated(BASE, reference="split-digits-joint-s0-0123456789abcdef")):
        (found,) = attach_references([given])
        assert found.oracle == "none"
        assert not found.metrics.keys() & SAID.keys()
        assert given.metrics["int"] == 0.11  # what was given is not touched


def test_the_reference_that_is_there_is_better_than_what_was_said() -> None:
    joint = result(reference_config(BASE, "prefix"), JOINT)
    for given in (stated(BASE), stated(FAST)):
        assert attach_references([given, joint])[0].metrics["int"] == pytest.approx(0.85 - 0.7)


def test_other_tasks_are_no_reference() -> None:
    joint = result(reference_config(BASE, "prefix"), [[0.9]])
    assert "int" not in attach_references([result(BASE), joint])[0].metrics


def test_a_result_is_asked_for_its_own_reference_only() -> None:
    asked: list[str] = []
    wanted = reference_config(FAST, "prefix")
    assert wanted is not None
    attach_reference(with_reference_names(result(FAST)), lambda name: asked.append(name), ("prefix",))
    assert asked == [run_id(wanted)]
