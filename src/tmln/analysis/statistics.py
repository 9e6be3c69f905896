"""Statistics over seeds: mean, sample deviation, Student's t-interval, and paired comparison of two methods.

NaN (a metric that is undefined) is left out and counted; every result says how many values it is of. Nothing here
depends on what happens to be installed: Student's t is computed from the incomplete beta function (DLMF 8.17).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from tmln.metrics import ANY, Range

Seed = TypeVar("Seed", int, str)


@dataclass(frozen=True)
class Summary:
    """Of ``n`` values, ``excluded`` NaN not among them; deviation and interval are NaN for fewer than two.

    ``cut`` says that the interval would have left the range of what is possible, and ends where that does.
    """

    n: int
    excluded: int
    mean: float
    std: float
    low: float
    high: float
    confidence: float
    cut: bool = False

    def parts(self, prefix: str = "", scale: float = 1.0) -> dict[str, float]:
        """For programs: n, and the other numbers times ``scale``, by name."""
        numbers = {"mean": self.mean, "std": self.std, "low": self.low, "high": self.high}
        return {f"{prefix}n": self.n, **{f"{prefix}{part}": scale * value for part, value in numbers.items()}}


@dataclass(frozen=True)
class Comparison:
    """First minus second over the ``n`` seeds that both have; the seeds that only one has, or that are NaN, are named.

    ``p_value`` is of the two-sided paired t-test. Where all differences are equal the test says nothing: the p-value is
    1 if they are all zero, else NaN.
    """

    n: int
    mean_difference: float
    std: float
    low: float
    high: float
    p_value: float
    differences: tuple[float, ...] = ()
    only_first: tuple[int | str, ...] = ()
    only_second: tuple[int | str, ...] = ()
    excluded: tuple[int | str, ...] = ()


def mean(values: Iterable[float]) -> float:
    """NaN of nothing."""
    kept = _numbers(values)
    return math.fsum(kept) / len(kept) if kept else math.nan


def sample_std(values: Iterable[float]) -> float:
    """With n - 1 in the denominator; NaN for fewer than two."""
    kept = _numbers(values)
    if len(kept) < 2:
        return math.nan
    middle = mean(kept)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in kept) / (len(kept) - 1))


def summarise(values: Iterable[float], confidence: float = 0.95, within: Range = ANY) -> Summary:
    """Of values that lie ``within`` a range their mean does, too: the interval is cut there and covers it as often."""
    given = list(values)
    kept = _numbers(given)
    n, middle, deviation = len(kept), mean(kept), sample_std(kept)
    half = t_quantile(confidence, n - 1) * deviation / math.sqrt(n) if n > 1 else math.nan
    low, high = middle - half, middle + half
    # a value beyond the range is a mistake of somebody's, which a cut would hide
    sound = all(within[0] <= value <= within[1] for value in kept)
    cut = sound and (low < within[0] or high > within[1])
    if cut:
        low, high = max(low, within[0]), min(high, within[1])
    return Summary(n, len(given) - n, middle, deviation, low, high, confidence, cut)


def summarise_ratios(values: Iterable[float], confidence: float = 0.95) -> Summary:
    """Of positive ratios: the geometric mean, the factor they vary by, and the t-interval, all from their logarithms.

    Twice as fast and twice as slow are equally far from 1, the ratios of b to a say the same as those of a to b, and
    the interval stays above 0.
    """
    given = list(values)
    wrong = [value for value in given if not (value > 0 or math.isnan(value))]
    if wrong:
        raise ValueError(f"ratios are positive, not {wrong[0]}")
    logs = summarise([math.log(value) for value in given], confidence)
    return Summary(
        logs.n,
        logs.excluded,
        math.exp(logs.mean),
        math.exp(logs.std),
        math.exp(logs.low),
        math.exp(logs.high),
        confidence,
    )


def compare(
    first: Mapping[Seed, float], second: Mapping[Seed, float], confidence: float = 0.95, within: Range = ANY
) -> Comparison:
    """Two methods, each as seed -> value ``within`` a range, by what they differ in on the same seeds."""
    both = sorted(first.keys() & second.keys())
    kept = [seed for seed in both if not math.isnan(first[seed]) and not math.isnan(second[seed])]
    differences = [first[seed] - second[seed] for seed in kept]
    summary = summarise(differences, confidence, (within[0] - within[1], within[1] - within[0]))
    scale = max((max(abs(first[seed]), abs(second[seed])) for seed in kept), default=0.0)
    return Comparison(
        n=summary.n,
        mean_difference=summary.mean,
        std=summary.std,
        low=summary.low,
        high=summary.high,
        p_value=_paired_p(summary, scale),
        differences=tuple(differences),
        only_first=tuple(sorted(first.keys() - second.keys())),
        only_second=tuple(sorted(second.keys() - first.keys())),
        excluded=tuple(seed for seed in both if seed not in kept),
    )


def paired_p(differences: Sequence[float]) -> float:
    """The p-value of the paired t-test alone, of values about as large as 1."""
    return _paired_p(summarise(differences), 1.0)


def _paired_p(differences: Summary, scale: float) -> float:
    if differences.n < 2:
        return math.nan
    rounding = 1e-12 * scale  # equal differences of decimal fractions differ by their rounding
    if differences.std <= rounding:
        return 1.0 if abs(differences.mean) <= rounding else math.nan
    return t_tails(differences.mean / (differences.std / math.sqrt(differences.n)), differences.n - 1)


def t_tails(t: float, freedom: int) -> float:
    """P(|T| >= |t|) for Student's t: I_x(freedom / 2, 1 / 2) at x = freedom / (freedom + t^2)."""
    if freedom < 1:
        raise ValueError(f"Student's t has at least 1 degree of freedom, not {freedom}")
    if math.isnan(t) or math.isinf(t):
        return math.nan if math.isnan(t) else 0.0
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t), t * t / (freedom + t * t))


@cache
def t_quantile(confidence: float, freedom: int) -> float:
    """The t with P(|T| < t) = confidence, by bisection to the last digit."""
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence is between 0 and 1, not {confidence}")
    low, high = 0.0, 1.0
    while t_tails(high, freedom) > 1.0 - confidence:
        low, high = high, 2.0 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if t_tails(middle, freedom) > 1.0 - confidence else (low, middle)
    return high


def _incomplete_beta(a: float, b: float, x: float, rest: float) -> float:
    """I_x(a, b), where rest = 1 - x is given with its own digits; the continued fraction of DLMF 8.17.22."""
    if x == 0.0 or rest == 0.0:
        return 0.0 if x == 0.0 else 1.0
    if x > (a + 1.0) / (a + b + 2.0):  # where the fraction converges slowly
        return 1.0 - _incomplete_beta(b, a, rest, x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest)) / a
    fraction = upper = 1.0
    lower = 0.0
    for m in range(10_000):  # Lentz's algorithm; terms are d_0 = 1, d_1, d_2, ...
        if m == 0:
            term = 1.0
        elif m % 2:
            k = (m - 1) // 2
            term = -(a + k) * (a + b + k) * x / ((a + 2 * k) * (a + 2 * k + 1))
        else:
            k = m // 2
            term = k * (b - k) * x / ((a + 2 * k - 1) * (a + 2 * k))
        lower = 1.0 / (1.0 + term * lower)
        upper = 1.0 + term / upper
        fraction *= lower * upper
        if m and abs(lower * upper - 1.0) < 1e-16:
            break
    return front * (fraction - 1.0)


def _numbers(values: Iterable[float]) -> Sequence[float]:
    return [float(value) for value in values if not math.isnan(value)]
