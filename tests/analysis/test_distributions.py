"""Laws against scipy's."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from tmln.analysis.statistics import chi_square_tail, studentized_range_quantile, t_power


@pytest.mark.parametrize("freedom", [1, 2, 3, 7, 20])
def test_chi_square(freedom: int) -> None:
    assert chi_square_tail(0.0, freedom) == 1.0
    assert chi_square_tail(3.0, 2) == pytest.approx(math.exp(-1.5), rel=1e-12)  # in closed form
    for x in (0.01, 0.5, 1.0, 4.0, 9.9, 40.0, 90.0):
        assert chi_square_tail(x, freedom) == pytest.approx(stats.chi2.sf(x, freedom), rel=1e-9)


@pytest.mark.parametrize(("groups", "printed"), [(2, 1.960), (3, 2.344), (5, 2.728), (10, 3.164)])
def test_the_range_of_normals_is_scipys_and_the_tables(groups: int, printed: float) -> None:
    """Demsar's Table 5 has q / sqrt(2)."""
    found = studentized_range_quantile(0.95, groups)
    assert found / math.sqrt(2) == pytest.approx(printed, abs=6e-4)
    assert found == pytest.approx(stats.studentized_range.ppf(0.95, groups, math.inf), rel=1e-6)


@pytest.mark.parametrize("n", [2, 3, 5, 20, 300])
def test_power_is_the_noncentral_ts(n: int) -> None:
    for effect in (0.01, 0.3, 1.0, 3.0):
        for level in (0.05, 0.001):
            t = stats.t.ppf(1 - level / 2, n - 1)
            law = stats.nct(n - 1, effect * math.sqrt(n))
            wanted = law.sf(t) + law.cdf(-t)
            if math.isfinite(wanted):
                assert t_power(effect, n, level) == pytest.approx(wanted, abs=2e-5)
    assert t_power(1.0, 1, 0.05) == 0.0
