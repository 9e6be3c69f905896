"""Laws that comparisons need besides Student's t, from their definitions: nothing depends on what is installed."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tmln.analysis.statistics import t_quantile

_erf = np.vectorize(math.erf, otypes=[np.float64])


def chi_square_tail(x: float, freedom: int) -> float:
    """P(X >= x): Q(freedom / 2, x / 2), by the series of DLMF 8.11.4 or the continued fraction of 8.9.2."""
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
    """q with P(range of ``groups`` standard normals < q) = confidence: Nemenyi's, which knows the variance of ranks."""
    low, high = 0.0, 20.0
    while low < (middle := (low + high) / 2) < high and high - low > 1e-12:
        low, high = (middle, high) if _range_below(middle, groups) < confidence else (low, middle)
    return high


def _range_below(q: float, groups: int) -> float:
    """k * integral of phi(z) (Phi(z) - Phi(z - q))^(k - 1), by Simpson's rule, which is exact here to ten digits."""
    z = np.linspace(-8.0, 8.0 + q, 801)
    values = np.exp(-z * z / 2) / math.sqrt(2 * math.pi) * (_normal(z) - _normal(z - q)) ** (groups - 1)
    return groups * _simpson(values, float(z[1] - z[0]))


def t_power(effect: float, n: int, level: float) -> float:
    """The chance that a two-sided paired t-test of ``n`` differences sees a mean of ``effect`` standard deviations.

    The mean over the law of the sample deviation s (in units of the true one) of
    Phi(delta - t s) + Phi(-delta - t s), with delta = effect sqrt(n).
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
    """Of an odd number of values."""
    return float(step / 3 * (values[0] + values[-1] + 4 * values[1:-1:2].sum() + 2 * values[2:-1:2].sum()))
