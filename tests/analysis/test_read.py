"""Whatever lies in a folder of runs: what makes sense is gathered, the rest is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tmln.analysis.read import LARGEST, find_defect, read_results
from tmln.experiments.config import RunConfig
from tmln.experiments.result import Result, write_result
from tmln.experiments.store import Store

CONFIG = RunConfig.of({"benchmark": "split-digits", "method": "er", "benchmark_options": {"tasks": 2}})


def write(root: Path, number: int, **changes: Any) -> None:
    run = Store(root).open(CONFIG.with_setting("seed", number))
    with run.lock:
        run.finish({"accuracy": [[0.9, 0.1], [0.5, 0.7]], "metrics": {"acc": 0.6}, "oracle": "none"})
    path = run.path / "result.json"
    if "format" in changes:
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    else:
        write_result(path, {**json.loads(path.read_text()), **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"method": ""}, "method is no name"),
        ({"accuracy": [[0.5], [0.5, 0.5]]}, "ragged"),
        ({"accuracy": []}, "empty"),
        ({"format": 99}, "upgrade tmln"),
    ],
    ids=["method", "ragged", "empty", "newer"],
)
def test_what_makes_no_sense_is_named(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    write(tmp_path, 0)
    write(tmp_path, 1, **changes)
    Store(tmp_path).open(CONFIG.with_setting("seed", 2))
    results, problems = read_results(tmp_path)
    assert [result.seed for result in results] == [0]
    assert sorted((problem.state, said in problem.reason) for problem in problems) == [
        ("corrupt", True),
        ("unfinished", False),
    ]


def test_no_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no folder"):
        read_results(tmp_path / "nowhere")
    assert read_results(tmp_path) == ([], [])


# -- results that make no sense are told apart, whatever is odd about them


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
