"""A folder of runs as a document: the same numbers as the table, and everything that is wrong with it said."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.report.conftest import keep, read, result, usual
from tmln.analysis.measurements import save_analysis
from tmln.analysis.rows import group_rows
from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.identity import run_name
from tmln.experiments.result import FORMAT, Result
from tmln.report.document import build_document
from tmln.report.page import embed_json
from tmln.report.run_data import task_names


def test_rows_and_runs_are_those_of_the_table(runs: Path) -> None:
    found = build_document(runs)
    rows = group_rows(read(usual()))
    assert [row["label"] for row in found["rows"]] == [row.label for row in rows]
    for number, row in enumerate(rows):
        mine = [run for run in found["runs"] if run["row"] == number and not run["diverged"]]
        assert {run["seed"]: run["metrics"]["acc"] for run in mine} == row.values["acc"]
    assert found["tables"]["split-digits"]["summary"].endswith(
        "; left out: tmln (step.damping=0.1, chosen on the test data from 2) with ACC 94.0."
    )
    assert found["metrics"]["fm"] == {
        "heading": "FM",
        "title": "FM % ↓",
        "about": "forgetting: how far tasks fell from their best",
        "more_is_better": False,
        "percent": True,
    }
    assert found["columns"] == ["acc", "fm", "peak", "int", "seconds"]


def test_every_row_has_the_command_that_makes_it(runs: Path) -> None:
    rows = {row["label"]: row for row in build_document(runs)["rows"]}
    assert rows["er"]["commands"] == ["tmln run --benchmark split-digits --method er --seeds 2 --set benchmark.tasks=3"]
    assert "--set step.damping=0.5" in rows["tmln step.damping=0.5"]["commands"][0]
    assert rows["er"]["missing"] == [2]


def test_a_configuration_of_another_version_has_no_command(tmp_path: Path) -> None:
    odd = result("er", 0)
    odd["config"]["warp_factor"] = 9
    row = build_document(keep(tmp_path, [odd]))["rows"][0]
    assert row["commands"] == []
    assert "warp_factor" in row["no_command"]


def test_warnings_name_what_they_are_about(runs: Path) -> None:
    half = RunConfig(benchmark="split-digits", method="er", seed=9)
    (runs / run_id(half)).mkdir()
    (runs / run_id(half) / "config.yaml").write_text(half.to_yaml())
    (runs / "run-torn").mkdir()
    (runs / "run-torn" / "result.json").write_text('{"format": 1, "bench')
    (runs / "run-newer").mkdir()
    (runs / "run-newer" / "result.json").write_text('{"format": 99}')
    said = {one["text"]: one["about"] for one in build_document(runs)["warnings"]}
    assert said["Runs that cannot be read are left out"] == [
        f"run-newer: result.json has format 99, this tmln reads up to {FORMAT}: upgrade tmln",
        "run-torn: result.json is not JSON",
    ]
    assert said["Runs that are not finished are left out; the command that began them goes on"] == [run_id(half)]
    assert said["Runs that diverged are left out of means"] == ["ewc: seed 1"]
    assert said["Seeds that others have are missing"] == ["er: seed 2", "ewc: seed 2"]
    assert said["One seed only: no spread, no interval, no test"] == ["ewc"]


def test_more_warnings(tmp_path: Path) -> None:
    shortcut = result("er", 0, oracle="final")
    other = result("tmln", 0, versions={"tmln": "0.0.1", "torch": "2.6.0"}, oracle="none")
    other["metrics"].pop("int")
    said = {one["text"]: one["about"] for one in build_document(keep(tmp_path / "a", [shortcut, other]))["warnings"]}
    assert any(text.startswith("INT is against the shortcut oracle") for text in said)
    assert said["Runs were made with several versions of tmln"] == ["0.0.1 (1 run)", "0.1.0 (1 run)"]
    said = {one["text"]: one["about"] for one in build_document(keep(tmp_path / "b", [other]))["warnings"]}
    assert any(text.startswith("INT is not there") for text in said)


def test_a_clean_folder_warns_of_nothing(tmp_path: Path) -> None:
    assert build_document(keep(tmp_path, [result("er", 0), result("er", 1)]))["warnings"] == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"seed": "zero"}, "seed"),
        ({"seed": True}, "seed"),
        ({"method": 7}, "method"),
        ({"benchmark": ""}, "benchmark"),
        ({"accuracy": []}, "empty"),
        ({"accuracy": [[0.5, 0.5], [0.5]]}, "ragged"),
        ({"accuracy": [[]]}, "ragged"),
        ({"accuracy": [[0.5], [0.5]]}, "2 rows for 1 tasks"),
        ({"accuracy": [[0.5, 0.0]]}, "1 rows for 2 tasks"),
        ({"accuracy": [[0.5, 0.0], [1e308, 0.5]]}, "1e+308"),
        ({"metrics": {"acc": 0.5, "fm": -1e308}}, "fm = -1e+308"),
        ({"seconds": 10**150}, "seconds = 1000"),
    ],
    ids=["word", "bool", "number", "nameless", "empty", "ragged", "hollow", "tall", "short", "vast", "metric", "long"],
)
def test_results_that_make_no_sense_are_told_apart(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    found = build_document(keep(tmp_path, [{**result("er", 0), **change}, result("tmln", 0)]))
    assert [row["label"] for row in found["rows"]] == ["tmln"]
    assert why in found["problems"][0]["reason"]


def test_an_empty_folder_and_none(tmp_path: Path) -> None:
    found = build_document(tmp_path)
    assert (found["rows"], found["runs"], found["problems"]) == ([], [], [])
    with pytest.raises(ValueError, match="there is no folder"):
        build_document(tmp_path / "missing")


def test_shortcut_references_are_no_methods(tmp_path: Path) -> None:
    merged = result("naive", 0)
    merged["config"]["merged"] = True
    merged["accuracy"] = [[0.5, 0.6, 0.7]]
    found = build_document(keep(tmp_path, [merged, result("er", 0)]))
    assert [row["label"] for row in found["rows"]] == ["er"]
    assert found["shortcuts"] == [run_name(merged["config"])]


def test_rates_that_differ_are_said(tmp_path: Path) -> None:
    found = build_document(
        # er has momentum 0.9, which makes ten times the rate of it
        keep(tmp_path, [result("er", 0, effective_rate=0.001), result("tmln", 0, effective_rate=0.1)])
    )
    assert [run["metrics"]["rate"] for run in found["runs"]] == pytest.approx([0.01, 0.1])
    assert found["metrics"]["rate"]["percent"] is False
    said = {one["text"]: one["about"] for one in found["warnings"]}
    alone = "Rows start at different rates (with momentum), and may differ for that alone"
    assert said[alone] == ["0.01: er", "0.1: tmln"]


def test_tasks_that_differ_from_seed_to_seed_have_no_names(tmp_path: Path) -> None:
    one, other = result("er", 0), result("er", 1, stream={"class_order": [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]})
    assert build_document(keep(tmp_path / "a", [one, other]))["rows"][0]["tasks"] == ["", "", ""]
    assert build_document(keep(tmp_path / "b", [one]))["rows"][0]["tasks"][2] == "classes 7, 8, 9"


def test_references_do_not_compete(runs: Path) -> None:
    assert {row["label"] for row in build_document(runs)["rows"] if not row["competes"]} == {"joint"}


def test_numbers_that_are_none(tmp_path: Path) -> None:
    said = {"acc": math.nan, "own": math.inf}
    odd = result("er", 0, metrics=said, seconds=None, accuracy=[[math.nan] * 3] * 3)
    found = build_document(keep(tmp_path, [odd]))
    assert found["runs"][0]["metrics"] == {
        **dict.fromkeys(
            ("acc", "fm", "peak", "bwt", "learning_accuracy", "average_anytime_accuracy", "worst_task", "own")
        ),
        "int": pytest.approx(0.09),  # as it was said
    }
    json.loads(embed_json(found))


def test_nothing_of_this_machine_is_in_it(runs: Path) -> None:
    assert str(runs.parent) not in embed_json(build_document(runs))


def test_analyses_come_along_with_their_looks(runs: Path) -> None:
    save_analysis(runs, "overhead", "x", {"benchmark": "split-digits", "methods": {"er": {}}, "pi": math.pi})
    save_analysis(runs, "barrier", "y", {"methods": [{"method": "der++"}], "low": 1.23456789e-9, "none": math.nan})
    found = build_document(runs)
    assert [(one["kind"], one["name"]) for one in found["analyses"]] == [("barrier", "y"), ("overhead", "x")]
    assert found["analyses"][0]["content"]["low"] == 1.2346e-9
    assert found["analyses"][0]["content"]["none"] is None
    assert found["analyses"][1]["content"]["pi"] == 3.14159
    assert sorted(found["looks"]) == ["der++", "er"]
    assert sorted(found["afresh"]) == ["independent", "joint"]


HEAD = {"benchmark": "split-digits", "method": "er", "seed": 0, "config": {}}


@pytest.mark.parametrize(
    ("stream", "names"),
    [
        ({"class_order": [3, 1, 2, 0]}, ["classes 3, 1", "classes 2", "classes 0"]),
        ({"domains": ["0 degrees", "<b>", "90"]}, ["0 degrees", "<b>", "90"]),
        ({"tasks": [["cat", "dog"], "b", 3]}, ["cat, dog", "b", "3"]),
        ({"domains": ["too few"]}, ["", "", ""]),
        ({"class_order": "random"}, ["", "", ""]),
        (None, ["", "", ""]),
    ],
    ids=["classes", "domains", "tasks", "few", "text", "nothing"],
)
def test_tasks_have_names(stream: Any, names: list[str]) -> None:
    assert task_names(Result.of({**HEAD, "accuracy": [[0.0] * 3], "stream": stream})) == names
