"""tmln pareto and tmln overhead as a person meets them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tmln.analysis.measurements import load_analyses
from tmln.cli import app
from tmln.experiments.config import RunConfig
from tmln.experiments.store import Store


def invoke(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "100"})


def run(*words: object) -> Result:
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    return result


def finish(store: Store, method: str, seed: int, accuracy: list[list[float]], **settings: float) -> None:
    """A run as if it had been made: two tasks, these accuracies."""
    config = RunConfig.of({"benchmark": "split-digits", "method": method, "seed": seed, "settings": settings})
    made = store.open(config)
    fm = accuracy[0][0] - accuracy[1][0]
    with made.lock:
        made.finish({"accuracy": accuracy, "metrics": {"acc": sum(accuracy[1]) / 2, "fm": fm}, "seconds": 1.0})


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    store = Store(tmp_path / "runs")
    for seed in range(2):
        finish(store, "joint", seed, [[1.0, 0.0], [0.9, 0.9]])
        finish(store, "er", seed, [[0.9, 0.0], [0.7, 0.8]])  # INT 0.1, FM 0.2
        finish(store, "ewc++", seed, [[0.9, 0.0], [0.5, 0.7]], **{"penalty.strength": 1.0})  # INT 0.2, FM 0.4
        finish(store, "ewc++", seed, [[0.9, 0.0], [0.8, 0.6]], **{"penalty.strength": 2.0})  # INT 0.3, FM 0.1
    return tmp_path / "runs"


def test_pareto_from_a_folder_of_runs(runs: Path, tmp_path: Path) -> None:
    result = run("pareto", runs, "-o", tmp_path / "front.png")
    assert "er  " in result.output
    assert "joint sees all data at once" in result.output
    assert (tmp_path / "front.png").stat().st_size > 1000
    plain = json.loads(run("pareto", runs, "--format", "json").stdout)
    assert plain[0]["skyline"]["front"] == ["er", "ewc++ penalty.strength=2.0"]
    assert plain[0]["skyline"]["hypervolume"] == pytest.approx((0.9 * 0.8 + 0.7 * 0.1) / 4)
    table = list(csv.DictReader(run("pareto", runs, "--format", "csv").stdout.splitlines()))
    assert [float(line["int_mean"]) for line in table] == pytest.approx([0.1, 0.2, 0.3])


def test_pareto_as_text_for_papers_keeps_notes_apart(runs: Path) -> None:
    markdown = run("pareto", runs, "--format", "md")
    assert "| **er** | **2** | **10.0 ± 0.0** | **20.0 ± 0.0** | **all** |" in markdown.stdout
    assert "hypervolume: " in markdown.stderr
    assert "hypervolume: " not in markdown.stdout
    assert r"\begin{tabular}" in run("pareto", runs, "--format", "latex", "--x", "acc", "--y", "seconds").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--x", "itn"), "did you mean 'int'"),
        (("--x", "fm"), "two different metrics"),
        (("-o", "front.gif"), "got 'front.gif'"),
    ],
    ids=["misspelt", "twice", "suffix"],
)
def test_pareto_refuses_in_one_line(runs: Path, words: tuple[str, ...], message: str) -> None:
    failed = invoke("pareto", runs, *words)
    assert isinstance(failed.exception, ValueError)
    assert message in str(failed.exception)


def test_pareto_of_no_folder(tmp_path: Path) -> None:
    assert "there is no folder" in str(invoke("pareto", tmp_path / "none").exception)


def test_overhead_measures_shows_draws_and_keeps(tmp_path: Path) -> None:
    words = ("--benchmark", "split-digits", "--methods", "er,tmln", "--rounds", 2, "--steps", 2, "--no-peak")
    result = run("overhead", *words, "--runs", tmp_path, "-o", tmp_path / "cost.svg")
    assert "tmln" in result.output
    assert "…" not in result.output
    assert "5N + 500 samples" in result.output
    assert (tmp_path / "cost.svg").stat().st_size > 1000
    kept = next(load_analyses(tmp_path, "overhead"))
    assert kept.name == "split-digits"
    assert list(kept.content["methods"]) == ["naive", "er", "tmln"]
    again = run("overhead", *words, "--runs", tmp_path, "--set", "batch_size=16", "--format", "json")
    assert json.loads(again.stdout)["batch_size"] == 16
    assert len(list(load_analyses(tmp_path, "overhead"))) == 1


def test_overhead_refuses_before_it_works(tmp_path: Path) -> None:
    words = ("overhead", "--runs", tmp_path, "--benchmark")
    assert "did you mean 'tmln'" in str(invoke(*words, "split-digits", "--methods", "tlmn").exception)
    assert "did you mean 'split-digits'" in str(invoke(*words, "split-digit").exception)
    assert "got 'x.bmp'" in str(invoke(*words, "split-digits", "-o", "x.bmp").exception)
    assert not list(tmp_path.iterdir())
