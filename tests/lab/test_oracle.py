"""Intransigence is filled in where its reference finished after the run."""

from __future__ import annotations

from typing import Any

import pytest

from tmln import metrics
from tmln.lab.config import RunConfig
from tmln.lab.oracle import reference_config, with_references

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
