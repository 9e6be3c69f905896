"""Find rows that learned too little for their forgetting to mean anything.

A network that is frozen after the first task forgets nothing. It shows in the learning accuracy, the diagonal of R, and
in every later row: what is looked at is the best that each task was ever known, so that one who learns late, from a
memory, has learned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median_high

from tmln.analysis.rows import Row
from tmln.analysis.statistics import mean
from tmln.experiments.result import Result

AT_CHANCE = 0.02  # of the way from an answer that is always the same to one that is always right
FAR_BELOW = 0.5  # of what the methods of the table learn in the middle


def find_unlearned(rows: Sequence[Row]) -> dict[str, str]:
    """Return why, by label, for the rows of one table that did not learn; rows without a matrix pass."""
    learning = {row.label: row.accuracy_at_best for row in rows}
    best: dict[str, float] = {}
    for row in rows:
        if row.competes and math.isfinite(learning[row.label]):
            best[row.contender] = max(best.get(row.contender, 0.0), learning[row.label])
    bar = median_high(best.values()) if len(best) > 1 else math.nan
    found = {}
    for row in rows:
        mine, (once, ever) = learning[row.label], chance_of(row.results[0]) if row.results else (math.nan, math.nan)
        if _near(mine, once) and _near(row.summary("acc").mean, ever):
            found[row.label] = f"at chance: {100 * mine:.1f} at best"
        elif mine < FAR_BELOW * bar:
            found[row.label] = f"{100 * mine:.1f} at best, far below the others' {100 * bar:.1f}"
    return found


def _near(accuracy: float, chance: float) -> bool:
    return accuracy - chance < AT_CHANCE * (1 - chance)


def chance_of(result: Result) -> tuple[float, float]:
    """What an answer that is always the same comes to: the best that each task was known, and ACC; NaN if nobody knows.

    Always a class of the task at hand is 1 / c of a task with c classes when it is learned, 1 / C of all classes where
    the task is one class, and 1 / C at the end.
    """
    sizes, every = _sizes(result)
    if not sizes:
        return math.nan, math.nan
    return mean(1 / (size if size > 1 else every) for size in sizes), 1 / every


def _sizes(result: Result) -> tuple[list[int], int]:
    """Classes of each task, and of all; results of earlier versions have the order of classes alone."""
    given, order = result.stream.get("test_classes"), result.stream.get("class_order")
    if isinstance(given, list) and given and all(isinstance(size, int) and size > 0 for size in given):
        return given, max(given) if result.stream.get("scenario") == "domain-incremental" else sum(given)
    every, count = len(order) if isinstance(order, list) else 0, len(result.accuracy[0]) if result.accuracy else 0
    if not 0 < count <= every:
        return [], every
    small, larger = divmod(every, count)  # as streams are split
    return [small + (index < larger) for index in range(count)], every
