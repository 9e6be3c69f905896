"""Time contenders in turns; the best time of each counts, so that other load affects all alike."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """One measured ratio and the goal it has to meet."""

    what: str
    ratio: float
    goal: float | None  # None: for information
    at_least: bool = False  # else at most

    @property
    def asked(self) -> str:
        return "" if self.goal is None else f"{'>=' if self.at_least else '<='} {self.goal:g}"

    @property
    def verdict(self) -> str:
        return "" if self.goal is None else "met" if self.met else "MISSED"

    @property
    def met(self) -> bool:
        if self.goal is None:
            return True
        return self.ratio >= self.goal if self.at_least else self.ratio <= self.goal


def best_times(
    contenders: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Seconds of the best of ``rounds`` calls of each, after one call to warm up, in turns."""
    for run in contenders.values():
        run()
    best = dict.fromkeys(contenders, float("inf"))
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, run in contenders.items():
                begin = clock()
                run()
                best[name] = min(best[name], clock() - begin)
    finally:
        gc.enable()
    return best
