"""Every fault of the torture's table, a few of each: nothing lost, nothing different, every error clear.

A new row of the table is tested here without a change. ``make torture`` does the same by the hundred.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from benchmarks.torture.runner import torture
from benchmarks.torture.scene import Scene
from benchmarks.torture.table import FAULTS

ELSEWHERE = {"ray"}  # tests/executors/test_ray.py kills a worker of Ray; a second Ray would take half a minute more


@pytest.mark.parametrize("name", [name for name in FAULTS if name not in ELSEWHERE])
def test_nothing_is_lost_nothing_is_different_and_errors_are_clear(name: str, tmp_path: Path) -> None:
    if name == "fuzz" and importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed")
    row = torture(name, FAULTS[name], Scene(tmp_path), lean=True, cores=1)
    found, notes = row.verdict, "\n".join(row.verdict.notes)
    assert row.done == row.planned
    assert found.injected >= row.planned, notes
    assert (found.lost, found.different) == (0, 0), notes
    assert not found.unclear, notes
