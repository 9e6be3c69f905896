"""Test which rows of a table differ significantly from the best, with Holm's correction.

The best row is selected by looking at all candidates, so the correction counts all k (k - 1) / 2
pairs of k candidates; against a reference that the user names it counts the k - 1 pairs with that
row. A candidate is a method with one configuration, or with one that was selected on validation
data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tmln.analysis.rows import Row, best_row
from tmln.analysis.selection import find_unlearned, select_configurations
from tmln.analysis.statistics import Comparison, mean, paired_p, summarise, t_quantile, t_tails
from tmln.experiments.identity import canonical
from tmln.metrics import metric_of

TestName = Literal["t", "wilcoxon", "bootstrap"]
Interval = tuple[float, float]
NOWHERE: Interval = (-math.inf, math.inf)  # as sure as was asked, so many seeds are not
RESAMPLES = 49_999
EQUAL = 1e-12  # differences of decimal fractions that should be equal differ by their rounding


@dataclass(frozen=True)
class PairedTest:
    """A test of paired differences: p-value, and interval of their centre at a confidence."""

    title: str
    p: Callable[[Sequence[float]], float]
    interval: Callable[[Sequence[float], float], Interval]


# -- Student --


def t_interval(differences: Sequence[float], confidence: float) -> Interval:
    """Return mean -+ t s / sqrt(n)."""
    found = summarise(differences, confidence)
    return found.low, found.high


# -- Wilcoxon --


def wilcoxon_p(differences: Sequence[float]) -> float:
    """Return P(min(T+, T-) this small), exact also with ties; zeros are left out.

    >>> wilcoxon_p([1.0, 2.0, 3.0, 4.0, 5.0])
    0.0625
    """
    kept = [value for value in differences if abs(value) > EQUAL]
    if len(kept) < 2:
        return 1.0 if len(differences) > 1 and not kept else math.nan
    doubled = _doubled_ranks([abs(value) for value in kept])
    below = sum(rank for rank, value in zip(doubled, kept, strict=True) if value < 0)
    least = min(below, sum(doubled) - below)
    ways = _count_sign_assignments(doubled)
    return min(1.0, sum(ways[: least + 1]) / 2.0 ** (len(kept) - 1))


def wilcoxon_interval(differences: Sequence[float], confidence: float) -> Interval:
    """Return the Hodges-Lehmann interval: the C-th smallest and C-th largest Walsh average."""
    n = len(differences)
    if n < 2:
        return math.nan, math.nan
    walsh = sorted((a + b) / 2 for k, a in enumerate(differences) for b in differences[k:])
    ways, tail, count = _count_sign_assignments([2 * rank for rank in range(1, n + 1)]), 0, 0
    while count < len(walsh) // 2 and 2 * (tail := tail + ways[2 * count]) <= (1 - confidence) * 2**n:
        count += 1
    return (walsh[count - 1], walsh[-count]) if count else NOWHERE


def _doubled_ranks(sizes: Sequence[float]) -> list[int]:
    """Return twice the rank of each, so that mean ranks of ties are integers."""
    order = sorted(sizes)
    first = {size: place for place, size in reversed(list(enumerate(order)))}
    last = {size: place for place, size in enumerate(order)}
    return [first[size] + last[size] + 2 for size in sizes]


def _count_sign_assignments(doubled: Sequence[int]) -> list[int]:
    """Count the sign assignments, of 2^n, that give each doubled rank sum."""
    ways = [1] + [0] * sum(doubled)
    for rank in doubled:
        ways = [count + (ways[total - rank] if total >= rank else 0) for total, count in enumerate(ways)]
    return ways


# -- the bootstrap --


def bootstrap_p(differences: Sequence[float]) -> float:
    """Return the level at which the interval ends at 0, at least 2 / 2^n."""
    n = len(differences)
    if n < 2:
        return math.nan
    if max(map(abs, differences)) <= EQUAL:
        return 1.0
    means = _resample_means(differences)
    beyond = min(float((means <= 0).sum()), float((means >= 0).sum()))
    share = min(0.5, (beyond + 1) / (len(means) + 1))
    t = -NormalDist().inv_cdf(share) * math.sqrt((n - 1) / n)
    return max(t_tails(t, n - 1), 2.0 ** (1 - n))


def bootstrap_interval(differences: Sequence[float], confidence: float) -> Interval:
    """Return percentiles of resampled means, expanded by t for few values (Hesterberg 2015)."""
    n = len(differences)
    if n < 2:
        return math.nan, math.nan
    if 1 - confidence < 2.0 ** (1 - n):
        return NOWHERE
    means = np.sort(_resample_means(differences))
    share = NormalDist().cdf(-math.sqrt(n / (n - 1)) * t_quantile(confidence, n - 1))
    place = max(0, math.floor(share * (len(means) + 1)) - 1)
    return float(means[place]), float(means[-1 - place])


def _resample_means(differences: Sequence[float]) -> NDArray[np.float64]:
    """Return means of resamples from a fixed seed: equal differences give equal intervals."""
    rows = np.random.default_rng(0).integers(len(differences), size=(RESAMPLES, len(differences)))
    means = np.asarray(differences, dtype=np.float64)[rows].mean(axis=1)
    return np.asarray(means)


TESTS: dict[TestName, PairedTest] = {
    "t": PairedTest("paired t-test", paired_p, t_interval),
    "wilcoxon": PairedTest("Wilcoxon signed-rank test", wilcoxon_p, wilcoxon_interval),
    "bootstrap": PairedTest("paired bootstrap", bootstrap_p, bootstrap_interval),
}


# -- several comparisons --


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's corrected p-values; NaN is no comparison.

    The smallest times m, the next times m - 1, and so on, never decreasing.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, largest = [math.nan] * len(p_values), 0.0
    for place, factor in _steps(p_values):
        largest = max(largest, min(1.0, factor * p_values[place]))
        adjusted[place] = largest
    return adjusted


def holm_levels(p_values: Sequence[float], level: float) -> list[float]:
    """Return the level of each comparison in Holm's procedure: level / (m, m - 1, ...).

    From the first comparison that is not significant on, levels stay. An interval at 1 - this level
    excludes 0 if and only if the corrected p is below ``level``.
    """
    levels, doubt = [math.nan] * len(p_values), 0
    for place, factor in _steps(p_values):
        levels[place] = level / (doubt or factor)
        doubt = doubt or (factor if p_values[place] * factor >= level else 0)
    return levels


def _steps(p_values: Sequence[float]) -> list[tuple[int, int]]:
    """Return places from the smallest p on, each with its factor."""
    order = sorted((p, place) for place, p in enumerate(p_values) if not math.isnan(p))
    return [(place, len(order) - rank) for rank, (_, place) in enumerate(order)]


def seeds_needed(differences: Sequence[float], level: float, power: float = 0.8, most: int = 1000) -> int | None:
    """Return the seeds at which the t-test has this power; None if unknown or above ``most``.

    Mean and deviation of all differences are taken as estimated here.
    """
    from tmln.analysis.statistics import t_power

    found = summarise(differences)
    if found.n < 2 or found.std <= EQUAL or abs(found.mean) <= EQUAL:
        return None
    effect = abs(mean(differences)) / found.std
    low, high = 2, most + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if t_power(effect, middle, level) >= power else (middle + 1, high)
    return low if low <= most else None


SURE = 0.05  # significance level of corrected p-values
FEWEST = 3  # shared seeds below which nothing is called significant


@dataclass(frozen=True)
class PairwiseTest:
    """A row against the reference, with the interval that matches the corrected p-value.

    ``corrected`` is NaN for rows that are no candidates. ``needed`` is the number of seeds for 80%
    power.
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
    """All tests against ``reference``: the best candidate, the named row, or None."""

    metric: str
    test: TestName
    reference: Row | None
    has_given_reference: bool
    candidates: tuple[Row, ...]
    pairs: tuple[PairwiseTest, ...]

    @property
    def nearest(self) -> list[PairwiseTest]:
        """Return the tests of the other candidates, nearest mean first."""
        labels = {row.label for row in self.candidates}
        found = [pair for pair in self.pairs if pair.row.label in labels]
        return sorted(found, key=lambda pair: _gap(pair.plain.mean_difference))

    @property
    def has_winner(self) -> bool:
        """Tell whether the best row differs significantly from every other candidate."""
        rivals = self.nearest
        return not self.has_given_reference and bool(rivals) and all(pair.is_significant for pair in rivals)

    @property
    def bold_labels(self) -> set[str]:
        """Return the labels in bold: the best and those that do not differ, if any row does."""
        rivals = self.nearest
        if self.has_given_reference or self.reference is None or not any(pair.is_significant for pair in rivals):
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
    unlearned = find_unlearned(rows)
    first = reference or best_row([row for row in able if row.label not in unlearned], metric)
    if reference is not None and reference.label not in {row.label for row in able}:
        able.append(reference)
    if first is None:  # no candidate, or none that learned: tested against the best row, uncorrected
        first, able = best_row(rows, metric), []
    pairs = [(b, a) if a is first else (a, b) for a, b in combinations(able, 2)]
    if reference is not None:
        pairs = [(row, other) for row, other in pairs if other is reference]
    plains = [row.compare_with(other, metric) for row, other in pairs]
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
            plain, adjusted, level = found.get(row.label) or (row.compare_with(first, metric), math.nan, math.nan)
            tests.append(_test_pair(row, plain, metric, test, adjusted, level))
    return Significance(metric, test, first, reference is not None, tuple(able), tuple(tests))


def find_identical(rows: Sequence[Row]) -> list[list[Row]]:
    """Return groups of rows whose observations agree to the last digit, seed by seed."""
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
