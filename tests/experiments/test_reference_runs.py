"""Which run is the reference of intransigence: one that every run of the same data, model and seed shares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tmln.executors.plan import plan
from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.reference_runs import equal_rate, reference_config, reference_names, reference_of
from tmln.experiments.store import Store
from tmln.methods.recipes import RECIPES

BASE = RunConfig.of({"benchmark": "split-digits", "method": "er", "benchmark_options": {"tasks": 2}})


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


def test_the_names_of_all_references_are_those_of_their_runs() -> None:
    wanted = {oracle: reference_config(BASE, oracle) for oracle in ("prefix", "final", "independent")}
    names = reference_names(BASE.resolved())
    assert names == {oracle: run_id(config) for oracle, config in wanted.items() if config is not None}
    assert len(set(names.values())) == 3
    for config in wanted.values():
        assert config is not None
        assert reference_names(config.resolved()) == {}
    with pytest.raises(ValueError, match="another version"):
        reference_names({**BASE.resolved(), "forgotten_field": 3})


def test_the_rate_by_hand() -> None:
    tmln = RunConfig(benchmark="split-digits", method="tmln")
    assert equal_rate(tmln) == {"lr": 0.1, "step.momentum": 0.0}
    other = tmln.with_settings({"lr": 0.03, "step.damping": 0.2})
    assert equal_rate(other)["lr"] == 0.15
    assert RunConfig(benchmark="split-digits", method="er").with_settings(equal_rate(tmln)).resolved()["lr"] == 0.1
