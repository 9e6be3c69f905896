"""What the page is given of runs: mean matrices, curves, classes and barriers, by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.report.conftest import read, result
from tmln.evaluation_counts import pack_confusion
from tmln.report.run_data import MOST, describe_classes, mean_matrix, summarise_barriers, summarise_curves

FIRST, LAST = [[4, 0], [4, 0]], [[3, 1], [0, 4]]


def texts(*tables: list[list[int]]) -> list[str]:
    return [pack_confusion(table) for table in tables]


def test_classes_by_hand() -> None:
    names = ["cat", "dog"]
    runs = read(
        [
            result("er", seed, confusion=texts(FIRST, LAST, last), class_names=names)
            for seed, last in enumerate((LAST, FIRST))
        ]
    )
    assert describe_classes(runs) == {
        "names": names,
        "seeds": 2,
        "accuracy": [[1.0, 0.0], [0.75, 1.0], [0.875, 0.5]],
        "mean": [0.5, 0.875, 0.6875],
        "confusion": [[0, 0, 7, 0.875], [0, 1, 1, 0.125], [1, 0, 4, 0.5], [1, 1, 4, 0.5]],
    }


def test_a_class_that_was_not_tested_has_no_accuracy() -> None:
    found = describe_classes(read([result("er", 0, confusion=texts(FIRST, LAST, [[2, 0], [0, 0]]))]))
    assert found is not None
    assert found["accuracy"][-1] == [1.0, None]
    assert found["names"] == ["0", "1"]  # nobody said what they are called


def test_nothing_where_runs_do_not_fit_together() -> None:
    other = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    lists: list[list[list[str]]] = [
        [[]],
        [texts(FIRST, LAST)],  # two of three tasks
        [["nonsense"] * 3],
        [texts(LAST, LAST, LAST), texts(other, other, other)],
        [texts(*[[[0] * (MOST + 1)] * (MOST + 1)] * 3)],
    ]
    for confusions in lists:
        assert (
            describe_classes(read([result("er", seed, confusion=one) for seed, one in enumerate(confusions)])) is None
        )
    assert describe_classes(read([result("er", 0, confusion=texts(LAST, LAST, LAST), diverged="nan")])) is None


def two_seeds(*more: dict[str, Any]) -> list[Any]:
    first = result("er", 0, accuracy=[[0.9, 0.1], [0.5, 0.7]])
    second = result("er", 1, accuracy=[[0.7, 0.3], [0.3, 0.9]])
    return read([first, second, *more])


def test_matrices_and_curves_by_hand() -> None:
    """Of two seeds with accuracies 0.9 and 0.7: mean 0.8, deviation 0.1 sqrt 2, interval 0.8 -+ 12.706 * 0.1."""
    lost = result("er", 2, accuracy=[[0.0, 0.0]], diverged="nan")
    runs = two_seeds(lost)
    assert mean_matrix(runs) == [pytest.approx([0.8, 0.2]), pytest.approx([0.4, 0.8])]
    curves = summarise_curves(runs)
    spread = round(0.1 * math.sqrt(2), 6)
    assert curves["average"] == [[2, 0.8, spread, 0.0, 1.0], [2, 0.6, 0.0, 0.6, 0.6]]
    assert [len(points) for points in curves["tasks"]] == [2, 1]  # the second from when it is learned
    assert curves["tasks"][1] == [[2, 0.8, spread, 0.0, 1.0]]
    alone = summarise_curves(read([result("er", 0, accuracy=[[0.9, 0.1], [0.5, 0.7]])]))
    assert alone["average"] == [[1, 0.9, None, None, None], [1, 0.6, None, None, None]]
    assert (mean_matrix([]), summarise_curves([])) == ([], {"average": [], "tasks": []})


def test_barriers_are_averaged_over_tasks_then_seeds() -> None:
    def seed(*losses: list[float | None]) -> dict[str, Any]:
        return {"pairs": [{"from": 1, "to": 2, "tasks": [{"loss": loss} for loss in losses]}]}

    content = {"methods": [{"method": "er", "seeds": [seed([1.0, 3.0], [3.0, 5.0]), seed([4.0, None])]}]}
    lines = summarise_barriers(content)["methods"][0]["lines"]
    assert [(line["from"], line["to"]) for line in lines] == [(1, 2)]
    assert lines[0]["mean"] == [3.0, 4.0]  # of 2 and 4; of 4 and of no number
    assert lines[0]["std"][0] == pytest.approx(math.sqrt(2))
    assert math.isnan(lines[0]["std"][1])
    for damaged in ({"methods": "text"}, {"methods": [{"method": "er"}]}, {"methods": [{"seeds": 3}]}):
        assert summarise_barriers(damaged) == damaged
