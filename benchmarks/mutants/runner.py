"""Run the tests on a copy of the tree with one mutant in it, in a forked process.

In the copy a mutant is an ordinary file, also for processes that a test starts. The fork begins with torch
and pytest imported, which is most of what a cold start takes.
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
from benchmarks.mutants.targets import EVERY_COMPONENT, select_tests

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
# hypothesis is imported before pytest could rewrite its asserts; that warning is expected
PYTEST = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore::pytest.PytestAssertRewriteWarning")
KILLED, SURVIVED, TIMEOUT = "killed", "survived", "timeout"


@dataclass(frozen=True)
class Cost:
    """Seconds that tests take: processor time, which load does not change, and wall time."""

    cpu: float
    wall: float


@dataclass
class TestRun:
    """A run of tests in a child process with a process group of its own."""

    pid: int
    began: float
    patience: float
    cost: Cost | None = None

    def poll(self) -> str | None:
        """Return the status of the mutant, or None while the tests run."""
        pid, status, used = os.wait4(self.pid, os.WNOHANG)
        taken = time.monotonic() - self.began
        if pid == 0:
            if taken < self.patience:
                return None
            self.stop()
            os.waitpid(self.pid, 0)
            return TIMEOUT
        self.stop()  # processes that the tests left running
        self.cost = Cost(used.ru_utime + used.ru_stime, taken)
        if os.WIFSIGNALED(status):
            return TIMEOUT if os.WTERMSIG(status) == signal.SIGXCPU else KILLED
        return SURVIVED if os.WEXITSTATUS(status) == 0 else KILLED

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


def run_mutants(
    tree: Path, todo: Sequence[tuple[str, Mutant]], jobs: int, say: Callable[[str], None]
) -> Iterator[tuple[str, Mutant, str]]:
    """Yield statuses as they are known, from ``jobs`` processes; write to a temporary folder only."""
    if not todo:
        return
    _warm_up()
    tests = {mutant.file: select_tests(tree, package, mutant.file) for package, mutant in todo}
    running: dict[Path, tuple[TestRun, str, Mutant]] = {}
    with tempfile.TemporaryDirectory(prefix="tmln-mutants-", ignore_cleanup_errors=True) as folder:
        first = _copy_tree(tree, Path(folder) / "0")
        costs = {test: _measure(first, test, say) for test in sorted({test for its in tests.values() for test in its})}
        for its in tests.values():  # the mirrored file first, then cheap ones, the tests over all components last
            its[1:] = sorted(its[1:], key=lambda test: (test == EVERY_COMPONENT, costs[test].cpu))
        copies = [first, *(_copy_tree(first, Path(folder) / str(job)) for job in range(1, jobs))]
        waiting, stamp = list(reversed(todo)), int(time.time())
        try:
            while waiting or running:
                for copy in copies:
                    if copy not in running and waiting:
                        package, mutant = waiting.pop()
                        path, stamp = copy / mutant.file, stamp + 10
                        path.write_text(mutant.apply(path.read_text(encoding="utf-8")), encoding="utf-8")
                        os.utime(path, (stamp, stamp))  # a time for which there is no compiled file
                        usual = [costs[test] for test in tests[mutant.file]]
                        limit = Cost(sum(cost.cpu for cost in usual), sum(cost.wall for cost in usual))
                        running[copy] = _start(copy, tests[mutant.file], limit), package, mutant
                for copy, (test_run, package, mutant) in list(running.items()):
                    status = test_run.poll()
                    if status is not None:
                        del running[copy]
                        shutil.copy2(tree / mutant.file, copy / mutant.file)
                        yield package, mutant, status
                time.sleep(0.02)
        finally:
            for test_run, _, _ in running.values():
                test_run.stop()
                os.waitpid(test_run.pid, 0)


def _warm_up() -> None:
    """Import what every child needs, but nothing that is mutated."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in WARM:
        importlib.import_module(name)
    if "tmln" in sys.modules:
        raise RuntimeError("tmln is imported already, so that its mutants would not be seen")


def _copy_tree(tree: Path, to: Path) -> Path:
    """Copy what the tests need, with the files' times, so that compiled files stay valid."""
    to.mkdir()
    for name in COPIED:
        if (tree / name).is_dir():
            shutil.copytree(tree / name, to / name)
        elif (tree / name).exists():
            shutil.copy2(tree / name, to / name)
    return to


def _measure(copy: Path, test: str, say: Callable[[str], None]) -> Cost:
    """Measure a test file on the unmutated tree, where it has to pass."""
    test_run = _start(copy, [test], None)
    while (status := test_run.poll()) is None:
        time.sleep(0.02)
    if status != SURVIVED or test_run.cost is None:
        log = (copy / "tests.log").read_text(errors="replace")[-3000:]
        raise SystemExit(f"{test} fails on the unmutated tree, so it cannot test mutants:\n{log}")
    say(f"{test}: {test_run.cost.cpu:.1f} s of processor time")
    return test_run.cost


def _start(copy: Path, tests: Sequence[str], usual: Cost | None) -> TestRun:
    """Fork a process that runs the tests; ``usual`` is their cost on the unmutated tree, if known.

    The limit is one of processor time: an endless loop reaches it, a slow machine does not. Wall time
    limits only tests that wait for ever.
    """
    pid = os.fork()
    if pid:
        return TestRun(pid, time.monotonic(), 3600.0 if usual is None else 120 + 30 * usual.wall)
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
