"""The INT of one run is one number, whoever gives it: the run itself, the table, the page and the paper's table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.experiments.test_run import result_of
from tests.paper.conftest import TINY
from tmln import metrics
from tmln.cli.app import app
from tmln.executors.config import ExecutorConfig
from tmln.executors.execute import execute
from tmln.executors.plan import plan
from tmln.experiments.launch import RunOptions
from tmln.experiments.result import Oracle, Result
from tmln.experiments.store import Store
from tmln.paper.scales import BenchmarkSetup
from tmln.paper.study import Study, find_row
from tmln.paper.tables import TableRow, list_configs
from tmln.report.document import build_document

SMALL = {"benchmark.per_class": 24, "benchmark.per_class_test": 20, "benchmark.tasks": 3, "epochs": 2}
STAND = BenchmarkSetup("split-cifar10", "split-digits", SMALL)
CHANGES = {"lr": 0.05}


def said(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.output


def only_int(text: str) -> float:
    """Of the row that is not the reference's."""
    (row,) = [row for row in json.loads(text) if row["metrics"]["int"]["mean"] is not None]
    return float(row["metrics"]["int"]["mean"])


@pytest.mark.parametrize("also_joint_at_its_rate", [False, True])
def test_run_show_report_and_paper_agree_at_another_rate(tmp_path: Path, also_joint_at_its_rate: bool) -> None:
    wanted = STAND.config("naive", 0, CHANGES)
    assert wanted.lr != STAND.config("joint").resolved()["lr"]
    asked = [wanted, *([STAND.config("joint", 0, CHANGES)] if also_joint_at_its_rate else [])]
    store, jobs = Store(tmp_path / "runs"), plan(asked, "prefix")
    assert execute(store, jobs, RunOptions("prefix"), ExecutorConfig("serial")) == []
    results: dict[Any, Result] = {
        (job.config.method, job.config.resolved()["lr"]): result_of(store, job.config) for job in jobs
    }
    joint = results["joint", 0.01]  # the benchmark's own rate
    reference = [row[k] for k, row in enumerate(joint.accuracy)]
    by_hand = metrics.intransigence(results["naive", 0.05].accuracy, reference)
    if also_joint_at_its_rate:
        other = [row[k] for k, row in enumerate(results["joint", 0.05].accuracy)]
        assert metrics.intransigence(results["naive", 0.05].accuracy, other) != by_hand  # or nothing is shown here
    assert results["naive", 0.05].metrics["int"] == by_hand
    assert only_int(said("show", store.root, "--format", "json")) == by_hand
    shown = f"{100 * by_hand:.1f}"
    words = ["run", "--config", store.open(wanted).path / "config.yaml", "--runs", store.root]
    table = said(*words)
    assert f" {shown} " in next(line for line in table.splitlines() if line.startswith(" naive"))
    assert "INT is against joint training on tasks 1..k under the same seed at the benchmark's own lr" in table
    page = build_document(store.root)
    assert [run["metrics"].get("int") for run in page["runs"] if page["rows"][run["row"]]["method"] == "naive"] == [
        by_hand
    ]
    paper = find_row(Study(TINY, store), STAND, "naive", CHANGES, 1)
    assert paper.row is not None
    assert paper.row.values["int"] == {0: by_hand}
    assert paper.text("int") == shown


def test_the_papers_rows_declare_the_references_that_are_looked_up() -> None:
    """One joint run a seed for all rates, and another for another number of epochs."""
    lines = [TableRow(("a",), "naive"), TableRow(("b",), "naive", {"lr": 0.5}), TableRow(("c",), "er", {"epochs": 7})]
    joint = [config for config in list_configs(STAND, lines, 2) if config.method == "joint"]
    epochs = STAND.config("naive").epochs
    assert [(config.lr, config.epochs, config.seed) for config in joint] == [
        (None, epochs, 0),
        (None, epochs, 1),
        (None, 7, 0),
        (None, 7, 1),
    ]


def test_another_reference_can_be_asked_for(tmp_path: Path) -> None:
    wanted, store = STAND.config("naive"), Store(tmp_path)
    asked: tuple[Oracle, ...] = ("prefix", "final")
    for oracle in asked:
        assert execute(store, plan([wanted], oracle), RunOptions(oracle), ExecutorConfig("serial")) == []
    found = {name: said("show", store.root, "--int-reference", name) for name in ("prefix", "final", "none")}
    assert "INT is against joint training" in found["prefix"]
    assert "INT is against the shortcut oracle" in found["final"]
    assert "INT is not there" in found["none"]
    ints = {
        oracle: only_int(said("show", store.root, "--format", "json", *words))
        for oracle, words in (
            ("usual", ()),
            ("prefix", ("--int-reference", "prefix")),
            ("final", ("--int-reference", "final")),
        )
    }
    assert ints["usual"] == ints["prefix"] != ints["final"]
    assert "the shortcut oracle" in json.dumps(build_document(store.root, "final")["warnings"])
    again = said(
        "run", "--config", store.open(wanted).path / "config.yaml", "--runs", store.root, "--int-reference", "final"
    )
    assert "INT is against the shortcut oracle" in again  # also of a run that was finished against another
