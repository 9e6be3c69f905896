"""The row that represents a method, and methods by benchmarks."""

from __future__ import annotations

import math
from typing import Any

from tests.report.conftest import read, result
from tmln.analysis.rows import group_by_table, group_rows
from tmln.report.table_data import UNRANKED, describe_benchmarks, find_representative_rows


def swept(method: str, bases: dict[float, float], validated: dict[float, float] | None = None) -> list[dict[str, Any]]:
    """A run for each damping, with the base accuracy and, if given, the validation accuracy that it has."""
    runs = []
    for damping, base in bases.items():
        more = {} if validated is None else {"validation_accuracy": [[validated[damping]] * 3] * 3}
        runs.append(result(method, 0, base, 0.0, settings={"step.damping": damping}, known="tmln", **more))
    return runs


def test_one_row_a_method_and_how_it_was_chosen() -> None:
    runs = [
        *swept("tmln", {0.1: 0.9, 0.2: 0.8}, {0.1: 0.5, 0.2: 0.6}),
        *swept("own", {0.1: 0.9, 0.2: 0.8}),
        result("er", 0),
        result("joint", 0, 0.99),
        result("joint", 0, 0.98, settings={"step.momentum": 0.5}),
        result("ewc", 0, accuracy=[[math.nan] * 3] * 3, metrics={"acc": math.nan}, diverged="at once"),
    ]
    rows = find_representative_rows(group_rows(read(runs)))
    found = {name: (one.row.settings, one.words, one.fair) for name, one in rows.items()}
    assert found == {
        "tmln": ("step.damping=0.2", "chosen on validation data from 2", True),
        "own": ("step.damping=0.1", "chosen on the test data from 2", False),
        "er": ("", "", True),
        "joint": ("step.momentum=0.9", "highest ACC of 2", True),
        "ewc": ("", "", True),
    }


def test_benchmarks_by_hand() -> None:
    """a is first and first, b second and second; c is on one, own was chosen on the tests, joint sees all data."""
    runs = [
        *(
            result(m, 0, base, 0.0, benchmark=b, known="er")
            for b in ("one", "two")
            for m, base in (("a", 0.9), ("b", 0.8))
        ),
        result("c", 0, 0.7, 0.0, benchmark="two", known="er"),
        *swept("own", {0.1: 0.99, 0.2: 0.98}),
        *(result("joint", s, 0.95 + 0.02 * s, 0.0, benchmark="one") for s in (0, 1)),
    ]
    rows = group_rows(read(runs))
    rows = [row for row in rows if row.title != "split-digits" or row.method == "own"]
    chosen = {name: find_representative_rows(mine) for name, mine in group_by_table(rows).items()}
    found = describe_benchmarks(rows, chosen, ["acc", "seconds"])
    assert found is not None
    assert found["tables"] == ["one", "split-digits", "two"]
    assert list(found["maps"]) == ["acc"]  # seconds are not ranked
    assert found["maps"]["acc"]["notes"] == [UNRANKED]  # own is on a third table, where the others are not
    some = [row for row in rows if row.method != "own"]
    chosen = {name: find_representative_rows(mine) for name, mine in group_by_table(some).items()}
    found = describe_benchmarks(some, chosen, ["acc"])
    assert found is not None
    methods = {one["method"]: one for one in found["maps"]["acc"]["methods"]}
    assert list(methods) == ["a", "b", "c", "joint"]
    assert [methods[name]["mean_rank"] for name in methods] == [1.0, 2.0, None, None]
    first = {
        "label": "a",
        "n": 1,
        "mean": methods["a"]["cells"][0]["mean"],
        "std": None,
        "text": "90.0",
        "rank": 1.0,
        "fair": True,
    }
    assert methods["a"]["cells"][0] == first
    assert methods["c"]["cells"][0] is None
    assert [cell and cell["rank"] for cell in methods["joint"]["cells"]] == [None, None]
    assert methods["joint"]["cells"][0]["std"] > 0
    assert any(note.startswith("over 2 tables no method ranks above another") for note in found["maps"]["acc"]["notes"])


def test_one_benchmark_has_no_map() -> None:
    rows = group_rows(read([result("er", 0), result("tmln", 0)]))
    assert describe_benchmarks(rows, {"split-digits": find_representative_rows(rows)}, ["acc"]) is None
