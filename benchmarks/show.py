"""``tmln show`` and ``tmln report`` on a folder of 200 runs, from the command to its end: shares of half a second."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.report.conftest import keep
from tests.results.test_no_torch import written

from benchmarks.timing import Line

RUNS, SECONDS, TRIES = 200, 0.5, 10


def lines() -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as folder:
        methods = ("er", "tmln", "naive", "joint")
        many = [written(method, seed) for method in methods for seed in range(RUNS // len(methods))]
        runs = keep(Path(folder) / "many", many)
        for words in (("show", str(runs)), ("report", str(runs), "-o", f"{folder}/page.html")):
            seconds = min(_seconds(words) for _ in range(TRIES))
            yield Line(f"tmln {words[0]} of {RUNS} runs: share of {SECONDS:g} s", seconds / SECONDS, 1.0)


def _seconds(words: tuple[str, ...]) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-m", "tmln", *words], check=True, capture_output=True)
    return time.perf_counter() - begin
