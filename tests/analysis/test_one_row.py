"""A metric is one row of one table: registered, it is in every table, format and page, also for runs of before."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.report.conftest import keep, result
from tmln import metrics
from tmln.cli import app
from tmln.metrics import Metric
from tmln.report import build_document


def worst_forgetting(R: Any) -> float:
    matrix = np.asarray(R)
    return float((matrix.max(axis=0) - matrix[-1]).max())


TOY = Metric(
    "worst FM", "the most that any task fell", worst_forgetting, more_is_better=False, within=(-1, 1), shown="always"
)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Written before anybody thought of the metric: a task falls by ``drop`` with each of two later ones."""
    found = keep(
        tmp_path / "runs", [result(m, s, 0.9, d + 0.1 * d * s) for m, d in (("er", 0.1), ("si", 0.3)) for s in range(3)]
    )
    monkeypatch.setitem(metrics.METRICS, "fm_worst", TOY)
    return found


def said(*words: str) -> str:
    shown = CliRunner().invoke(app, list(words))
    assert shown.exit_code == 0, shown.output
    return shown.stdout


def test_tables_have_it_with_its_own_heading_and_direction(runs: Path) -> None:
    table = said("show", str(runs))
    assert "worst FM % ↓" in table
    assert "22.0 ± 2.0" in table  # 2 * 0.10, 2 * 0.11 and 2 * 0.12
    heading, _, er, si = said("show", str(runs), "--format", "md").splitlines()[:4]
    at = heading.split(" | ").index("worst FM % ↓")
    assert er.split(" | ")[at] == "**22.0 ± 2.0**"  # less is better
    assert si.split(" | ")[at] == "66.0 ± 6.0"
    assert r"worst FM \% $\downarrow$" in said("show", str(runs), "--format", "latex")
    first, second = csv.DictReader(said("show", str(runs), "--format", "csv").splitlines())
    assert float(first["fm_worst_mean"]) == pytest.approx(0.22)
    assert float(second["fm_worst_mean"]) == pytest.approx(0.66)


def test_it_can_be_asked_for_and_weighed(runs: Path) -> None:
    assert "worst FM" in said("show", str(runs), "--metrics", "fm_worst")
    assert "worst FM % ↓" in said("pareto", str(runs), "--x", "fm_worst", "--y", "acc")


def test_the_page_gets_it_as_data(runs: Path) -> None:
    found = build_document(runs)
    row = found["metrics"]["fm_worst"]
    assert (row["title"], row["more_is_better"]) == ("worst FM % ↓", False)
    assert "fm_worst" in found["columns"]
    assert [run["metrics"]["fm_worst"] for run in found["runs"]] == pytest.approx([0.2, 0.22, 0.24, 0.6, 0.66, 0.72])
