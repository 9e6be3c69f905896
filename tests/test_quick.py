"""`make quick` covers every component and every method, and leaves out what starts processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tmln.methods.recipes import FAMILIES, RECIPES

ROOT = Path(__file__).parents[1]


def test_every_component_and_method_is_covered() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-m", "not slow", "-p", "no:cacheprovider"]
    command += [
        "-o",
        "addopts=",
        "-v",
        "tests/test_every_component.py",
        "tests/test_every_method.py",
        "tests/test_quick.py",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    chosen = set(done.stdout.split())
    for family, table in FAMILIES.items():
        for name in table:
            assert f"tests/test_every_component.py::test_state_round_trip_goes_on_exactly[{family}-{name}]" in chosen
    for method in RECIPES:
        assert f"tests/test_every_method.py::test_learns_above_a_floor[{method}]" in chosen
    assert not any("test_quick" in line for line in chosen), "a module that imports subprocess is not quick"
