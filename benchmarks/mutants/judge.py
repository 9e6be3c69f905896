"""Mutant -> verdict: the tests are run on a copy of the tree with the fault in it, in a process forked for it.

The copy makes a mutant an ordinary file, which processes that a test starts see as well. The fork begins with torch and
pytest imported, which is most of what a cold start takes.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.mutants.operators import Mutant
from benchmarks.mutants.targets import EVERY_PART, judges

COPIED = ("src", "tests", "benchmarks", "examples", "docs", "pyproject.toml", "README.md", "CHANGELOG.md")
WARM = (
    "torch",
    "torch.func",
    "torch._dynamo",  # the first step of any optimizer imports it: 1.6 s of processor time
    "numpy",
    "pytest",
    "hypothesis",
    "pydantic",
    "safetensors.torch",
    "yaml",
    "rich",
    "typer",
)
# hypothesis, imported before pytest could look at its asserts, is no fault
PYTEST = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore::pytest.PytestAssertRewriteWarning")
KILLED, SURVIVED, ENDLESS = "killed", "survived", "endless"


@dataclass(frozen=True)
class Cost:
    """Seconds that tests take: of the processor, which a busy machine does not change, and of the clock."""

    cpu: float
    wall: float


@dataclass
class Trial:
    """One run of tests, in a child process that leads a group of its own."""

    pid: int
    began: float
    patience: float
    cost: Cost | None = None

    def verdict(self) -> str | None:
        """None while it runs."""
        pid, status, used = os.wait4(self.pid, os.WNOHANG)
        taken = time.monotonic() - self.began
        if pid == 0:
            if taken < self.patience:
                return None
            self.stop()
            os.waitpid(self.pid, 0)
            return ENDLESS
        self.stop()  # what the tests left running
        self.cost = Cost(used.ru_utime + used.ru_stime, taken)
        if os.WIFSIGNALED(status):
            return ENDLESS if os.WTERMSIG(status) == signal.SIGXCPU else KILLED
        return SURVIVED if os.WEXITSTATUS(status) == 0 else KILLED

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


def judged(
    tree: Path, todo: Sequence[tuple[str, Mutant]], jobs: int, say: Callable[[str], None]
) -> Iterator[tuple[str, Mutant, str]]:
    """Verdicts as they come, ``jobs`` at once; nothing is written but in a temporary folder."""
    if not todo:
        return
    _warm_up()
    tests = {mutant.file: judges(tree, package, mutant.file) for package, mutant in todo}
    running: dict[Path, tuple[Trial, str, Mutant]] = {}
    with tempfile.TemporaryDirectory(prefix="tmln-mutants-", ignore_cleanup_errors=True) as folder:
        first = _copy(tree, Path(folder) / "0")
        costs = {test: _usual(first, test, say) for test in sorted({test for its in tests.values() for test in its})}
        for its in tests.values():  # the mirrored ones first, then the cheap ones, what walks all parts last
            its[1:] = sorted(its[1:], key=lambda test: (test == EVERY_PART, costs[test].cpu))
        copies = [first, *(_copy(first, Path(folder) / str(job)) for job in range(1, jobs))]
        waiting, stamp = list(reversed(todo)), int(time.time())
        try:
            while waiting or running:
                for copy in copies:
                    if copy not in running and waiting:
                        package, mutant = waiting.pop()
                        path, stamp = copy / mutant.file, stamp + 10
                        path.write_text(mutant.apply(path.read_text(encoding="utf-8")), encoding="utf-8")
                        os.utime(path, (stamp, stamp))  # a time that nothing was compiled for
                        usual = [costs[test] for test in tests[mutant.file]]
                        limit = Cost(sum(cost.cpu for cost in usual), sum(cost.wall for cost in usual))
                        running[copy] = _start(copy, tests[mutant.file], limit), package, mutant
                for copy, (trial, package, mutant) in list(running.items()):
                    verdict = trial.verdict()
                    if verdict is not None:
                        del running[copy]
                        shutil.copy2(tree / mutant.file, copy / mutant.file)
                        yield package, mutant, verdict
                time.sleep(0.02)
        finally:
            for trial, _, _ in running.values():
                trial.stop()
                os.waitpid(trial.pid, 0)


def _warm_up() -> None:
    """Imports what every child needs, but nothing that is mutated."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in WARM:
        importlib.import_module(name)
    if "tmln" in sys.modules:
        raise RuntimeError("tmln is imported already, so that its mutants would not be seen")


def _copy(tree: Path, to: Path) -> Path:
    """What the tests need, with the files' times, so that what was compiled in one copy serves the next."""
    to.mkdir()
    for name in COPIED:
        if (tree / name).is_dir():
            shutil.copytree(tree / name, to / name)
        elif (tree / name).exists():
            shutil.copy2(tree / name, to / name)
    return to


def _usual(copy: Path, test: str, say: Callable[[str], None]) -> Cost:
    """What a test file takes on the unmutated tree, where it has to pass."""
    trial = _start(copy, [test], None)
    while (verdict := trial.verdict()) is None:
        time.sleep(0.02)
    if verdict != SURVIVED or trial.cost is None:
        log = (copy / "tests.log").read_text(errors="replace")[-3000:]
        raise SystemExit(f"{test} fails on the unmutated tree, so it cannot judge mutants:\n{log}")
    say(f"{test}: {trial.cost.cpu:.1f} s of processor time")
    return trial.cost


def _start(copy: Path, tests: Sequence[str], usual: Cost | None) -> Trial:
    """``usual`` is what the tests take on the unmutated tree; None while that is measured.

    The limit is one of processor time: an endless loop reaches it, a slow machine does not. The clock ends only what
    waits for ever.
    """
    pid = os.fork()
    if pid:
        return Trial(pid, time.monotonic(), 3600.0 if usual is None else 120 + 30 * usual.wall)
    code = 1
    try:
        os.setsid()
        os.chdir(copy)
        log = os.open("tests.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if usual is not None:
            seconds = int(20 + 5 * usual.cpu)
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
            sys.dont_write_bytecode = True
        os.environ["PYTHONPATH"] = str(copy / "src")
        for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
            del sys.modules[name]  # tests import those of the copy
        sys.path[:0] = [str(copy / "src"), str(copy)]
        code = int(importlib.import_module("pytest").main([*PYTEST, *tests]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
