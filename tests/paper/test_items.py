"""Every table and figure at a tiny scale, and where nothing is at hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.paper.conftest import SMALL, TINY, single
from tmln.analysis.text_table import Strong
from tmln.executors.config import ExecutorConfig
from tmln.executors.execute import execute
from tmln.executors.plan import Job
from tmln.experiments.config import run_id
from tmln.experiments.launch import RunOptions
from tmln.experiments.store import Store
from tmln.paper import tables
from tmln.paper.items import ITEMS, plan_jobs
from tmln.paper.published import TABLE6
from tmln.paper.scales import SCALES, BenchmarkSetup
from tmln.paper.study import Page, Study, find_row
from tmln.paper.tables import match_rate
from tmln.paper.write import write_page


def texts(page: Page) -> list[str]:
    return [text for sheet in page.sheets for line in sheet.lines for text in line]


@pytest.mark.parametrize("name", ITEMS)
def test_every_item_is_made(name: str, study: Study, tmp_path: Path) -> None:
    page = ITEMS[name].render(study)
    assert page.sheets
    assert page.records
    assert page.notes
    assert all(len(line) == len(sheet.lines[0]) for sheet in page.sheets for line in sheet.lines)
    assert "not run" not in texts(page)
    written = write_page(page, tmp_path)
    suffixes = {path.suffix for path in written}
    pictures = {".png", ".svg", ".pdf"} if ITEMS[name].picture else set()
    assert suffixes == {".md", ".tex", ".csv"} | pictures
    assert all(path.stat().st_size > 100 for path in written)
    again = ITEMS[name].render(study)
    assert [sheet.lines for sheet in again.sheets] == [sheet.lines for sheet in page.sheets]  # nothing measured anew


@pytest.mark.parametrize("name", ITEMS)
def test_without_data_every_item_says_how_to_get_them(name: str, nowhere: Study, tmp_path: Path) -> None:
    page = ITEMS[name].render(nowhere)
    assert name in ("table3", "tuning", "confirm") or any("tmln data get cifar10" in note for note in page.notes)
    assert name in ("table3", "tuning", "figure2", "figure3", "barrier", "confirm", "shield") or "not run" in texts(
        page
    )
    assert write_page(page, tmp_path)


def test_table_1_has_the_papers_rows_beside_ours(study: Study) -> None:
    page = ITEMS["table1"].render(study)
    cifar, raced, core50, _ = page.sheets
    assert [line[0] for line in cifar.lines] == [
        "method", "Joint (oracle)", "Naive SGD", "+ SGD at eta/lambda", "TMLN",
    ]  # fmt: skip
    assert core50.lines[0][4:7] == ["FM % ↓", "paper", "peak"]
    assert raced.lines[0] == [
        "method", "n", "ACC 95%", "LA % ↑", "Δ ACC", "corrected 95%", "corrected p", "seconds", "MiB",
    ]  # fmt: skip
    assert [line[0].removeprefix("+ ") for line in cifar.lines] == [line[0] for line in raced.lines]
    assert [line[4] for line in raced.lines].count("reference") == 1
    tmln = dict(zip(range(9), core50.lines[-1], strict=True))
    assert (tmln[3], tmln[5], tmln[8]) == ("77.94 ± 1.52", "19.98 ± 1.17", "3.64 ± 0.72")
    joint = cifar.lines[1]
    assert joint[4:] == ["-"] * 5
    assert not isinstance(joint[2], Strong)
    assert not any(isinstance(line[2], Strong) for line in cifar.lines)  # two seeds claim nothing
    assert any("2 seeds claim nothing" in note and "at the rate eta/lambda" in note for note in page.notes)
    row = find_row(study, TINY.setup("split-cifar100"), "tmln", {}, 2).row
    assert row is not None
    record = next(r for r in page.records if (r["row"], r["metric"]) == ("TMLN", "acc"))
    assert record["mean"] == pytest.approx(100 * row.summary("acc").mean)
    assert (record["paper_mean"], record["paper_std"], record["n"]) == (17.63, 0.34, 2)


def test_one_seed_has_no_deviation_and_says_so(study: Study) -> None:
    page = ITEMS["table2"].render(single(study))
    assert "one seed only: no deviation and no interval" in page.notes
    ours = [line[4] for line in page.sheets[0].lines[1:]]
    assert all("±" not in text for text in ours)


def test_equal_rate_is_tmlns_in_task_1() -> None:
    assert match_rate(SCALES["full"].setup("split-cifar10")) == {"lr": 0.1, "step.momentum": 0.0}


def test_sgd_with_replay_is_tmln_without_its_parts(study: Study) -> None:
    stand = TINY.setup("split-cifar10")
    control = study.store.result(run_id(stand.config("er", 0, match_rate(stand))))
    bare = stand.config("tmln", 0, {"step.trajectory": 0.0, "step.geometry": "euclidean"})
    assert execute(study.store, [Job(bare)]) == []
    other = study.store.result(run_id(bare))
    assert control is not None
    assert other is not None
    assert control.accuracy == other.accuracy


def test_table_3_is_read_from_the_recipes(study: Study) -> None:
    changed = BenchmarkSetup("split-cifar100", "split-digits", {**SMALL, "lr": 0.5})
    scale = replace(TINY, setups={**TINY.setups, "split-cifar100": changed})
    page = ITEMS["table3"].render(Study(scale, study.store))
    table, protocol = page.sheets
    assert ["TMLN", "step.damping", "lambda", "0.1", "0.1"] in table.lines
    assert ["EWC++", "penalty.strength", "lambda", "10000", "10000"] in table.lines
    assert protocol.lines[1][:3] == ["Split CIFAR-100", "ours", "split-digits"]
    assert protocol.lines[1][7] == "0.5"
    assert protocol.lines[2][4] == "50"


def test_table_3_says_where_a_recipe_differs(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any("not the paper's" in note for note in ITEMS["table3"].render(study).notes)
    monkeypatch.setattr("tmln.paper.tables.TABLE3", {"tmln": {"step.damping": ("lambda", 0.2)}})
    notes = ITEMS["table3"].render(study).notes
    assert notes[0].startswith("TMLN: step.damping is 0.1 on split-digits, not the paper's 0.2")


def test_table_5_has_three_losses_of_two_tasks(study: Study) -> None:
    page = ITEMS["table5"].render(study)
    assert len(page.records) == 2 * 3 * 3
    naive = page.sheets[0].lines[1]
    assert naive[:2] == ["Naive SGD", "2"]
    assert naive[3::2] == ["2.9338", "1.3871", "24.5702"]
    start = {(r["task"], r["moment"]): set() for r in page.records}  # type: ignore[var-annotated]
    for record in page.records:
        start[record["task"], record["moment"]].add(record["mean"])
    assert len(start["task 1", "start"]) == 1  # one start for all methods of a seed


def test_table_6_sweeps_the_union_and_marks_what_the_paper_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "TABLE6", TABLE6)
    lines = tables.list_table6_rows(SCALES["full"].setup("split-cifar10"))
    taus = [line.changes["step.damping"] for line in lines if line.method == "ocar"]
    assert taus == [1e-4, 1e-3, 1e-2, 0.1, 1, 10]
    assert [line.cells for line in lines if line.ours] == [("+ RWalk", "lambda = 10, explicit"), ("OCAR", "tau = 0.1")]
    assert all(line.changes["penalty.proximal"] for line in lines if line.method == "rwalk" and not line.ours)


def test_figure_3_is_of_table_6s_runs_and_draws_the_papers_beside(study: Study) -> None:
    assert ITEMS["figure3"].runs is ITEMS["table6"].runs
    page = ITEMS["figure3"].render(study)
    assert page.figure is not None
    assert [axes.get_title() for axes in page.figure.axes] == ["ours: split-digits", "paper: Split CIFAR-10"]
    assert sum(record["whose"] == "paper: Split CIFAR-10" for record in page.records) == 35


def test_a_measurement_that_fails_is_said(study: Study, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def diverge(*arguments: object, **options: object) -> None:
        raise FloatingPointError("naive diverged, so there is nothing to compare with")

    monkeypatch.setattr("tmln.paper.measurements.measure_overhead", diverge)
    page = ITEMS["table4"].render(replace(study, store=Store(tmp_path)))
    assert "not measured: naive diverged, so there is nothing to compare with" in page.notes
    assert "not run" in texts(page)


def test_runs_that_diverge_are_on_every_page_that_needs_them(tmp_path: Path) -> None:
    wild = {**SMALL, "lr": 1e20}
    stands = {paper: BenchmarkSetup(paper, stand.benchmark, wild) for paper, stand in TINY.setups.items()}
    scale = replace(TINY, setups=stands, seeds=1)
    study = Study(scale, Store(tmp_path))
    wanted = [ITEMS[name] for name in ("table2", "figure3")]
    assert execute(study.store, plan_jobs(wanted, scale), RunOptions("prefix"), ExecutorConfig("serial")) == []
    for name in ("table2", "table5", "figure2", "figure3", "barrier"):
        page = ITEMS[name].render(study)
        assert any("diverged" in note for note in page.notes), name
    assert "diverged" in texts(ITEMS["table2"].render(study))


def test_table_1_declares_every_method_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    scale = SCALES["smoke"]
    assert {line.method for line in tables.list_table1_rows(scale.setup("core50"))} == set(tables.TABLE1_METHODS)
