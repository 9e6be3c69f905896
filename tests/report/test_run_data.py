"""What the page is told of classes: sums over seeds, by hand; nothing where runs do not fit together."""

from __future__ import annotations

from tests.report.conftest import read, result
from tmln.report.run_data import MOST, describe_classes
from tmln.tallies import pack_confusion

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
