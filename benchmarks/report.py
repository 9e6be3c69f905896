"""Measure the page of 500 runs in the system's Chromium: time until it is ready, and size."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.report.browser import Reader, chromium
from tests.report.conftest import keep, result

from benchmarks.timing import Line

SECONDS, MEGABYTES = 5.0, 8.0


def lines() -> Iterator[Line]:
    if shutil.which("chromium") is None:
        return
    many = [
        result("tmln", seed, 0.9 - 0.001 * number, 0.01, settings={"step.damping": 0.01 * (number + 1)})
        for number in range(100)
        for seed in range(5)
    ]
    with tempfile.TemporaryDirectory() as folder:
        runs = keep(Path(folder) / "many", many)
        for browser in chromium():
            reader = Reader(browser)
            ready = [float(reader.open(runs).get_attribute("html", "data-ready")) / 1000 for _ in range(3)]
        size = (runs.parent / "many.html").stat().st_size / 1e6
    yield Line(f"the report of 500 runs, ready: share of {SECONDS:g} s", min(ready) / SECONDS, 1.0)
    yield Line(f"the report of 500 runs, size: share of {MEGABYTES:g} MB", size / MEGABYTES, 1.0)
