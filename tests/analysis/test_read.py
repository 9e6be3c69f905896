"""Whatever lies in a folder of runs: what makes sense is gathered, the rest is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tmln.analysis.read import read_results
from tmln.experiments.config import RunConfig
from tmln.experiments.result import write_result
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
