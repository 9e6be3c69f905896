"""Mutant -> verdict: the tests are run on a copy of the tree with the fault in it, in a process forked for it.

The copy makes a mutant an ordinary file, which processes that a test starts see as well. The fork begins with torch and
pytest imported, which is most of what a cold start takes.
"""

from __future__ import annotations

import importlib
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.mutants.operators import Mutant

COPIED = ("src", "tests", "benchmarks", "examples", "docs", "pyproject.toml", "README.md", "CHANGELOG.md")
WARM = ("torch", "torch.func", "numpy", "pytest", "hypothesis", "pydantic", "safetensors.torch", "yaml", "rich", "typer")
KILLED, SURVIVED, ENDLESS = "killed", "survived", "endless"


@dataclass(frozen=True)
class Cost:
    """Seconds that tests take: of the processor, which a busy machine does not change, and of the clock."""

    cpu: float
    wall: float


def warm_up() -> None:
    """Imports what every child needs, but nothing that is mutated."""
    for name in WARM:
        importlib.import_module(name)
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    assert "tmln" not in sys.modules, "tmln is imported already, so that mutants of it would not be seen"


def copy_tree(tree: Path, to: Path) -> Path:
    """What the tests need, with the times of files, so that what was compiled for one copy serves the next."""
    to.mkdir(parents=True)
    for name in COPIED:
        if (tree / name).is_dir():
            shutil.copytree(tree / name, to / name, ignore=shutil.ignore_patterns("*.so"), symlinks=True)
        elif (tree / name).exists():
            shutil.copy2(tree / name, to / name)
    return to


@dataclass
class Trial:
    """One run of tests in a child of its own."""

    pid: int
    began: float
    wall_limit: float

    def verdict(self) -> str | None:
        """None while it runs."""
        pid, status, used = os.wait4(self.pid, os.WNOHANG)
        if pid == 0:
            if time.monotonic() - self.began < self.wall_limit:
                return None
            self.stop()
            return ENDLESS
        self.cost = Cost(used.ru_utime + used.ru_stime, time.monotonic() - self.began)
        self.stop(reap=False)  # what the tests left running
        if os.WIFSIGNALED(status):
            return ENDLESS if os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL) else KILLED
        return SURVIVED if os.WEXITSTATUS(status) == 0 else KILLED

    def stop(self, reap: bool = True) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        if reap:
            os.waitpid(self.pid, 0)


def start(copy: Path, tests: Sequence[str], usual: Cost | None) -> Trial:
    """Runs ``tests`` in ``copy``; ``usual`` is what they take on the unmutated tree, unknown when that is measured.

    The limit is one of processor time: an endless loop reaches it, a slow machine does not. The clock ends only what
    waits for ever.
    """
    pid = os.fork()
    if pid:
        wall = 3600.0 if usual is None else 120 + 30 * usual.wall
        return Trial(pid, time.monotonic(), wall)
    try:
        os.setsid()
        os.chdir(copy)
        log = os.open(copy / "tests.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if usual is not None:
            seconds = int(30 + 10 * usual.cpu)
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
            sys.dont_write_bytecode = True
        os.environ["PYTHONPATH"] = str(copy / "src")
        for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
            del sys.modules[name]  # the copy's own are imported by its tests
        sys.path[:0] = [str(copy / "src"), str(copy)]
        import pytest

        code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]))
    except BaseException:
        code = 70
    os._exit(code)


def put(copy: Path, mutant: Mutant, source: str, stamp: int) -> None:
    """Writes the fault; ``stamp`` is a time no compiled file was made for."""
    path = copy / mutant.file
    path.write_text(mutant.apply(source), encoding="utf-8")
    os.utime(path, (stamp, stamp))
