"""Results that make no sense are told apart, whatever is odd about them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tmln.analysis.read import LARGEST, find_defect
from tmln.experiments.result import Result

GOOD = Result("split-digits", "er", 0, {}, accuracy=[[0.9, 0.1], [0.5, 0.7]], seconds=1.0)


def test_what_is_sound_is_not_complained_of() -> None:
    assert find_defect(GOOD) == ""
    slack = replace(GOOD, accuracy=[[1 + 5e-7, -5e-7], [float("nan"), 0.5]])  # rounding, and what was null
    assert find_defect(slack) == ""
    assert find_defect(replace(GOOD, accuracy=[[0.5, 0.0]], diverged="the loss is nan")) == ""
    assert find_defect(replace(GOOD, accuracy=[], diverged="the loss is nan")) == ""
    assert find_defect(replace(GOOD, accuracy=[[0.5, 0.6]], config={"merged": True})) == ""
    assert find_defect(replace(GOOD, said={"acc": float("inf")})) == ""
    assert find_defect(replace(GOOD, said={"own": LARGEST})) == ""


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"seed": "three"}, "its seed is no whole number but 'three'"),
        ({"seed": True}, "its seed is no whole number but True"),
        ({"benchmark": ""}, "its benchmark is no name but ''"),
        ({"method": 7}, "its method is no name but 7"),
        ({"accuracy": []}, "its accuracy matrix is empty"),
        ({"accuracy": [[0.5], [0.5, 0.5]]}, "its accuracy matrix is ragged: rows of 1, 2"),
        ({"accuracy": [[]]}, "its accuracy matrix is ragged: rows of 0"),
        ({"accuracy": [[0.5], [0.5]]}, "its accuracy matrix has 2 rows for 1 tasks"),
        ({"accuracy": [[0.5, 0.5]]}, "its accuracy matrix has 1 rows for 2 tasks, though it has not diverged"),
        ({"accuracy": [[0.5, 0.0], [2.0, 0.5]]}, "its accuracy matrix holds 2.0, which is no fraction"),
        ({"accuracy": [[0.5, 0.0], [-1e-5, 0.5]]}, "its accuracy matrix holds -1e-05, which is no fraction"),
        ({"masked_accuracy": [[0.5, "half"]]}, "its masked accuracy holds 'half', which is no fraction"),
        ({"baseline": [[[7]]]}, "its baseline holds 7, which is no fraction"),
        ({"validation_accuracy": [[0.5, 1.5]]}, "its validation accuracy holds 1.5, which is no fraction"),
        ({"extra_accuracy": {"official": "abc"}}, "its extra accuracy holds 'abc', which is no fraction"),
        ({"reference_accuracy": [None]}, "its reference accuracy holds None, which is no fraction"),
        ({"said": {"own": -2 * LARGEST}}, "its 'own' is -2e+100, too large to reckon with"),
        ({"seconds": 2 * LARGEST}, "its 'seconds' is 2e+100, too large to reckon with"),
        ({"effective_rate": 2 * LARGEST}, "its 'rate' is 2e+100, too large to reckon with"),
        ({"method": ["x" * 99]}, "its method is no name but ['" + "x" * 35 + "..."),
    ],
)
def test_why_a_result_cannot_be_shown(change: dict[str, Any], why: str) -> None:
    assert find_defect(replace(GOOD, **change)) == why
