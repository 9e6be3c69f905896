"""What a table says in one sentence, in every case that can arise."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from tests.results.made import result
from tmln.lab.result import Result
from tmln.results.rows import rows_of
from tmln.results.sentence import sentence


def runs(
    method: str, accuracies: list[float], fm: float = 0.2, first: int = 0, settings: dict[str, Any] | None = None
) -> list[Result]:
    return [result(method, first + seed, acc, fm, settings=settings or {}) for seed, acc in enumerate(accuracies)]


def validated(some: list[Result], accuracy: float) -> list[Result]:
    return [replace(one, said={**one.said, "val_acc": accuracy}) for one in some]


def said(*results: list[Result]) -> str:
    return sentence(rows_of([result for some in results for result in some]))


def test_a_winner_with_its_margin_and_test() -> None:
    # differences 0.08, 0.10, 0.12: t = 0.1 / (0.02 / sqrt 3) = 8.660, p = 0.013 with 2 degrees of freedom
    text = said(runs("tmln", [0.90, 0.92, 0.94], 0.05), runs("er", [0.82, 0.82, 0.82]), runs("joint", [0.99] * 3))
    assert text == (
        "tmln is best on split-digits: ACC 92.0 ± 2.0, 10.0 points above er, paired p = 0.013; "
        "forgetting 5.0, the least; 1.0 s a run (er 1.0 s)."
    )


def test_a_lead_that_the_seeds_do_not_confirm() -> None:
    text = said(runs("tmln", [0.90, 0.80]), runs("er", [0.80, 0.88], 0.1))
    assert text.startswith(
        "tmln leads on split-digits: ACC 85.0 ± 7.1, 1.0 points above er, which 2 seeds do not confirm"
    )
    assert "forgetting 20.0, where er has the least, 10.0" in text


def test_one_seed_other_seeds_and_equal_margins_have_no_test() -> None:
    assert "which one shared seed cannot confirm" in said(runs("tmln", [0.9]), runs("er", [0.8]))
    assert "which no shared seed can confirm" in said(runs("tmln", [0.9, 0.91]), runs("er", [0.8, 0.82], first=5))
    assert "by the same on every seed" in said(runs("tmln", [0.9, 0.8]), runs("er", [0.8, 0.7]))


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
        validated(runs("tmln", [0.9, 0.91], settings=low), 0.7),
        validated(runs("tmln", [0.89, 0.9], settings=high), 0.8),
        runs("er", [0.7, 0.72]),
    )
    assert text.startswith(
        "tmln (step.damping=0.2, chosen on validation data from 2) is best on split-digits: ACC 89.5 "
    )
    assert "points above er, " in text
    assert "left out" not in text
    alone = said(validated(runs("tmln", [0.9], settings=low), 0.7), validated(runs("tmln", [0.8], settings=high), 0.6))
    assert alone.startswith("tmln (step.damping=0.1, chosen on validation data from 2) is the only method")


def test_what_was_chosen_on_the_test_data_is_said_and_left_out() -> None:
    best, other = runs("tmln", [0.9, 0.91], 0.05, settings={"a": 1}), runs("tmln", [0.8, 0.83], settings={"a": 2})
    for some in (best, validated(best, 0.9)):  # that all runs but one have validation data is not enough
        text = said(some, other, runs("er", [0.7, 0.72]), runs("naive", [0.5, 0.53]))
        assert text.startswith("er is best on split-digits: ACC 71.0 ± 1.4, 19.5 points above naive")
        assert "forgetting 20.0, the least" in text
        assert text.endswith("; left out: tmln (a=1, chosen on the test data from 2) with ACC 90.5.")
    assert said(best, other) == (
        "No method on split-digits was chosen without its test data: tmln (a=1, chosen on the test data from 2) "
        "with ACC 90.5. benchmark.validation=0.1 is to choose by."
    )


def test_nothing_to_say() -> None:
    assert sentence([]) == "Nothing has finished yet."
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
