"""Who can be told from the best of a table, in one metric: every pair of contestants tested, corrected by Holm.

The best is chosen by looking at all of them, so that all pairs are counted, k (k - 1) / 2 for k contestants; where a
reader named the row that the others are held against, only the k - 1 pairs with it are. A contestant is a method with
one configuration, or with one that was chosen on validation data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from tmln.lab.identity import canonical
from tmln.metrics import metric_of
from tmln.results.chosen import choices
from tmln.results.learned import not_learned
from tmln.results.paired import TESTS, TestName, holm, holm_levels, seeds_needed
from tmln.results.rows import Row, best_row
from tmln.results.statistics import Comparison

SURE = 0.05  # a corrected p-value below it is called a difference
FEWEST = 3  # seeds that both have, of which anything is claimed


@dataclass(frozen=True)
class Duel:
    """A row against the contest's reference; ``low`` to ``high`` is the interval that goes with the corrected p.

    ``corrected`` is NaN of rows that take no part. ``needed`` are the seeds that would tell the two apart.
    """

    row: Row
    plain: Comparison  # row minus reference, at 95%
    p: float
    corrected: float
    low: float
    high: float
    level: float  # of that interval: 1 - its confidence

    @cached_property
    def needed(self) -> int | None:
        """Computed when it is asked for: it takes as long as all the rest."""
        return seeds_needed(self.plain.differences, self.level)

    @property
    def apart(self) -> bool:
        """Whether seeds enough say, corrected, that it is not the same."""
        return self.plain.n >= FEWEST and self.corrected < SURE and not self.low <= 0 <= self.high

    @property
    def takes_part(self) -> bool:
        """Whether a corrected test of it is there."""
        return not math.isnan(self.corrected)


@dataclass(frozen=True)
class Contest:
    """``reference`` is the best contestant, or the row that was named; None where no row has a value."""

    metric: str
    test: TestName
    reference: Row | None
    named: bool
    contestants: tuple[Row, ...]
    duels: tuple[Duel, ...]

    @property
    def rivals(self) -> list[Duel]:
        """Those of the other contestants, nearest mean first."""
        labels = {row.label for row in self.contestants}
        found = [duel for duel in self.duels if duel.row.label in labels]
        return sorted(found, key=lambda duel: _gap(duel.plain.mean_difference))

    @property
    def won(self) -> bool:
        """Whether the best is told from every other contestant."""
        rivals = self.rivals
        return not self.named and bool(rivals) and all(duel.apart for duel in rivals)

    @property
    def strong(self) -> set[str]:
        """What stands out in a table: the best and those not told from it, where some contestant is."""
        rivals = self.rivals
        if self.named or self.reference is None or not any(duel.apart for duel in rivals):
            return set()
        near = [duel for duel in rivals if duel.takes_part and duel.plain.n >= FEWEST and not duel.apart]
        learned = {row.label for row in self.contestants} - set(not_learned(self.contestants))
        return {self.reference.label, *(duel.row.label for duel in near if duel.row.label in learned)}

    def of(self, row: Row) -> Duel | None:
        """None of the reference itself."""
        return next((duel for duel in self.duels if duel.row.label == row.label), None)


def contest(rows: Sequence[Row], metric: str = "acc", test: TestName = "t", reference: Row | None = None) -> Contest:
    """Of the rows of one table. The best has learned: a row that has not is held against it, and never best."""
    able = [choice.row for choice in choices(rows) if choice.fair]
    able = [row for row in able if math.isfinite(row.summary(metric).mean)]
    lazy = not_learned(rows)
    first = reference or best_row([row for row in able if row.label not in lazy], metric)
    if reference is not None and reference.label not in {row.label for row in able}:
        able.append(reference)
    if first is None:  # nothing was chosen fairly, or nothing has learned: held against the best, uncorrected
        first, able = best_row(rows, metric), []
    pairs = [(a, b) for a, b in combinations(able, 2) if reference is None or reference in (a, b)]
    p_values = [_p(a.against(b, metric), test) for a, b in pairs]
    corrected, levels = holm(p_values), holm_levels(p_values, SURE)
    found = {}
    for (a, b), adjusted, level in zip(pairs, corrected, levels, strict=True):
        if first in (a, b):
            found[(b if a is first else a).label] = (adjusted, level)
    duels = []
    for row in rows if first is not None else ():
        if row is not first:
            assert first is not None
            duels.append(_duel(row, first, metric, test, *found.get(row.label, (math.nan, math.nan))))
    return Contest(metric, test, first, reference is not None, tuple(able), tuple(duels))


def alike(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows whose runs agree to the last digit, seed by seed, in all that was observed: not two methods but one."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        seen = {
            r.seed: [r.accuracy, *(() if r.accuracy else (r.metrics.get("acc"), r.metrics.get("fm")))]
            for r in row.results
        }
        if row.competes and seen and not row.diverged:
            groups.setdefault(canonical(seen), []).append(row)
    return [group for group in groups.values() if len(group) > 1]


def _duel(row: Row, first: Row, metric: str, test: TestName, corrected: float, level: float) -> Duel:
    plain = row.against(first, metric)
    low, high = (plain.low, plain.high) if math.isnan(level) else TESTS[test].interval(plain.differences, 1 - level)
    width = metric_of(metric).within[1] - metric_of(metric).within[0]
    level = SURE if math.isnan(level) else level
    return Duel(row, plain, _p(plain, test), corrected, max(low, -width), min(high, width), level)


def _p(found: Comparison, test: TestName) -> float:
    return found.p_value if test == "t" else TESTS[test].p(found.differences)


def _gap(difference: float) -> float:
    return math.inf if math.isnan(difference) else abs(difference)
