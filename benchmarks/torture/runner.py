"""Run the trials of one fault, several at a time, until all are done or the time is up."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from benchmarks.torture.scene import Scene
from benchmarks.torture.table import Fault
from benchmarks.torture.verdict import Verdict, lost


@dataclass(frozen=True)
class Row:
    """What came of a fault; ``done`` is less than ``planned`` where the time was up."""

    name: str
    what: str
    verdict: Verdict
    done: int
    planned: int
    seconds: float


def torture(
    name: str,
    fault: Fault,
    scene: Scene,
    lean: bool = False,
    until: float = float("inf"),
    on_done: Callable[[], None] = lambda: None,
    cores: int | None = None,
) -> Row:
    """Run all trials, or those that begin before ``until`` by the monotonic clock."""
    trials, each = fault.lean if lean else fault.full
    began, found = time.monotonic(), []

    def one(index: int) -> Verdict | None:
        if time.monotonic() >= until:
            return None
        try:
            return fault.trial(scene, index, each)
        except Exception:  # the torture itself failed: nothing is known, which is the worst
            return lost(f"trial {index}: {traceback.format_exc()}")

    with ThreadPoolExecutor(1 if fault.alone else cores or os.cpu_count() or 1) as pool:
        for verdict in pool.map(one, range(trials)):
            if verdict is not None:
                found.append(verdict)
                on_done()
    return Row(name, fault.what, sum(found, Verdict()), len(found), trials, time.monotonic() - began)
