"""Paired tests and Holm's correction: by hand, then against scipy, statsmodels and slow oracles on random tables."""

from __future__ import annotations

import math
import random
from itertools import product

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower

from tmln.analysis.significance import (
    NOWHERE,
    TESTS,
    bootstrap_interval,
    bootstrap_p,
    holm,
    holm_levels,
    seeds_needed,
    wilcoxon_interval,
    wilcoxon_p,
)

DRAW = random.Random(8)
RANDOM = [[DRAW.gauss(0.3, 1) for _ in range(n)] for n in (3, 5, 8, 12) for _ in range(5)]


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_signed_ranks_by_hand() -> None:
    """1, 2, -3: ranks 1, 2, 3, T- = 3 = T+. Five of 8 signs have a sum of 3 or less: none, 1, 2, 3, 1 + 2."""
    assert wilcoxon_p([1.0, 2.0, -3.0]) == 1.0
    assert wilcoxon_p([1.0, 2.0, 3.0]) == 0.25
    assert wilcoxon_p([-1.0, 2.0, 3.0, 4.0]) == 0.25  # T- = 1: two of sixteen, twice
    assert wilcoxon_p([0.0, 1.0, 2.0, 3.0]) == 0.25  # zeros are left out
    assert wilcoxon_p([0.0, 0.0]) == 1.0
    assert math.isnan(wilcoxon_p([1.0]))


def test_signed_rank_interval_by_hand() -> None:
    """Of five the smallest tail is 1/32: 2/32 is above 5%, below 10%, so at 90% it is the least and the greatest."""
    assert wilcoxon_interval([1.0, 2.0, 3.0, 4.0, 5.0], 0.95) == NOWHERE
    assert wilcoxon_interval([1.0, 2.0, 3.0, 4.0, 5.0], 0.90) == (1.0, 5.0)
    assert wilcoxon_interval([1.0, 2.0, 3.0, 4.0, 5.0], 0.87) == (1.5, 4.5)  # 4/32 = 12.5%


def test_holm_by_hand() -> None:
    """0.01 * 4, 0.02 * 3, 0.03 * 2 = 0.06 again, 0.9; NaN is no comparison."""
    assert holm([0.9, 0.01, math.nan, 0.03, 0.02])[:2] == pytest.approx([0.9, 0.04])
    assert holm([0.9, 0.01, math.nan, 0.03, 0.02])[3:] == pytest.approx([0.06, 0.06])
    assert math.isnan(holm([math.nan, 0.1])[0])
    # 0.01 < 0.05 / 4 goes through, 0.02 > 0.05 / 3 stops, and nothing is looked at more kindly from there on
    assert holm_levels([0.9, 0.01, 0.03, 0.02], 0.05) == pytest.approx([0.05 / 3, 0.05 / 4, 0.05 / 3, 0.05 / 3])


def test_the_bootstrap_cannot_be_surer_than_signs() -> None:
    """Three values above 0 are resampled to nothing else, and yet signs are equal one time in four."""
    assert bootstrap_p([1.0, 1.1, 0.9]) == 0.25
    assert bootstrap_interval([1.0, 1.1, 0.9], 0.95) == NOWHERE
    assert bootstrap_p([0.0, 0.0, 0.0]) == 1.0
    assert math.isnan(bootstrap_p([1.0]))
    assert bootstrap_p([1.0 + 0.01 * k for k in range(12)]) < 0.003
    assert bootstrap_interval([1.0, 2.0, 3.0] * 4, 0.95) == bootstrap_interval([1.0, 2.0, 3.0] * 4, 0.95)


# -- against others ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", RANDOM, ids=len)
def test_signed_ranks_are_scipys_and_their_interval_agrees_with_them(values: list[float]) -> None:
    assert wilcoxon_p(values) == pytest.approx(stats.wilcoxon(values, method="exact").pvalue)
    for confidence in (0.5, 0.8, 0.95, 0.99):
        low, high = wilcoxon_interval(values, confidence)
        assert (low > 0 or high < 0) == (wilcoxon_p(values) <= 1 - confidence)


def test_shared_ranks_are_those_of_all_signs() -> None:
    """Every assignment of signs, counted."""
    for values in ([1.0, 1.0, 2.0, -2.0, 3.0], [1.0, -1.0, 1.0, 1.0], [2.0, 2.0, 2.0, 2.0, 2.0]):
        ranks = stats.rankdata(np.abs(values))
        observed = min(ranks[np.array(values) > 0].sum(), ranks[np.array(values) < 0].sum())
        sums = [
            sum(rank for rank, up in zip(ranks, signs, strict=True) if up)
            for signs in product((0, 1), repeat=len(values))
        ]
        share = sum(total <= observed for total in sums) / len(sums)
        assert wilcoxon_p(values) == pytest.approx(min(1.0, 2 * share))


def test_holm_is_statsmodels() -> None:
    draw = random.Random(5)
    for count in (1, 2, 5, 30):
        values = [draw.random() ** 3 for _ in range(count)]
        rejected, corrected, *_ = multipletests(values, 0.05, "holm")
        assert holm(values) == pytest.approx(list(corrected))
        levels = holm_levels(values, 0.05)
        assert [p < level for p, level in zip(values, levels, strict=True)] == list(rejected)


def test_a_corrected_interval_leaves_0_out_where_the_corrected_p_says_so() -> None:
    values = [[x + shift for x in mine] for mine, shift in zip(RANDOM, (0.0, 2.0, 4.0, 8.0, 16.0) * 4, strict=True)]
    p_values = [TESTS["t"].p(mine) for mine in values]
    corrected, levels = holm(p_values), holm_levels(p_values, 0.05)
    assert 0 < sum(p < 0.05 for p in corrected) < len(corrected)
    for mine, p, level in zip(values, corrected, levels, strict=True):
        low, high = TESTS["t"].interval(mine, 1 - level)
        assert (p < 0.05) == (low > 0 or high < 0)


def test_the_bootstrap_is_near_students_where_values_are_many() -> None:
    draw = random.Random(2)
    values = [draw.gauss(0.2, 1) for _ in range(60)]
    assert bootstrap_interval(values, 0.95) == pytest.approx(TESTS["t"].interval(values, 0.95), abs=0.06)
    assert bootstrap_p(values) == pytest.approx(TESTS["t"].p(values), abs=0.03)
    expanded = stats.norm.cdf(-math.sqrt(60 / 59) * stats.t.ppf(0.975, 59))
    found = stats.bootstrap((values,), np.mean, confidence_level=1 - 2 * expanded, method="percentile", rng=1)
    assert bootstrap_interval(values, 0.95) == pytest.approx(tuple(found.confidence_interval), abs=0.03)


@pytest.mark.parametrize(
    ("values", "level"), [([1.0, 3.0], 0.05), ([0.0, 1.0, 2.0, 0.5], 0.01), ([-1.0, 2.0, 0.4], 0.05)]
)
def test_seeds_that_are_needed_are_statsmodels(values: list[float], level: float) -> None:
    effect = float(np.mean(values) / np.std(values, ddof=1))
    wanted = TTestPower().solve_power(effect_size=effect, alpha=level, power=0.8)
    assert seeds_needed(values, level) == math.ceil(float(np.squeeze(wanted)))


def test_seeds_that_nobody_has() -> None:
    assert seeds_needed([1.0, -1.0], 0.05) is None
    assert seeds_needed([1.0, 1.0], 0.05) is None
    assert seeds_needed([1.0, -0.99, 1.0, -0.99, 0.99, -1.0], 0.05) is None
    assert seeds_needed([1.0], 0.05) is None
