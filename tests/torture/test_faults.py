"""Every fault of the torture's table, a few of each: nothing lost, nothing different, every error clear.

A new row of the table is tested here without a change. ``make torture`` does the same by the hundred.
"""

from __future__ import annotations

import fcntl
import importlib.util
from contextlib import nullcontext
from pathlib import Path

import pytest
from benchmarks.torture.runner import torture
from benchmarks.torture.scene import Scene
from benchmarks.torture.table import FAULTS

NEEDS = {"fuzz": "atheris", "ray": "ray"}


@pytest.mark.parametrize("name", FAULTS)
def test_nothing_is_lost_nothing_is_different_and_errors_are_clear(
    name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    turn = (tmp_path_factory.getbasetemp().parent / "ray.lock").open("w") if name == "ray" else nullcontext()
    with turn as file:
        if file is not None:
            fcntl.flock(file, fcntl.LOCK_EX)  # one Ray at a time, however many processes test
        row = torture(name, FAULTS[name], Scene(tmp_path), lean=True, cores=1)
    found, notes = row.verdict, "\n".join(row.verdict.notes)
    if notes.startswith("not done"):
        pytest.skip(notes)
    assert row.done == row.planned
    assert found.injected >= row.planned, notes
    assert (found.lost, found.different) == (0, 0), notes
    assert not found.unclear, notes


def test_what_needs_a_library_is_in_the_table() -> None:
    assert NEEDS.keys() <= FAULTS.keys()
