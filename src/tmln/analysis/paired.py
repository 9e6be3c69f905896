"""Tests of paired differences, by name: Student's t, Wilcoxon's signed ranks, a bootstrap; a p and an interval each.

``t`` is the default. Seeds are few: Wilcoxon's smallest p is 2 / 2^n, 0.0625 for five, and the bootstrap, which cannot
leave what was seen, is held to the same bound. All are two-sided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tmln.analysis.statistics import mean, paired_p, summarise, t_quantile, t_tails

TestName = Literal["t", "wilcoxon", "bootstrap"]
Interval = tuple[float, float]
NOWHERE: Interval = (-math.inf, math.inf)  # as sure as was asked, so many seeds are not
RESAMPLES = 49_999
EQUAL = 1e-12  # differences of decimal fractions that should be equal differ by their rounding


@dataclass(frozen=True)
class PairedTest:
    """``p`` of differences that lie about 0 by chance; ``interval`` of their middle, at a confidence."""

    title: str
    p: Callable[[Sequence[float]], float]
    interval: Callable[[Sequence[float], float], Interval]


# -- Student -----------------------------------------------------------------------------------------------------------


def t_interval(differences: Sequence[float], confidence: float) -> Interval:
    """Mean -+ t s / sqrt(n)."""
    found = summarise(differences, confidence)
    return found.low, found.high


# -- Wilcoxon ----------------------------------------------------------------------------------------------------------


def wilcoxon_p(differences: Sequence[float]) -> float:
    """P(min(T+, T-) this small), exact, also where ranks are shared; zeros are left out, as Wilcoxon did.

    >>> wilcoxon_p([1.0, 2.0, 3.0, 4.0, 5.0])
    0.0625
    """
    kept = [value for value in differences if abs(value) > EQUAL]
    if len(kept) < 2:
        return 1.0 if len(differences) > 1 and not kept else math.nan
    doubled = _doubled_ranks([abs(value) for value in kept])
    below = sum(rank for rank, value in zip(doubled, kept, strict=True) if value < 0)
    least = min(below, sum(doubled) - below)
    ways = _ways(doubled)
    return min(1.0, sum(ways[: least + 1]) / 2.0 ** (len(kept) - 1))


def wilcoxon_interval(differences: Sequence[float], confidence: float) -> Interval:
    """Hodges and Lehmann's: between the C-th smallest and the C-th largest mean of two differences, by T's own law."""
    n = len(differences)
    if n < 2:
        return math.nan, math.nan
    walsh = sorted((a + b) / 2 for k, a in enumerate(differences) for b in differences[k:])
    ways, tail, count = _ways([2 * rank for rank in range(1, n + 1)]), 0, 0
    while count < len(walsh) // 2 and 2 * (tail := tail + ways[2 * count]) <= (1 - confidence) * 2**n:
        count += 1
    return (walsh[count - 1], walsh[-count]) if count else NOWHERE


def _doubled_ranks(sizes: Sequence[float]) -> list[int]:
    """Twice the rank of each, so that the mean rank of equal ones is whole."""
    order = sorted(sizes)
    first = {size: place for place, size in reversed(list(enumerate(order)))}
    last = {size: place for place, size in enumerate(order)}
    return [first[size] + last[size] + 2 for size in sizes]


def _ways(doubled: Sequence[int]) -> list[int]:
    """How many of the 2^n signs give each doubled rank sum."""
    ways = [1] + [0] * sum(doubled)
    for rank in doubled:
        ways = [count + (ways[total - rank] if total >= rank else 0) for total, count in enumerate(ways)]
    return ways


# -- the bootstrap -----------------------------------------------------------------------------------------------------


def bootstrap_p(differences: Sequence[float]) -> float:
    """The level at which the interval ends at 0; no smaller than 2 / 2^n, the chance that all signs are equal."""
    n = len(differences)
    if n < 2:
        return math.nan
    if max(map(abs, differences)) <= EQUAL:
        return 1.0
    means = _resampled(differences)
    beyond = min(float((means <= 0).sum()), float((means >= 0).sum()))
    share = min(0.5, (beyond + 1) / (len(means) + 1))
    t = -NormalDist().inv_cdf(share) * math.sqrt((n - 1) / n)
    return max(t_tails(t, n - 1), 2.0 ** (1 - n))


def bootstrap_interval(differences: Sequence[float], confidence: float) -> Interval:
    """Percentiles of resampled means, expanded by t for few values (Hesterberg 2015)."""
    n = len(differences)
    if n < 2:
        return math.nan, math.nan
    if 1 - confidence < 2.0 ** (1 - n):
        return NOWHERE
    means = np.sort(_resampled(differences))
    share = NormalDist().cdf(-math.sqrt(n / (n - 1)) * t_quantile(confidence, n - 1))
    place = max(0, math.floor(share * (len(means) + 1)) - 1)
    return float(means[place]), float(means[-1 - place])


def _resampled(differences: Sequence[float]) -> NDArray[np.float64]:
    """Means of so many draws with replacement, from one seed: the same differences give the same interval."""
    rows = np.random.default_rng(0).integers(len(differences), size=(RESAMPLES, len(differences)))
    means = np.asarray(differences, dtype=np.float64)[rows].mean(axis=1)
    return np.asarray(means)


TESTS: dict[TestName, PairedTest] = {
    "t": PairedTest("paired t-test", paired_p, t_interval),
    "wilcoxon": PairedTest("Wilcoxon signed-rank test", wilcoxon_p, wilcoxon_interval),
    "bootstrap": PairedTest("paired bootstrap", bootstrap_p, bootstrap_interval),
}


# -- several comparisons -----------------------------------------------------------------------------------------------


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down: the smallest times m, the next times m - 1, ... never falling; NaN is no comparison.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, largest = [math.nan] * len(p_values), 0.0
    for place, factor in _steps(p_values):
        largest = max(largest, min(1.0, factor * p_values[place]))
        adjusted[place] = largest
    return adjusted


def holm_levels(p_values: Sequence[float], level: float) -> list[float]:
    """The level at which Holm's procedure looks at each: level / (m, m - 1, ...), and no other from its first doubt on.

    An interval at 1 - this level leaves 0 out if, and only if, the corrected p is below ``level``.
    """
    levels, doubt = [math.nan] * len(p_values), 0
    for place, factor in _steps(p_values):
        levels[place] = level / (doubt or factor)
        doubt = doubt or (factor if p_values[place] * factor >= level else 0)
    return levels


def _steps(p_values: Sequence[float]) -> list[tuple[int, int]]:
    """Places from the smallest p on, each with its factor."""
    order = sorted((p, place) for place, p in enumerate(p_values) if not math.isnan(p))
    return [(place, len(order) - rank) for rank, (_, place) in enumerate(order)]


def seeds_needed(differences: Sequence[float], level: float, power: float = 0.8, most: int = 1000) -> int | None:
    """How many seeds the t-test at ``level`` takes to see such a difference; None: unknown, or more than ``most``.

    If mean and deviation of all differences are as seen here: the answer is as uncertain as they are.
    """
    from tmln.analysis.distributions import t_power

    found = summarise(differences)
    if found.n < 2 or found.std <= EQUAL or abs(found.mean) <= EQUAL:
        return None
    effect = abs(mean(differences)) / found.std
    low, high = 2, most + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if t_power(effect, middle, level) >= power else (middle + 1, high)
    return low if low <= most else None
