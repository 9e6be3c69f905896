"""tmln paper as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.paper.conftest import TINY
from tmln.analysis.published import publish
from tmln.analysis.read import read_analyses, read_results
from tmln.cli import app
from tmln.experiments.store import Store
from tmln.paper.items import ITEMS
from tmln.paper.scales import SCALES
from tmln.signals import Interrupted


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCALES, "smoke", TINY)


def type_in(*words: str) -> Result:
    return CliRunner().invoke(app, ["paper", *words])


def test_all_is_printed_and_written(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tmln.paper.write.SUFFIXES", (".svg",))  # the others are tested item by item
    result = type_in("all", "--scale", "smoke", "--runs", str(store.root), "-o", str(tmp_path), "--executor", "serial")
    assert result.exit_code == 0, result.output
    for item in ITEMS.values():
        assert item.title in result.output
        assert (tmp_path / f"{item.name}.md").is_file()
    assert f"written: {tmp_path / 'index.md'}" in result.output
    index = (tmp_path / "index.md").read_text()
    assert all(f"## {item.title}" in index for item in ITEMS.values())


def test_one_item_in_a_format(store: Store, tmp_path: Path) -> None:
    words = ["table2", "--scale", "smoke", "--runs", str(store.root), "-o", str(tmp_path), "--executor", "serial"]
    result = type_in(*words, "--format", "json")
    assert result.exit_code == 0, result.output
    assert {row["method"] for row in json.loads(result.stdout)["records"]} > {"tmln", "tmln-static", "naive"}
    assert not (tmp_path / "index.md").exists()
    assert r"\toprule" in type_in(*words, "--format", "latex").output


def test_published_results_give_the_tables_of_their_runs(store: Store, tmp_path: Path) -> None:
    words = ["--scale", "smoke", "--runs", str(store.root), "-o", str(tmp_path / "own"), "--executor", "serial"]
    own = type_in("table2", *words, "--format", "md")
    publish(read_results(store.root)[0], tmp_path / "results.json", light=True)
    words = ["--scale", "smoke", "--published", str(tmp_path / "results.json"), "-o", str(tmp_path / "there")]
    there = type_in("table2", *words, "--format", "md")
    assert (own.exit_code, there.exit_code) == (0, 0), own.output + there.output
    assert there.stdout == own.stdout
    every = type_in("all", *words)
    assert every.exit_code == 0, every.output
    assert ITEMS["table6"].title in every.output
    assert ITEMS["table4"].title not in every.output
    assert "holds no run of table4" in str(type_in("table4", *words).exception)


def test_published_measurements_give_the_table_that_they_gave(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--scale", "smoke", "--seeds", "1", "--format", "json"]
    own = type_in("table5", *words, "--runs", str(store.root), "-o", str(tmp_path / "own"), "--executor", "serial")
    publish(read_results(store.root)[0], tmp_path / "results.json", read_analyses(store.root), light=True)
    monkeypatch.setattr("tmln.paper.measurements.measure_trajectory_losses", None)  # nothing is measured again
    words += ["--published", str(tmp_path / "results.json"), "-o", str(tmp_path / "there")]
    there = type_in("table5", *words)
    assert (own.exit_code, there.exit_code) == (0, 0), own.output + there.output
    assert json.loads(there.stdout)["records"] == json.loads(own.stdout)["records"] != []
    other = type_in("table5", *words, "--seeds", "9")
    assert "not measured in what" in other.output


def test_a_dry_run_does_nothing(tmp_path: Path) -> None:
    result = type_in("table2", "--scale", "smoke", "--runs", str(tmp_path / "runs"), "--dry-run", "--seeds", "1")
    assert result.exit_code == 0, result.output
    assert "7 runs: 0 finished, 0 begun, 7 not begun" in result.output
    assert not (tmp_path / "runs").exists()


def test_stopped_it_says_that_it_can_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*arguments: object, **options: object) -> None:
        raise Interrupted("stopped; the same command goes on from there")

    monkeypatch.setattr("tmln.executors.execute.execute", stop)
    result = type_in("table2", "--scale", "smoke", "--runs", str(tmp_path))
    assert result.exit_code == 130
    assert "the same command goes on" in result.output


@pytest.mark.parametrize("words", [["table9", "--scale", "smoke"], ["table1"], ["table1", "--scale", "huge"]])
def test_mistakes_are_answered(words: list[str]) -> None:
    assert type_in(*words).exit_code == 2
