"""What a row says of runs that diverged, are missing, alone, without reference or of several versions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.paper.conftest import TINY, finish
from tmln.analysis.notes import version_notes
from tmln.experiments.config import run_id
from tmln.experiments.store import Store
from tmln.paper.study import RequestedRow, Study, find_row

STAND = TINY.setup("split-cifar10")


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(TINY, Store(tmp_path))


def two(study: Study, method: str = "er", seeds: int = 2) -> RequestedRow:
    return find_row(study, STAND, method, {}, seeds)


def test_intransigence_is_against_the_joint_run_of_the_seed(study: Study) -> None:
    finish(study.store, STAND.config("joint", 0), [[0.9, 0.0], [0.7, 0.8]])
    finish(study.store, STAND.config("joint", 1), [[0.9, 0.0], [0.7, 0.6]])
    for seed in (0, 1):
        finish(study.store, STAND.config("er", seed), [[0.9, 0.1], [0.5, 0.5]])
        finish(study.store, STAND.config("er", seed, {"lr": 0.5}), [[0.9, 0.1], [0.5, 0.4]])
    found = two(study)
    assert found.row is not None
    assert found.row.values["int"] == pytest.approx({0: 0.3, 1: 0.1})  # a*_2 - a_22
    assert found.text("int") == "20.0 ± 14.1"
    assert found.text("acc") == "50.0 ± 0.0"
    faster = find_row(study, STAND, "er", {"lr": 0.5}, 2)  # another rate, the same reference
    assert faster.row is not None
    assert faster.row.values["int"] == pytest.approx({0: 0.4, 1: 0.2})
    assert two(study).notes("ER") == []


def test_what_diverged_is_left_out_and_said(study: Study) -> None:
    finish(study.store, STAND.config("joint", 0), [[0.9, 0.0], [0.7, 0.8]])
    finish(study.store, STAND.config("er", 0), [[0.9, 0.1], [0.5, 0.5]])
    finish(study.store, STAND.config("er", 1), [], diverged="the loss is nan")
    found = two(study)
    assert (found.n, found.text("acc"), found.text("int")) == (1, "50.0 *", "30.0 *")
    notes = " ".join(found.notes("ER"))
    assert "seed 1 diverged" in notes
    assert "one seed only" in notes


def test_all_diverged_has_no_mean(study: Study) -> None:
    for seed in (0, 1):
        finish(study.store, STAND.config("er", seed), [], diverged="the loss is nan")
    found = two(study)
    assert {found.text(metric) for metric in ("acc", "fm", "int")} == {"diverged"}
    assert found.notes("ER") == ["ER: seeds 0, 1 diverged; kept in the store, so there is no mean"]


def test_no_reference_is_marked_and_not_zero(study: Study) -> None:
    finish(study.store, STAND.config("er", 0), [[0.9, 0.1], [0.5, 0.5]])
    finish(study.store, STAND.config("er", 1), [[0.9, 0.1], [0.5, 0.7]])
    assert two(study).text("int") == "no reference"
    assert "no joint reference for seeds 0, 1" in two(study).notes("ER")[0]
    finish(study.store, STAND.config("joint", 0), [], diverged="the loss is nan")
    finish(study.store, STAND.config("joint", 1), [[0.9, 0.0], [0.7, 0.8]])
    assert two(study).text("int") == "10.0 *"  # of seed 1


def test_a_reference_that_was_in_the_result_does_not_count(study: Study) -> None:
    metrics = {"acc": 0.5, "fm": 0.1, "int": 0.0, "int_all": 0.0}
    finish(study.store, STAND.config("er", 0), [[0.9, 0.1], [0.5, 0.5]], metrics=metrics)
    assert two(study, seeds=1).text("int") == "no reference"


def test_what_did_not_run_says_why(study: Study) -> None:
    assert two(study).text("acc") == "not run"
    assert two(study).notes("ER") == ["ER: seeds 0, 1 not run: not finished"]
    failed = {run_id(STAND.config("er", 0)): "disk full"}
    said = two(replace(study, failed=failed)).notes("ER")
    assert said == ["ER: seed 0 not run: disk full", "ER: seed 1 not run: not finished"]


def test_missing_data_are_named_with_the_command(nowhere: Study) -> None:
    found = find_row(nowhere, nowhere.setup("core50"), "er", {}, 2)
    assert (found.n, found.text("int")) == (0, "not run")
    assert "tmln data get core50" in found.notes("ER")[0]


def test_a_result_of_a_newer_version_is_left_alone_and_said(study: Study) -> None:
    finish(study.store, STAND.config("joint", 0), [[0.9, 0.0], [0.7, 0.8]])
    finish(study.store, STAND.config("er", 0), [[0.9, 0.1], [0.5, 0.5]])
    for method in ("joint", "er"):
        run = study.store.find(STAND.config(method, 0))
        assert run is not None
        path = run.path / "result.json"
        path.write_text(path.read_text().replace('"format": 2', '"format": 99'))
    found = two(study, seeds=1)
    assert found.text("acc") == "not run"
    assert "upgrade tmln" in found.notes("ER")[0]


def said(study: Study) -> list[str]:
    row = two(study).row
    assert row is not None
    return [str(note) for note in version_notes(row.results)]


def test_mixed_versions_are_said(study: Study) -> None:
    matrix = [[0.9, 0.1], [0.5, 0.5]]
    finish(study.store, STAND.config("er", 0), matrix, versions={"tmln": "0.1.0", "torch": "2.6"})
    assert said(study) == []
    finish(study.store, STAND.config("er", 1), matrix, versions={"tmln": "0.2.0", "torch": "2.6"})
    assert said(study) == ["runs were made with several versions of tmln: 0.1.0 (1 run); 0.2.0 (1 run)"]
