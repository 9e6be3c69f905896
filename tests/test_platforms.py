"""Where POSIX modules are missing, the core works, and whatever does runs says in one line what it needs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

MISSING = """
import os, sys
for name in ("fcntl", "resource", "termios", "pwd", "grp"):
    sys.modules[name] = None
del os.fork
"""
CORE = """
import tempfile, torch
from tmln import TMLN, Learner, Reservoir, diagonal_fisher
torch.manual_seed(0)
model, x, y = torch.nn.Linear(4, 3), torch.randn(12, 4), torch.randint(3, (12,))
optimizer = TMLN(model.parameters(), lr=0.1)
torch.nn.functional.cross_entropy(model(x), y).backward()
optimizer.step()
optimizer.consolidate(diagonal_fisher(model, [(x, y)]))
buffer = Reservoir(capacity=5)
buffer.add(x, y)
learner = Learner(model, method="tmln", batch_size=4)
learner.learn((x, y))
learner.save(f"{tempfile.mkdtemp()}/state.tmln")
print(len(buffer), learner.tasks)
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MISSING + program], capture_output=True, text=True, check=False, env=dict(os.environ)
    )


def test_the_core_needs_no_posix() -> None:
    done = run(CORE)
    assert done.stdout.split() == ["5", "1"], done.stderr


@pytest.mark.parametrize("program", ["import tmln.experiments", "from tmln.analysis.read import read_results"])
def test_what_does_runs_says_what_it_needs(program: str) -> None:
    done = run(f"try: {program}\nexcept ImportError as error: print(error)")
    assert len(done.stdout.splitlines()) == 1, done.stderr
    assert all(name in done.stdout for name in ("Linux or macOS", "os.fork", "fcntl", "resource", "tmln.Learner"))
