"""Select one configuration per method, and find rows that learned too little.

Selection is by validation accuracy where all runs have one, else by test accuracy. A network that
is frozen after the first task forgets nothing, so rows are checked for the best accuracy that each
task ever had; a method that learns late, from a replay memory, has learned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_high

from tmln.analysis.rows import Row, best_row
from tmln.analysis.statistics import mean
from tmln.experiments.result import Result

AT_CHANCE = 0.02  # of the way from an answer that is always the same to one that is always right
FAR_BELOW = 0.5  # of what the methods of the table learn in the middle


def find_unlearned(rows: Sequence[Row]) -> dict[str, str]:
    """Return by label why rows of one table did not learn; rows without a matrix pass."""
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
    """Return a constant prediction's mean best accuracy and its ACC; NaN if unknown.

    Always predicting one class gives 1 / c on a task with c classes when it is learned, 1 / C of
    all classes where the task has one class, and 1 / C at the end.
    """
    sizes, every = _sizes(result)
    if not sizes:
        return math.nan, math.nan
    return mean(1 / (size if size > 1 else every) for size in sizes), 1 / every


def _sizes(result: Result) -> tuple[list[int], int]:
    """Return the classes of each task, and of all; old results have only the order of classes."""
    given, order = result.stream.get("test_classes"), result.stream.get("class_order")
    if isinstance(given, list) and given and all(isinstance(size, int) and size > 0 for size in given):
        return given, max(given) if result.stream.get("scenario") == "domain-incremental" else sum(given)
    every, count = len(order) if isinstance(order, list) else 0, len(result.accuracy[0]) if result.accuracy else 0
    if not 0 < count <= every:
        return [], every
    small, larger = divmod(every, count)  # as streams are split
    return [small + (index < larger) for index in range(count)], every


@dataclass(frozen=True)
class Selection:
    """The selected row of a method, among how many; ``fair`` unless by test data."""

    row: Row
    among: int
    fair: bool

    @property
    def words(self) -> str:
        """Say how the row was selected; empty where the method has one configuration."""
        if self.among == 1:
            return ""
        return f"chosen on {'validation' if self.fair else 'the test'} data from {self.among}"

    @property
    def name(self) -> str:
        """Return ``tmln (step.damping=0.2, chosen on validation data from 5)``."""
        if not self.row.settings or self.row.alone:
            return self.row.label
        words = [self.row.settings.replace(" ", ", "), *([self.words] if self.words else [])]
        return f"{self.row.method} ({', '.join(words)})"


def find_unselected(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of methods whose other configuration was selected."""
    fair = {choice.row.contender: choice.row for choice in select_configurations(rows) if choice.fair}
    return [row for row in rows if row.contender in fair and row is not fair[row.contender]]


def select_configurations(rows: Sequence[Row]) -> list[Selection]:
    """Return one row per competing method, the best by validation accuracy if all have it.

    Otherwise it is the best on the test data, which is not ``fair``.
    """
    methods: dict[str, list[Row]] = {}
    for row in rows:
        if row.competes:
            methods.setdefault(row.contender, []).append(row)
    found = []
    for group in methods.values():
        counts = [(row.summary("val_acc").n, row.summary("acc").n) for row in group]
        known = all(validated == tested for validated, tested in counts)
        best = best_row(group, "val_acc" if known and len(group) > 1 else "acc")
        if best is not None:
            found.append(Selection(best, len(group), fair=known or len(group) == 1))
    return found
