"""Test which rows of a table differ significantly from its best row, in one metric, with Holm's correction.

The best row is selected by looking at all candidates, so the correction counts all k (k - 1) / 2 pairs of k candidates;
against a reference that the user names it counts the k - 1 pairs with that row. A candidate is a method with one
configuration, or with one that was selected on validation data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from tmln.analysis.learning_check import find_unlearned
from tmln.analysis.paired import TESTS, TestName, holm, holm_levels, seeds_needed
from tmln.analysis.rows import Row, best_row
from tmln.analysis.selection import select_configurations
from tmln.analysis.statistics import Comparison
from tmln.experiments.identity import canonical
from tmln.metrics import metric_of

SURE = 0.05  # significance level of corrected p-values
FEWEST = 3  # shared seeds below which nothing is called significant


@dataclass(frozen=True)
class PairwiseTest:
    """A row against the reference; ``low`` to ``high`` is the interval that matches the corrected p-value.

    ``corrected`` is NaN for rows that are no candidates. ``needed`` is the number of seeds for 80% power.
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
        """Return the seeds for 80% power; computed on demand, it takes as long as all the rest."""
        return seeds_needed(self.plain.differences, self.level)

    @property
    def is_significant(self) -> bool:
        """Tell whether the difference is significant after correction, on enough shared seeds."""
        return self.plain.n >= FEWEST and self.corrected < SURE and not self.low <= 0 <= self.high

    @property
    def is_corrected(self) -> bool:
        """Tell whether there is a corrected p-value."""
        return not math.isnan(self.corrected)


@dataclass(frozen=True)
class Significance:
    """All tests against ``reference``, the best candidate or the named row; None where no row has a value."""

    metric: str
    test: TestName
    reference: Row | None
    named: bool
    candidates: tuple[Row, ...]
    pairs: tuple[PairwiseTest, ...]

    @property
    def nearest(self) -> list[PairwiseTest]:
        """Return the tests of the other candidates, nearest mean first."""
        labels = {row.label for row in self.candidates}
        found = [pair for pair in self.pairs if pair.row.label in labels]
        return sorted(found, key=lambda pair: _gap(pair.plain.mean_difference))

    @property
    def won(self) -> bool:
        """Tell whether the best row differs significantly from every other candidate."""
        rivals = self.nearest
        return not self.named and bool(rivals) and all(pair.is_significant for pair in rivals)

    @property
    def strong(self) -> set[str]:
        """Return the labels to print bold: the best and those not significantly different, if any row is."""
        rivals = self.nearest
        if self.named or self.reference is None or not any(pair.is_significant for pair in rivals):
            return set()
        near = [pair for pair in rivals if pair.is_corrected and pair.plain.n >= FEWEST and not pair.is_significant]
        learned = {row.label for row in self.candidates} - set(find_unlearned(self.candidates))
        return {self.reference.label, *(pair.row.label for pair in near if pair.row.label in learned)}

    def of(self, row: Row) -> PairwiseTest | None:
        """Return the test of a row; None for the reference itself."""
        return next((pair for pair in self.pairs if pair.row.label == row.label), None)


def assess_significance(
    rows: Sequence[Row], metric: str = "acc", test: TestName = "t", reference: Row | None = None
) -> Significance:
    """Test the rows of one table against its best candidate, or against ``reference``.

    A row that has not learned is tested too, but is never the best.
    """
    able = [choice.row for choice in select_configurations(rows) if choice.fair]
    able = [row for row in able if math.isfinite(row.summary(metric).mean)]
    lazy = find_unlearned(rows)
    first = reference or best_row([row for row in able if row.label not in lazy], metric)
    if reference is not None and reference.label not in {row.label for row in able}:
        able.append(reference)
    if first is None:  # no candidate, or none that learned: tested against the best row, uncorrected
        first, able = best_row(rows, metric), []
    pairs = [(b, a) if a is first else (a, b) for a, b in combinations(able, 2)]
    if reference is not None:
        pairs = [(row, other) for row, other in pairs if other is reference]
    plains = [row.against(other, metric) for row, other in pairs]
    p_values = [_p(plain, test) for plain in plains]
    corrected, levels = holm(p_values), holm_levels(p_values, SURE)
    found = {
        row.label: (plain, adjusted, level)
        for (row, other), plain, adjusted, level in zip(pairs, plains, corrected, levels, strict=True)
        if other is first
    }
    tests = []
    for row in rows if first is not None else ():
        if row is not first:
            assert first is not None
            plain, adjusted, level = found.get(row.label) or (row.against(first, metric), math.nan, math.nan)
            tests.append(_test_pair(row, plain, metric, test, adjusted, level))
    return Significance(metric, test, first, reference is not None, tuple(able), tuple(tests))


def find_identical(rows: Sequence[Row]) -> list[list[Row]]:
    """Return groups of rows whose runs agree to the last digit, seed by seed, in everything observed."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        seen = {
            r.seed: [r.accuracy, *(() if r.accuracy else (r.metrics.get("acc"), r.metrics.get("fm")))]
            for r in row.results
        }
        if row.competes and seen and not row.diverged:
            groups.setdefault(canonical(seen), []).append(row)
    return [group for group in groups.values() if len(group) > 1]


def _test_pair(
    row: Row, plain: Comparison, metric: str, test: TestName, corrected: float, level: float
) -> PairwiseTest:
    low, high = (plain.low, plain.high) if math.isnan(level) else TESTS[test].interval(plain.differences, 1 - level)
    width = metric_of(metric).within[1] - metric_of(metric).within[0]
    level = SURE if math.isnan(level) else level
    return PairwiseTest(row, plain, _p(plain, test), corrected, max(low, -width), min(high, width), level)


def _p(found: Comparison, test: TestName) -> float:
    return found.p_value if test == "t" else TESTS[test].p(found.differences)


def _gap(difference: float) -> float:
    return math.inf if math.isnan(difference) else abs(difference)
