"""Who can be told from the best: which pairs count, what stands out, who takes no part; and who has not learned."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower

from tests.analysis.made import result
from tmln.analysis.rows import Row, group_rows
from tmln.analysis.selection import chance_of, find_unlearned
from tmln.analysis.significance import (
    NOWHERE,
    TESTS,
    assess_significance,
    bootstrap_interval,
    bootstrap_p,
    find_identical,
    holm,
    holm_levels,
    seeds_needed,
    wilcoxon_interval,
    wilcoxon_p,
)
from tmln.analysis.tables import column_lines, difference_lines, row_records, row_tree
from tmln.analysis.text_table import Strong
from tmln.experiments.result import Result

ACC = {
    "tmln": (0.90, 0.92, 0.94, 0.93),
    "er": (0.89, 0.93, 0.92, 0.935),
    "si": (0.50, 0.55, 0.49, 0.52),
    "naive": (0.20, 0.19, 0.21, 0.18),
}


def rows(acc: dict[str, Sequence[float]] | None = None, **settings: object) -> list[Row]:
    return group_rows([result(m, s, a, 1 - a) for m, mine in (acc or ACC).items() for s, a in enumerate(mine)])


def test_every_pair_counts_where_the_best_was_found_by_looking() -> None:
    every = rows()
    found = assess_significance(every)
    assert found.reference is every[0]
    pairs = [(a, b) for k, a in enumerate(every) for b in every[k + 1 :]]
    p_values = [a.compare_with(b, "acc").p_value for a, b in pairs]
    corrected = multipletests(p_values, 0.05, "holm")[1]
    wanted = {b.label: p for (a, b), p in zip(pairs, corrected, strict=True) if a is every[0]}
    assert {pair.row.label: pair.corrected for pair in found.pairs} == pytest.approx(wanted)
    assert [pair.row.label for pair in found.nearest] == ["er", "si", "naive"]
    assert [pair.is_significant for pair in found.nearest] == [False, True, True]
    assert not found.has_winner


def test_only_the_pairs_with_a_row_that_was_named() -> None:
    every = rows()
    found = assess_significance(every, reference=every[2])
    p_values = [row.compare_with(every[2], "acc").p_value for row in every if row is not every[2]]
    corrected = multipletests(p_values, 0.05, "holm")[1]
    assert [pair.corrected for pair in found.pairs] == pytest.approx(list(corrected))
    assert (found.has_winner, found.bold_labels) == (False, set())  # a name is no merit


def test_what_stands_out_is_the_best_and_what_is_not_told_from_it() -> None:
    assert assess_significance(rows()).bold_labels == {"tmln", "er"}
    assert assess_significance(rows(), "fm").bold_labels == {"tmln", "er"}  # less is better
    assert assess_significance(rows({m: a[:2] for m, a in ACC.items()})).bold_labels == set()  # two seeds
    assert assess_significance(rows({m: ACC[m] for m in ("tmln", "er")})).bold_labels == set()  # nothing is told apart
    assert assess_significance(rows({"er": ACC["er"]})).bold_labels == set()
    won = assess_significance(rows({"tmln": ACC["tmln"], "si": ACC["si"]}))
    assert (won.has_winner, won.bold_labels) == (True, {"tmln"})


def test_settings_chosen_on_the_tests_and_references_take_no_part() -> None:
    more = [result("lwf", s, 0.95 + 0.01 * s, settings={"a": a}) for s in range(4) for a in (1, 2)]
    every = group_rows(
        [*(r for row in rows() for r in row.results), *more, *(result("joint", s, 0.99) for s in range(4))]
    )
    found = assess_significance(every)
    assert {row.label for row in found.candidates} == set(ACC)
    assert found.reference is not None
    assert found.reference.label == "tmln"
    outside = {pair.row.label: pair.corrected for pair in found.pairs if pair.row.label not in ACC}
    assert len(outside) == 3
    assert all(map(math.isnan, outside.values()))
    alone = assess_significance(group_rows(more))  # nothing else is there: held against the best, nothing claimed
    assert (alone.reference is not None, alone.candidates, alone.bold_labels) == (True, (), set())


def test_the_other_tests_are_asked_for_by_name() -> None:
    eight = rows({m: [a + 0.001 * k for k in range(8)] for m, (a, *_) in ACC.items()})
    spread = [
        replace(row, values={"acc": {s: v + 0.0003 * (s * len(row.label) % 5) for s, v in row.values["acc"].items()}})
        for row in eight
    ]
    for test in ("wilcoxon", "bootstrap"):
        found = assess_significance(spread, "acc", test)
        assert all(pair.p >= 2 / 2**8 for pair in found.nearest)
    assert assess_significance(spread, "acc", "wilcoxon").nearest[0].p == 2 / 2**8


def test_differences_as_a_person_can_use_them() -> None:
    """tmln against er: 0.01, -0.01, 0.02, -0.005: mean 0.00375; memory is 2 MiB, seconds 1."""
    every = [replace(row, values={**row.values, "memory": dict.fromkeys(range(4), 2.0)}) for row in rows()]
    heading, tmln, er, si, _ = difference_lines(every, assess_significance(every))
    assert heading[2:4] == ["Δ ACC", "corrected 95%"]
    assert tmln == ["tmln", "4", "reference", "-", "-", "-", "-", "1.0", "2.0"]
    assert (er[:3], er[5], er[7:]) == (["er", "4", "-0.4"], "0.624", ["1.0", "2.0"])
    assert int(er[6]) > 50
    assert (si[2], si[6]) == ("-40.8", "significant")
    assert isinstance(si[5], Strong)
    assert not isinstance(er[5], Strong)
    record = row_records(every)[1]
    assert (record["reference"], record["shared"], record["significant"]) == ("tmln", 4, False)
    assert record["p"] == pytest.approx(every[1].compare_with(every[0], "acc").p_value)
    assert record["p_holm"] == pytest.approx(0.624, abs=1e-3)
    assert [record[f"acc_seed_{seed}"] for seed in range(4)] == list(ACC["er"])
    tree = row_tree(every)[1]
    assert tree["metrics"]["acc"]["values"] == dict(enumerate(ACC["er"]))
    assert tree["compared"]["p_holm"] == record["p_holm"]
    assert row_tree(every, reference="si")[0]["compared"]["reference"] == "si"


def test_columns_are_chosen_for_one_table() -> None:
    every = rows()
    heading, _, er, *_ = column_lines(every, assess_significance(every), ["acc", "delta", "holm", "n"])
    assert heading == ["method", "ACC % ↑", "Δ ACC", "corrected p", "n"]
    assert er == ["er", "91.9 ± 2.0", "-0.4", "0.624", "4"]
    with pytest.raises(ValueError, match="unknown column 'hollm'; did you mean 'holm'"):
        column_lines(every, assess_significance(every), ["hollm"])


def test_rows_that_agree_to_the_last_digit() -> None:
    same = rows({"tmln": ACC["tmln"], "tmln-static": ACC["tmln"], "er": ACC["er"]})
    assert [[row.label for row in group] for group in find_identical(same)] == [["tmln", "tmln-static"]]
    nearly = rows({"tmln": ACC["tmln"], "er": [*ACC["tmln"][:3], 0.9300000001]})
    assert find_identical(nearly) == []


# -- learning ----------------------------------------------------------------------------------------------------------


def learner(method: str, diagonal: Sequence[float], **stream: object) -> Result:
    R = [[value if j == k else 0.0 for j in range(len(diagonal))] for k, value in enumerate(diagonal)]
    return replace(result(method, 0, 0.0), said={}, accuracy=R, stream=stream)


def test_chance_by_hand() -> None:
    """Always the same class of the task at hand: 1/2 of two, 1/3 of three; a class alone is 1/4 of all four."""
    assert chance_of(learner("er", [1, 1], test_classes=[2, 3])) == pytest.approx(((1 / 2 + 1 / 3) / 2, 1 / 5))
    order = learner("er", [1, 1, 1], class_order=[0, 1, 2, 3])
    assert chance_of(order) == pytest.approx(((1 / 2 + 1 / 4 + 1 / 4) / 3, 1 / 4))
    turned = learner("er", [1, 1], test_classes=[10, 10], scenario="domain-incremental")
    assert chance_of(turned) == pytest.approx((1 / 10, 1 / 10))
    assert all(map(math.isnan, chance_of(learner("er", [1, 1]))))


def test_who_has_not_learned() -> None:
    kind = {"test_classes": [2, 2]}
    dull = replace(learner("upgd", [0.5, 0.5], **kind), accuracy=[[0.51, 0.0], [0.0, 0.5]])
    found = find_unlearned(
        group_rows(
            [
                learner("er", [0.99, 0.97], **kind),
                learner("si", [0.9, 0.8], **kind),
                replace(learner("ewc", [0.8, 0.0], **kind), accuracy=[[0.8, 0.0], [0.8, 0.0]]),
                learner("mas", [0.9, 0.95], **kind),
                dull,
                learner("joint", [0.99, 0.99], **kind),
            ]
        )
    )
    assert found == {"upgd": "at chance: 50.5 at best", "ewc": "40.0 at best, far below the others' 85.0"}
    assert list(find_unlearned(group_rows([dull]))) == ["upgd"]  # alone, too
    far = find_unlearned(group_rows([learner("er", [0.9, 0.9]), learner("si", [0.8, 0.8]), learner("ewc", [0.7, 0.0])]))
    assert far == {"ewc": "35.0 at best, far below the others' 80.0"}
    assert find_unlearned(group_rows([learner("ewc", [0.7, 0.0])])) == {}  # alone, and nobody knows the classes
    late = replace(learner("er", [0.9, 0.0], **kind), accuracy=[[0.9, 0.0], [0.8, 0.7]])  # by a memory, say
    assert find_unlearned(group_rows([late])) == {}
    slow = replace(late, accuracy=[[0.0, 0.0, 0.0], [0.9, 0.0, 0.0], [0.9, 0.9, 0.9]], stream={"test_classes": [2] * 3})
    assert find_unlearned(group_rows([slow])) == {}
    assert find_unlearned(group_rows([result("er", 0, 0.01)])) == {}  # of what has no matrix nobody knows


# -- paired tests and Holm's correction: by hand, then against scipy, statsmodels and slow oracles on random tables


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
