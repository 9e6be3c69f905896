"""What a table says in one sentence, in every case that can arise."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest

from tests.analysis.made import result
from tmln.analysis.rows import group_rows
from tmln.analysis.significance import TestName
from tmln.analysis.summary_text import write_headline, write_summary
from tmln.experiments.result import Result


def runs(
    method: str, accuracies: list[float], fm: float = 0.2, first: int = 0, settings: dict[str, Any] | None = None
) -> list[Result]:
    return [result(method, first + seed, acc, fm, settings=settings or {}) for seed, acc in enumerate(accuracies)]


def validated(some: list[Result], accuracy: float) -> list[Result]:
    return [replace(one, said={**one.said, "val_acc": accuracy}) for one in some]


def said(*results: list[Result]) -> str:
    """The sentence; the headline claims what it claims, in every case here."""
    rows = group_rows([result for some in results for result in some])
    text, short = write_summary(rows), write_headline(rows)
    assert len(short) <= 120
    for claim in (
        " leads ",
        "do not differ significantly",
        " nothing",
        "is the only method",
        "No method on",
        "No method has",
    ):
        assert (claim in short) == (claim in text), (short, text)
    return text


def test_a_winner_with_its_margin_and_test() -> None:
    # differences 0.08, 0.10, 0.12: t = 0.1 / (0.02 / sqrt 3) = 8.660, p = 0.013 with 2 degrees of freedom, 0.1 -+ 0.05
    text = said(runs("tmln", [0.90, 0.92, 0.94], 0.05), runs("er", [0.82, 0.82, 0.82]), runs("joint", [0.99] * 3))
    assert text == (
        "tmln leads on split-digits with 3 seeds: ACC 92.0 ± 2.0, 10.0 points above er [5.0, 15.0], corrected p = 0.013"
        "; forgetting 5.0; 1.0 s a run (er 1.0 s)."
    )


def test_two_seeds_claim_nothing_whatever_they_say() -> None:
    text = said(runs("tmln", [0.90, 0.91], 0.1), runs("er", [0.10, 0.1101]))
    assert text.startswith(
        "On split-digits 2 seeds claim nothing: tmln has the highest ACC, 90.5 ± 0.7, 80.0 points above er; 3 shared"
    )
    assert "1 seed claims nothing" in said(runs("tmln", [0.9]), runs("er", [0.8]))
    assert "no shared seeds claim nothing" in said(runs("tmln", [0.9] * 3), runs("er", [0.8] * 3, first=5))


def test_what_cannot_be_told_apart_is_named_and_what_can() -> None:
    text = said(
        runs("tmln", [0.90, 0.80, 0.85], 0.1), runs("er", [0.80, 0.88, 0.84]), runs("naive", [0.20, 0.11, 0.15])
    )
    # 0.85 - 0.84, differences 0.10, -0.08, 0.01: s = 0.09; naive is 0.70, 0.69, 0.70 below
    assert text.startswith(
        "On split-digits tmln and er do not differ significantly (3 seeds): ACC 85.0 ± 5.0 of tmln is highest, "
        "1.0 points above er "
    )
    assert "corrected p = 0.865, 80% power needs about " in text  # the largest p of three counts once
    assert "; tmln is above naive; forgetting 10.0;" in text
    equal = said(runs("tmln", [0.9, 0.8, 0.7]), runs("er", [0.8, 0.7, 0.6]))
    assert "10.0 points above er by the same on every seed, where no test applies" in equal
    assert "leads" not in text + equal


def test_many_are_counted() -> None:
    several = [
        runs(name, [0.5, 0.6, 0.7 + 0.01 * k]) for k, name in enumerate(("er", "si", "mas", "ewc", "lwf", "der"))
    ]
    assert "der, lwf, ewc, mas and 2 more do not differ significantly (3 seeds): " in said(*several)


def test_the_least_forgetting_is_a_claim_of_its_own() -> None:
    def forgets(method: str, *fm: float) -> list[Result]:
        return [result(method, seed, 0.5 + 0.1 * seed, value, metrics={"peak": 0.9}) for seed, value in enumerate(fm)]

    assert "forgetting 3.0 from a peak of 90.0, the least" in said(
        forgets("er", 0.03, 0.031, 0.029), forgets("si", 0.3, 0.29, 0.31)
    )
    other = said(forgets("er", 0.3, 0.29, 0.31), [replace(r, method="si") for r in forgets("si", 0.03, 0.031, 0.02)])
    assert ", the lowest being si's 2.7 from a peak of 90.0, which is confirmed" in other


def test_not_learning_is_no_stability() -> None:
    """Frozen after task 1 it forgets nothing, and knows a fifth: it is never said to forget least."""
    frozen = [[0.99] + [0.0] * 4] * 5
    keen = [[0.9 - 0.1 * (k - j) if j <= k else 0.0 for j in range(5)] for k in range(5)]

    def learns(method: str, R: list[list[float]], seed: int) -> Result:
        moved = [[max(0.0, value - 0.01 * seed * (1 + len(method))) for value in row] for row in R]
        return replace(result(method, seed, 0.0), said={}, accuracy=moved, stream={"class_order": list(range(10))})

    text = said([learns(m, R, s) for m, R in (("ewc", frozen), ("er", keen), ("tmln", keen)) for s in range(3)])
    assert "not learned: ewc (19.0 at best, far below the others' " in text
    assert "ewc's" not in text
    assert text.startswith(("er leads", "On split-digits er"))
    dull = [[0.5 if j == k else 0.0 for j in range(5)] for k in range(5)]
    assert said([learns("ewc", dull, s) for s in range(3)]).startswith("No method on split-digits has learned: ewc (")


def test_controls_at_tmlns_rate_are_named_and_no_best_of_two() -> None:
    def rated(method: str, acc: list[float], lr: float, rate: float, momentum: float) -> list[Result]:
        settings = {"step.momentum": momentum}
        return [
            result(method, seed, value, lr=lr, effective_rate=rate, settings=settings) for seed, value in enumerate(acc)
        ]

    text = said(
        rated("tmln", [0.9, 0.92, 0.94], 0.01, 0.1, 0.0),
        rated("naive", [0.2, 0.2, 0.21], 0.01, 0.01, 0.9),
        rated("naive", [0.3, 0.31, 0.3], 0.1, 0.1, 0.0),
    )
    assert text.startswith(
        "tmln leads on split-digits over 2 others with 3 seeds: ACC 92.0 ± 2.0, 61.7 points above naive at"
    )
    assert "; at the rate eta/lambda: ACC of naive 30.3 ± 0.6" in text
    assert "left out" not in text


def test_what_agrees_to_the_last_digit_is_one_method() -> None:
    text = said(runs("tmln", [0.9, 0.8, 0.85]), runs("tmln-static", [0.9, 0.8, 0.85]), runs("er", [0.1, 0.2, 0.15]))
    assert "tmln and tmln-static agree to the last digit and are indistinguishable" in text
    assert "leads" not in text


def test_one_method_alone() -> None:
    assert said(runs("tmln", [0.9, 0.8])).startswith(
        "tmln is the only method on split-digits: ACC 85.0 ± 7.1 (2 seeds)"
    )
    assert "(1 seed);" in said(runs("tmln", [0.9]))
    assert "the least" not in said(runs("tmln", [0.9]))


def test_the_best_of_several_settings_says_so_and_is_held_against_another_method() -> None:
    """On validation data: the one that is best there, not the one that is best on the tests."""
    low, high = {"step.damping": 0.1}, {"step.damping": 0.2}
    text = said(
        validated(runs("tmln", [0.9, 0.91, 0.9], settings=low), 0.7),
        validated(runs("tmln", [0.89, 0.9, 0.89], settings=high), 0.8),
        runs("er", [0.7, 0.72, 0.7]),
    )
    assert text.startswith(
        "tmln (step.damping=0.2, chosen on validation data from 2) leads on split-digits with 3 seeds: ACC 89.3 "
    )
    assert "points above er [" in text
    assert "left out" not in text
    alone = said(validated(runs("tmln", [0.9], settings=low), 0.7), validated(runs("tmln", [0.8], settings=high), 0.6))
    assert alone.startswith("tmln (step.damping=0.1, chosen on validation data from 2) is the only method")


def test_what_was_chosen_on_the_test_data_is_said_and_left_out() -> None:
    best, other = runs("tmln", [0.9, 0.91], 0.05, settings={"a": 1}), runs("tmln", [0.8, 0.83], settings={"a": 2})
    for some in (best, validated(best, 0.9)):  # that all runs but one have validation data is not enough
        text = said(some, other, runs("er", [0.7, 0.72]), runs("naive", [0.5, 0.53]))
        assert "er has the highest ACC, 71.0 ± 1.4, 19.5 points above naive" in text
        assert text.endswith("; left out: tmln (a=1, chosen on the test data from 2) with ACC 90.5.")
    assert said(best, other) == (
        "No method on split-digits was chosen without its test data: tmln (a=1, chosen on the test data from 2) "
        "with ACC 90.5. benchmark.validation=0.1 is to choose by."
    )


def test_nothing_to_say() -> None:
    assert write_summary([]) == "Nothing has finished yet."
    assert said(runs("tmln", [math.nan])) == "No method has an accuracy on split-digits yet."
    assert said(runs("joint", [0.9])) == "No method has an accuracy on split-digits yet."


def test_what_is_missing_is_left_out() -> None:
    (one,) = runs("tmln", [0.9])
    assert (
        said([replace(one, said={"acc": 0.9}, seconds=math.nan)])
        == "tmln is the only method on split-digits: ACC 90.0 (1 seed)."
    )


def test_long_runs_are_told_in_minutes_and_hours() -> None:
    for seconds, text in ((119.94, "119.9 s"), (150.0, "2.5 min"), (9000.0, "2.5 h")):
        (one,) = runs("tmln", [0.9])
        assert f"; {text} a run." in said([replace(one, seconds=seconds)])


# -- in three lines of a phone -----------------------------------------------------------------------------------------


def in_short(*results: list[Result]) -> str:
    return write_headline(group_rows([result for some in results for result in some]))


def test_headlines_by_hand() -> None:
    good, bad = runs("tmln", [0.90, 0.92, 0.94]), runs("er", [0.82, 0.82, 0.82])
    assert in_short(good, bad) == "tmln leads on split-digits with 3 seeds: ACC 92.0 ± 2.0."
    assert in_short(good) == "tmln is the only method on split-digits: ACC 92.0 ± 2.0 (3 seeds)."
    assert in_short(good[:1], bad[:1]) == "On split-digits 1 seed claims nothing; tmln has the highest ACC, 90.0."
    assert (
        in_short(good, runs("er", [0.9, 0.8, 0.95]))
        == "On split-digits tmln and er do not differ significantly (3 seeds)."
    )
    assert write_headline([]) == "Nothing has finished yet."


def test_a_headline_has_room_for_long_names() -> None:
    """A configuration is its method; who does not fit is counted."""
    long = "package.module_of_somebody:AVeryLongNameOfAPart"
    some = [runs(f"{long}{k}", [0.5, 0.6, 0.7 + 0.01 * k]) for k in range(5)]
    moved = [replace(one, benchmark="folder:a-name-that-goes-on, class_order=seed:0") for mine in some for one in mine]
    assert in_short(moved) == (
        "On folder:a-name-that-goes-on, cla… package.module_of_so… and 4 more do not differ significantly (3 seeds)."
    )
    short = [runs(name, [0.5, 0.6, 0.7 + 0.01 * k]) for k, name in enumerate(("er", "si", "mas", "ewc", "lwf", "der"))]
    assert in_short(*short) == "On split-digits der, lwf, ewc, mas and 2 more do not differ significantly (3 seeds)."


# -- where there is nothing to find ------------------------------------------------------------------------------------


def claims(methods: int, seeds: int, draw: random.Random, times: int, test: TestName = "t") -> int:
    """How often results of methods that do not differ are said to have a leader; seeds are harder or easier for all."""
    found = 0
    for _ in range(times):
        hard = [draw.gauss(0.7, 0.03) for _ in range(seeds)]
        some = [
            result(f"m{k}", seed, min(1.0, max(0.0, hard[seed] + draw.gauss(0, 0.02))), draw.gauss(0.2, 0.02))
            for k in range(methods)
            for seed in range(seeds)
        ]
        text = write_summary(group_rows(some), test)
        found += " leads " in text or "is above" in text
    return found


@pytest.mark.slow
def test_comparisons_without_a_difference_lead_in_at_most_one_of_twenty() -> None:
    """From results to the sentence: any method said to lead, or to be above another, is a mistake."""
    draw = random.Random(14)
    shapes = [(2, 3), (2, 5), (3, 3), (3, 5), (4, 5), (5, 3), (6, 10), (8, 5), (8, 3), (10, 5)]
    found = {shape: claims(*shape, draw, times=100 if shape[0] == 2 else 50) for shape in shapes}
    assert sum(found.values()) <= 30, found  # of 600
    # one pair alone is a test at 5% and no less: within what chance does to 200 of them, once in a thousand
    assert 1 <= found[2, 3] + found[2, 5] <= 21, found


@pytest.mark.slow
@pytest.mark.parametrize("test", ["wilcoxon", "bootstrap"])
def test_the_other_tests_keep_the_level_too(test: TestName) -> None:
    draw = random.Random(41)
    found = {shape: claims(*shape, draw, times=40, test=test) for shape in ((2, 3), (2, 7), (3, 9))}
    assert sum(found.values()) <= 10, found  # of 120 at 5%: 6, and 10 once in twenty
    assert found[2, 3] == 0  # three signs are equal one time in four


def test_a_difference_that_is_there_is_found() -> None:
    draw = random.Random(3)
    found = 0
    for _ in range(50):
        some = [
            result(m, s, draw.gauss(mean, 0.01)) for m, mean in (("a", 0.9), ("b", 0.8), ("c", 0.7)) for s in range(5)
        ]
        found += write_summary(group_rows(some)).startswith("a leads on split-digits over 2 others with 5 seeds")
    assert found >= 45, found
