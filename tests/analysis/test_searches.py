"""Trials of a search are not merged with the runs of what it chose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.report.conftest import keep, result
from tmln.analysis.notes import SEARCHED
from tmln.analysis.read import SearchRecord, list_trial_runs, read_results, read_searches
from tmln.cli import app
from tmln.experiments.identity import run_name
from tmln.report import build_document


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """er was tried at seed 0, which went well, and run at seeds 1 and 2."""
    made = [result("er", seed, base) for seed, base in enumerate((0.99, 0.8, 0.81))]
    folder = keep(tmp_path / "runs", [*made, result("si", 0, 0.7)])
    names = [run_name(one["config"]) for one in made]
    kept = {
        "format": 1,
        "objectives": ["val_acc"],
        "methods": [{"method": "er", "trials": [{"runs": names[:1]}, {"runs": ["gone"]}]}],
        "final_runs": names[1:],
    }
    (folder / "tune-0.json").write_text(json.dumps(kept))
    return folder


def test_trials_are_left_out_and_that_is_said(runs: Path) -> None:
    results, problems = read_results(runs)
    assert sorted((one.method, one.seed) for one in results) == [("er", 1), ("er", 2), ("si", 0)]
    assert [(one.name, one.state) for one in problems] == [("tune-0.json", "searched")]
    assert len(read_results(runs, trials=True)[0]) == 4
    said = CliRunner().invoke(app, ["show", str(runs)]).output
    assert f"{SEARCHED}: tune-0.json: chosen on validation data, er from 2" in said
    assert "left out" not in CliRunner().invoke(app, ["show", str(runs), "--with-trials"]).output
    warned = [one for one in build_document(runs)["warnings"] if one["text"].startswith("Trials of a search")]
    assert [one["about"] for one in warned] == [["tune-0.json: chosen on validation data, er from 2 trials"]]


def test_a_search_that_ran_nothing_hides_nothing() -> None:
    search = SearchRecord("tune-0.json", frozenset("ab"), frozenset(), "")
    assert list_trial_runs([search]) == frozenset()
    assert list_trial_runs([search, SearchRecord("x", frozenset("ab"), frozenset("b"), "")]) == frozenset("a")
    assert list_trial_runs(
        [SearchRecord("x", frozenset("ab"), frozenset("c"), ""), SearchRecord("y", frozenset(), frozenset("a"), "")]
    ) == {"b"}


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 9}', '{"format": 1, "methods": [3]}'])
def test_a_file_that_makes_no_sense_is_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "tune-0.json").write_text(text)
    assert list(read_searches(tmp_path)) == []
