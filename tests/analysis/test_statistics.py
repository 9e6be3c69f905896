"""Statistics over seeds: by hand, then against scipy, then what must hold for any values."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tmln.analysis.statistics import (
    chi_square_tail,
    compare,
    mean,
    sample_std,
    studentized_range_quantile,
    summarise,
    summarise_ratios,
    t_power,
    t_quantile,
    t_tails,
)

NAN = math.nan


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_summary_by_hand() -> None:
    """2, 4, 6: mean 4, squares 4 + 0 + 4 over 2 = 4, std 2; t(2) = 4.302653 in tables, 4.302653 * 2 / sqrt(3)."""
    summary = summarise([2.0, 4.0, 6.0])
    assert (summary.n, summary.excluded, summary.mean, summary.std) == (3, 0, 4.0, 2.0)
    assert summary.low == pytest.approx(4 - 4.968275, abs=1e-5)
    assert summary.high == pytest.approx(4 + 4.968275, abs=1e-5)
    assert (summary.high - summary.low) / 2 == pytest.approx(4.968275, abs=1e-5)


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (30, 2.042), (120, 1.980)]
)
def test_quantiles_are_the_tables(freedom: int, quantile: float) -> None:
    assert t_quantile(0.95, freedom) == pytest.approx(quantile, abs=5e-4)


def test_tails_in_closed_form() -> None:
    """One degree of freedom: 1 - 2/pi * atan(t). Two: 1 - t / sqrt(t^2 + 2)."""
    for t in (1e-8, 0.3, 1.0, 7.0, 1e6):
        assert t_tails(t, 1) == pytest.approx(2 / math.pi * math.atan(1 / t), rel=1e-12)
        assert t_tails(-t, 2) == pytest.approx(2 / (t * t + 2 + t * math.sqrt(t * t + 2)), rel=1e-12)
    assert t_tails(0.0, 5) == 1.0
    assert t_tails(math.inf, 5) == 0.0
    assert math.isnan(t_tails(NAN, 5))


def test_paired_by_hand() -> None:
    """Differences 1, 2, 3 on seeds 0, 1, 2: mean 2, std 1, t = 2 sqrt(3), p = 1 - t / sqrt(t^2 + 2) = 0.0742."""
    result = compare({0: 5.0, 1: 7.0, 2: 9.0, 3: 1.0, 5: NAN}, {0: 4.0, 1: 5.0, 2: 6.0, 4: 1.0, 5: 2.0})
    assert (result.n, result.mean_difference, result.std) == (3, 2.0, 1.0)
    assert result.p_value == pytest.approx(1 - math.sqrt(12 / 14))
    assert result.low == pytest.approx(2 - 4.302653 / math.sqrt(3), abs=1e-5)
    assert (result.only_first, result.only_second, result.excluded) == ((3,), (4,), (5,))


def test_an_interval_ends_where_the_possible_ends() -> None:
    """0.05, 0.25: mean 0.15, std 0.1414, t(1) = 12.706, so 0.15 -+ 1.27 of a quantity between 0 and 1."""
    free, cut = summarise([0.05, 0.25]), summarise([0.05, 0.25], within=(0.0, 1.0))
    assert (free.low, free.high) == pytest.approx((-1.1206, 1.4206), abs=1e-4)
    assert (cut.low, cut.high, cut.cut, free.cut) == (0.0, 1.0, True, False)
    assert (cut.n, cut.mean, cut.std) == (free.n, free.mean, free.std)
    one_end = summarise([1.0, 30.0], within=(0.0, math.inf))
    assert (one_end.low, one_end.cut) == (0.0, True)
    assert one_end.high == summarise([1.0, 30.0]).high
    narrow = summarise([0.50, 0.51], within=(0.0, 1.0))
    assert narrow == summarise([0.50, 0.51])
    assert summarise([0.7], within=(0.0, 1.0)).cut is False


def test_values_that_cannot_be_are_not_hidden_by_a_cut() -> None:
    assert summarise([0.5, 1.5], within=(0.0, 1.0)) == summarise([0.5, 1.5])


def test_differences_of_shares_lie_between_minus_1_and_1() -> None:
    found = compare({0: 0.9, 1: 0.2}, {0: 0.1, 1: 0.3}, within=(0.0, 1.0))
    assert (found.low, found.high) == (-1.0, 1.0)
    assert found.p_value == compare({0: 0.9, 1: 0.2}, {0: 0.1, 1: 0.3}).p_value


def test_ratios_by_hand() -> None:
    """1/2 and 2: logarithms -+ ln 2, geometric mean 1; their std is sqrt(2) ln 2, t(1) / sqrt(2) times it 8.807."""
    found = summarise_ratios([0.5, 2.0, NAN])
    assert (found.n, found.excluded) == (2, 1)
    assert found.mean == pytest.approx(1.0)
    assert found.std == pytest.approx(2.0 ** math.sqrt(2))
    assert math.log(found.high) == pytest.approx(12.7062 * math.log(2), rel=1e-5)
    assert found.low == pytest.approx(1 / found.high)
    assert math.isnan(summarise_ratios([1.5]).low)
    assert math.isnan(summarise_ratios([]).mean)
    with pytest.raises(ValueError, match=r"ratios are positive, not -0\.1"):
        summarise_ratios([1.0, -0.1])
    with pytest.raises(ValueError, match="positive, not 0"):
        summarise_ratios([0.0])


# -- edges -------------------------------------------------------------------------------------------------------------


def test_nan_is_left_out_and_counted() -> None:
    summary = summarise([1.0, NAN, 3.0, NAN])
    assert (summary.n, summary.excluded, summary.mean) == (2, 2, 2.0)
    assert mean([1.0, NAN, 3.0]) == 2.0
    assert sample_std([1.0, NAN, 3.0]) == pytest.approx(math.sqrt(2))


def test_one_value_has_no_spread_and_none_no_mean() -> None:
    one = summarise([0.7])
    assert (one.n, one.mean) == (1, 0.7)
    assert all(math.isnan(value) for value in (one.std, one.low, one.high))
    none = summarise([NAN])
    assert (none.n, none.excluded) == (0, 1)
    assert math.isnan(none.mean)
    result = compare({0: 1.0}, {0: 0.5})
    assert (result.n, result.mean_difference) == (1, 0.5)
    assert math.isnan(result.p_value)
    assert compare({0: 1.0}, {1: 0.5}).n == 0


def test_equal_differences_prove_nothing() -> None:
    same = {0: 0.9, 1: 0.8}
    assert compare(same, same).p_value == 1.0
    shifted = {seed: value - 0.1 for seed, value in same.items()}  # rounded, they differ in the last digit
    assert math.isnan(compare(same, shifted).p_value)
    assert compare({0: 1e-6, 1: 3e-6}, {0: 0.0, 1: 0.0}).p_value < 0.5


def test_differences_that_are_small_but_differ_are_tested() -> None:
    """0.0001 and 0.0003 of values near 1: mean 0.0002, t = 2, p = 2/pi * atan(1/2)."""
    found = compare({0: 1.0001, 1: 1.0003}, {0: 1.0, 1: 1.0})
    assert found.p_value == pytest.approx(2 / math.pi * math.atan(0.5), rel=1e-6)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="between 0 and 1, not 95"):
        summarise([1.0, 2.0], confidence=95)
    with pytest.raises(ValueError, match="at least 1 degree"):
        t_tails(1.0, 0)


# -- against scipy -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 9, 10, 29, 100, 1000])
def test_student_is_scipys(freedom: int) -> None:
    for t in (0.001, 0.1, 0.7, 1.0, 2.0, 4.5, 10.0, 100.0):
        assert t_tails(t, freedom) == pytest.approx(2 * stats.t.sf(t, freedom), rel=1e-10, abs=1e-300)
    for confidence in (0.5, 0.9, 0.95, 0.99, 0.999):
        assert t_quantile(confidence, freedom) == pytest.approx(stats.t.ppf((1 + confidence) / 2, freedom), rel=1e-9)


VALUES = st.floats(-100, 100).map(lambda value: round(value, 6))


@given(st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=12))
def test_results_are_scipys(pairs: list[tuple[float, float]]) -> None:
    first, second = ({seed: pair[side] for seed, pair in enumerate(pairs)} for side in (0, 1))
    result, summary = compare(first, second), summarise(first.values())
    n = len(pairs)
    if summary.std > 0:
        expected = stats.t.interval(0.95, n - 1, summary.mean, summary.std / math.sqrt(n))
        assert (summary.low, summary.high) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    if result.std > 1e-6:
        oracle = stats.ttest_rel([a for a, _ in pairs], [b for _, b in pairs])
        assert result.p_value == pytest.approx(oracle.pvalue, rel=1e-6, abs=1e-12)
        assert result.mean_difference == pytest.approx(mean(first.values()) - mean(second.values()), abs=1e-9)


# -- what must hold ----------------------------------------------------------------------------------------------------


@given(st.lists(VALUES, min_size=2, max_size=10), st.integers(0, 3))
def test_order_and_nan_change_nothing(values: list[float], holes: int) -> None:
    plain, mixed = summarise(values), summarise([NAN] * holes + values[::-1])
    assert (plain.n, plain.mean, plain.std, plain.low, plain.high) == (
        *(mixed.n, mixed.mean, mixed.std, mixed.low, mixed.high),
    )
    assert mixed.excluded == holes
    assert plain.low <= plain.mean <= plain.high


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=6))
def test_ratios_read_backwards_say_the_same(values: list[float]) -> None:
    there, back = summarise_ratios(values), summarise_ratios([1 / value for value in values])
    assert 0.0 < there.low <= there.mean * (1 + 1e-12)
    assert there.mean <= there.high * (1 + 1e-12)
    assert (1 / back.high, 1 / back.mean, 1 / back.low) == pytest.approx((there.low, there.mean, there.high), rel=1e-9)


@given(st.dictionaries(st.integers(0, 9), VALUES, min_size=2), st.dictionaries(st.integers(0, 9), VALUES, min_size=2))
def test_swapping_the_methods_swaps_the_sign(first: dict[int, float], second: dict[int, float]) -> None:
    one, other = compare(first, second), compare(second, first)
    assert one.n == other.n == len(first.keys() & second.keys())
    assert one.only_first == other.only_second
    if one.n:
        assert one.mean_difference == -other.mean_difference
    assert one.p_value == other.p_value or (math.isnan(one.p_value) and math.isnan(other.p_value))


@given(st.integers(1, 50), st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_quantiles_invert_tails_and_grow(freedom: int, a: float, b: float) -> None:
    assert 1 - t_tails(t_quantile(a, freedom), freedom) == pytest.approx(a, rel=1e-12)
    if a + 1e-6 < b:
        assert t_quantile(a, freedom) < t_quantile(b, freedom)


# -- laws against scipy's


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
