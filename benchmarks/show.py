"""Measure commands as a person waits for them: ``show`` and ``report`` of 200 runs, and ``demo``."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.analysis.test_no_torch import written
from tests.report.conftest import keep

from benchmarks.timing import Line

RUNS, SECONDS, TRIES = 200, 0.5, 10
TOUR = 8.6  # half of what it took at first


def lines() -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as folder:
        methods = ("er", "tmln", "naive", "joint")
        many = [written(method, seed) for method in methods for seed in range(RUNS // len(methods))]
        runs = keep(Path(folder) / "many", many)
        for words in (("show", str(runs)), ("report", str(runs), "-o", f"{folder}/page.html")):
            seconds = min(_seconds(words) for _ in range(TRIES))
            yield Line(f"tmln {words[0]} of {RUNS} runs: share of {SECONDS:g} s", seconds / SECONDS, 1.0)
        best = min(_table(Path(folder) / f"tour{number}") for number in range(5))
        yield Line(f"tmln demo, to its table: share of {TOUR:g} s", best / TOUR, 1.0)


def _seconds(words: tuple[str, ...]) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-m", "tmln", *words], check=True, capture_output=True)
    return time.perf_counter() - begin


def _table(out: Path) -> float:
    """Return the seconds until the table's title is printed."""
    begin, title = time.perf_counter(), float("nan")
    words = [sys.executable, "-m", "tmln", "demo", "--runs", str(out)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        for line in process.stdout or ():
            if line.strip() == "split-digits":
                title = time.perf_counter() - begin
    return title
