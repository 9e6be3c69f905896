"""What only looks at runs starts without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.report.conftest import keep, result
from tmln.experiments.command import changed_of
from tmln.experiments.config import RunConfig
from tmln.experiments.reference_runs import reference_names

# what takes a second or more to import
HEAVY = (
    *("torch", "matplotlib", "sklearn", "optuna", "ray", "lightning"),
    *("tmln.methods.component", "tmln.experiments.config"),
)
PROGRAM = """
import sys
from tmln.cli import app
app(sys.argv[1:], standalone_mode=False)
print("imported:", *[name for name in {heavy} if name in sys.modules])
"""


def written(method: str, seed: int, **more: Any) -> dict[str, Any]:
    """A result as this version writes it: with the names of its references and of what was changed."""
    made = result(method, seed, **more)
    made["references"] = reference_names(made["config"])
    made["changed"] = changed_of(RunConfig.of(made["config"]))
    return made


@pytest.mark.parametrize("command", ["show", "report", "pareto"])
def test_torch_is_not_imported(tmp_path: Path, command: str) -> None:
    runs = keep(tmp_path / "runs", [written(method, seed) for method in ("er", "tmln", "joint") for seed in (0, 1)])
    words = [command, str(runs), *(["-o", str(tmp_path / "page.html")] if command == "report" else [])]
    program = PROGRAM.format(heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split() == ["imported:"]
    if command == "show":
        assert "INT is against joint training" in done.stdout
    if command == "report":
        assert "--set benchmark.tasks=3" in (tmp_path / "page.html").read_text(encoding="utf-8")
