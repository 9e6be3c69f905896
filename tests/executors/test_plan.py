"""Shares of the runs: disjoint, together everything, the same whoever deals, and mistakes answered."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.paper.conftest import TINY
from tmln.cli import app
from tmln.executors.plan import ArraySlice, plan, read_slice
from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.store import Store
from tmln.paper import items as paper_items
from tmln.paper.items import ITEMS


def test_they_are_dealt_out_in_turn() -> None:
    assert [ArraySlice(i, 3).of([1, 2, 3, 4, 5, 6, 7]) for i in (1, 2, 3)] == [[1, 4, 7], [2, 5], [3, 6]]
    assert ArraySlice().of("ab") == ["a", "b"]
    assert read_slice(" 2 / 8") == ArraySlice(2, 8)
    assert str(ArraySlice(2, 8)) == "2/8"
    assert read_slice(None).whole
    assert not ArraySlice(1, 2).whole


@given(st.integers(0, 50), st.integers(1, 60))
def test_disjoint_and_together_everything(jobs: int, count: int) -> None:
    shares = [ArraySlice(index, count).of(range(jobs)) for index in range(1, count + 1)]
    assert sorted(job for share in shares for job in share) == list(range(jobs))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize(
    ("text", "said"),
    [("2", "takes I/N"), ("a/b", "takes I/N"), ("-1/2", "takes I/N"), ("0/4", "1/4 to 4/4"), ("5/4", "1/4 to 4/4")],
)
def test_mistakes_are_answered(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_slice(text)


def test_references_are_dealt_out_evenly() -> None:
    jobs = plan([RunConfig(benchmark="split-digits", method="er", seed=seed) for seed in range(4)], "prefix")
    assert [sum(job.reference for job in ArraySlice(i, 2).of(jobs)) for i in (1, 2)] == [2, 2]


def test_machines_that_have_other_data_deal_the_papers_runs_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    items, halves = list(ITEMS.values()), (ArraySlice(1, 2), ArraySlice(2, 2))
    here = [{run_id(job.config): job.config.benchmark for job in paper_items.plan_jobs(items, TINY, h)} for h in halves]
    lacking = next(iter(here[0].values()))
    monkeypatch.setattr(paper_items, "missing_data", lambda name: "it" if name == lacking else None)
    there = [{run_id(job.config) for job in paper_items.plan_jobs(items, TINY, half)} for half in halves]
    assert there == [{name for name, benchmark in half.items() if benchmark != lacking} for half in here]
    assert not here[0].keys() & here[1].keys()


FEW = ["--set", "benchmark.per_class=24", "--set", "benchmark.per_class_test=10", "--set", "benchmark.tasks=2"]


def test_the_command_does_its_share_and_a_last_one_shows_all(tmp_path: Path) -> None:
    words = [
        "sweep",
        "--benchmark",
        "split-digits",
        "--method",
        "er",
        "--grid",
        "lr=0.1,0.2",
        "--int-reference",
        "final",
    ]
    words += [*FEW, "--epochs", "1", "--executor", "serial", "--runs", str(tmp_path)]
    names = []
    for shard, runs in (("1/2", 2), ("2/2", 1)):
        done = CliRunner().invoke(app, [*words, "--shard", shard])
        assert done.exit_code == 0, done.output
        assert f"shard {shard}: {runs} of 3 runs" in done.output
        names.append({entry.name for entry in Store(tmp_path).runs() if entry.state == "finished"})
    assert [len(found) for found in names] == [2, 3]
    whole = CliRunner().invoke(app, words)
    assert whole.exit_code == 0, whole.output
    assert "3 runs were done before" in whole.output
    assert "INT" in whole.output
    many = CliRunner().invoke(app, [*words, "--shard", "4/4"])
    assert many.exit_code == 0
    assert "shard 4/4: 0 of 3 runs" in many.output
    best = CliRunner().invoke(app, [*words, "--shard", "1/2", "--best"])
    assert "--best needs all runs" in str(best.exception)
