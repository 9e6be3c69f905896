"""Compute statistics over seeds: mean, deviation, t-interval, paired comparison, distributions.

NaN (an undefined metric) is left out and counted; every result has its number of values.
Distributions are computed from their definitions (DLMF), independent of what is installed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tmln.metrics import ANY, Range

Seed = TypeVar("Seed", int, str)


@dataclass(frozen=True)
class Summary:
    """Statistics of ``n`` values and the number of NaN; NaN for fewer than two.

    ``cut`` says that the interval ends at a bound of what is possible.
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
        """Return n and the other numbers times ``scale``, by name."""
        numbers = {"mean": self.mean, "std": self.std, "low": self.low, "high": self.high}
        return {f"{prefix}n": self.n, **{f"{prefix}{part}": scale * value for part, value in numbers.items()}}


@dataclass(frozen=True)
class Comparison:
    """First minus second over the ``n`` seeds that both have, and the seeds of only one.

    ``p_value`` is of the two-sided paired t-test: if all differences are equal, 1 if they are zero,
    else NaN.
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
    """Return the mean; NaN of nothing."""
    kept = _numbers(values)
    return math.fsum(kept) / len(kept) if kept else math.nan


def sample_std(values: Iterable[float]) -> float:
    """Return the deviation with n - 1 in the denominator; NaN for fewer than two."""
    kept = _numbers(values)
    if len(kept) < 2:
        return math.nan
    middle = mean(kept)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in kept) / (len(kept) - 1))


def summarise(values: Iterable[float], confidence: float = 0.95, within: Range = ANY) -> Summary:
    """Summarise values; the interval is cut at the range ``within``, with equal coverage."""
    given = list(values)
    kept = _numbers(given)
    n, middle, deviation = len(kept), mean(kept), sample_std(kept)
    half = t_quantile(confidence, n - 1) * deviation / math.sqrt(n) if n > 1 else math.nan
    low, high = middle - half, middle + half
    # a value beyond the range is a mistake, which a cut would hide
    sound = all(within[0] <= value <= within[1] for value in kept)
    cut = sound and (low < within[0] or high > within[1])
    if cut:
        low, high = max(low, within[0]), min(high, within[1])
    return Summary(n, len(given) - n, middle, deviation, low, high, confidence, cut)


def summarise_ratios(values: Iterable[float], confidence: float = 0.95) -> Summary:
    """Summarise positive ratios by their logarithms: geometric mean, factor, t-interval.

    Twice as fast and twice as slow are equally far from 1, and the interval stays above 0.
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
    """Compare two methods, each as seed -> value, on the seeds that both have."""
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
    """Return the p-value of the paired t-test for values about as large as 1."""
    return _paired_p(summarise(differences), 1.0)


def _paired_p(differences: Summary, scale: float) -> float:
    if differences.n < 2:
        return math.nan
    rounding = 1e-12 * scale  # equal differences of decimal fractions differ by their rounding
    if differences.std <= rounding:
        return 1.0 if abs(differences.mean) <= rounding else math.nan
    return t_tails(differences.mean / (differences.std / math.sqrt(differences.n)), differences.n - 1)


def t_tails(t: float, freedom: int) -> float:
    """Return P(|T| >= |t|): I_x(freedom / 2, 1 / 2) at x = freedom / (freedom + t^2)."""
    if freedom < 1:
        raise ValueError(f"Student's t has at least 1 degree of freedom, not {freedom}")
    if math.isnan(t) or math.isinf(t):
        return math.nan if math.isnan(t) else 0.0
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t), t * t / (freedom + t * t))


@cache
def t_quantile(confidence: float, freedom: int) -> float:
    """Return the t with P(|T| < t) = confidence, by bisection."""
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence is between 0 and 1, not {confidence}")
    low, high = 0.0, 1.0
    while t_tails(high, freedom) > 1.0 - confidence:
        low, high = high, 2.0 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if t_tails(middle, freedom) > 1.0 - confidence else (low, middle)
    return high


def _incomplete_beta(a: float, b: float, x: float, rest: float) -> float:
    """Return I_x(a, b) for rest = 1 - x, by the continued fraction of DLMF 8.17.22."""
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


_erf = np.vectorize(math.erf, otypes=[np.float64])


def chi_square_tail(x: float, freedom: int) -> float:
    """Return P(X >= x) = Q(freedom / 2, x / 2), by DLMF 8.11.4 or 8.9.2."""
    a, z = freedom / 2, x / 2
    if z <= 0:
        return 1.0
    front = math.exp(a * math.log(z) - z - math.lgamma(a))
    if z < a + 1:
        term = total = 1 / a
        k = a
        while term > 1e-17 * total:
            k += 1
            term *= z / k
            total += term
        return 1.0 - front * total
    fraction = 0.0
    for k in range(500, 0, -1):
        fraction = k * (k - a) / (z + 2 * k + 1 - a - fraction)
    return front / (z + 1 - a - fraction)


@cache
def studentized_range_quantile(confidence: float, groups: int) -> float:
    """Return q with P(range of ``groups`` standard normals < q) = confidence."""
    low, high = 0.0, 20.0
    while low < (middle := (low + high) / 2) < high and high - low > 1e-12:
        low, high = (middle, high) if _range_below(middle, groups) < confidence else (low, middle)
    return high


def _range_below(q: float, groups: int) -> float:
    """Return k * integral of phi(z) (Phi(z) - Phi(z - q))^(k - 1), by Simpson's rule."""
    z = np.linspace(-8.0, 8.0 + q, 801)
    values = np.exp(-z * z / 2) / math.sqrt(2 * math.pi) * (_normal(z) - _normal(z - q)) ** (groups - 1)
    return groups * _simpson(values, float(z[1] - z[0]))


def t_power(effect: float, n: int, level: float) -> float:
    """Return the power of a two-sided paired t-test of ``n`` differences.

    The mean is ``effect`` standard deviations: the expectation over the sample deviation s (in
    units of the true one) of Phi(delta - t s) + Phi(-delta - t s), with delta = effect sqrt(n).
    """
    if n < 2:
        return 0.0
    freedom, delta, t = n - 1, effect * math.sqrt(n), t_quantile(1 - level, n - 1)
    spread = 1 / math.sqrt(2 * freedom)
    x = np.linspace(math.log(max(1e-6, 1 - 12 * spread)), math.log(1 + 12 * spread), 401)  # of few values s is near 0
    s = np.exp(x)
    log = math.log(2) + freedom / 2 * math.log(freedom / 2) - math.lgamma(freedom / 2)
    density = np.exp(log + freedom * x - freedom * s * s / 2)
    seen = _normal(delta - t * s) + _normal(-delta - t * s)
    step = float(x[1] - x[0])
    return min(1.0, _simpson(seen * density, step) / _simpson(density, step))


def _normal(z: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(0.5 + 0.5 * _erf(z / math.sqrt(2)))


def _simpson(values: NDArray[np.float64], step: float) -> float:
    """Integrate an odd number of values by Simpson's rule."""
    return float(step / 3 * (values[0] + values[-1] + 4 * values[1:-1:2].sum() + 2 * values[2:-1:2].sum()))
