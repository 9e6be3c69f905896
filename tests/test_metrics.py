"""Metrics on the worked matrix, their identities, and what is undefined."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tmln import metrics
from tmln.evaluation_counts import pack_confusion

R = [[0.80, 0.05, 0.30, 0.0], [0.55, 0.75, 0.10, 0.0], [0.85, 0.40, 0.25, 0.02], [0.30, 0.45, 0.35, 0.65]]
REFERENCE = [0.82, 0.80, 0.72, 0.70]


def test_the_worked_matrix() -> None:
    assert metrics.average_accuracy(R) == pytest.approx(0.4375)
    assert metrics.forgetting(R) == pytest.approx(0.2666667, abs=1e-7)
    assert metrics.backward_transfer(R) == pytest.approx(-0.2333333, abs=1e-7)
    assert metrics.forward_transfer(R, [0.10, 0.12, 0.08, 0.11]) == pytest.approx(-0.0466667, abs=1e-7)
    assert metrics.intransigence_by_task(R, REFERENCE) == pytest.approx([0.02, 0.05, 0.47, 0.05])
    assert metrics.intransigence(R, REFERENCE, over="all") == pytest.approx(0.1475)
    assert metrics.intransigence(R, REFERENCE) == pytest.approx((0.05 + 0.47 + 0.05) / 3)
    assert metrics.intransigence(R, REFERENCE, over="last") == pytest.approx(0.05)
    assert metrics.intransigence(R, [*REFERENCE[:-1], 0.9], over="last") == pytest.approx(0.25)
    assert metrics.learning_accuracy(R) == pytest.approx((0.80 + 0.75 + 0.25 + 0.65) / 4)
    assert metrics.average_anytime_accuracy(R) == pytest.approx((0.8 + 0.65 + 0.5 + 0.4375) / 4)


def test_a_peak_in_the_middle() -> None:
    """A task that goes .7, .8, .6, .5: transfer counts from the first value, forgetting from the best."""
    one = [[0.7, 0, 0, 0], [0.8, 0, 0, 0], [0.6, 0, 0, 0], [0.5, 0, 0, 0]]
    assert metrics.backward_transfer(one) * 3 == pytest.approx(-0.2)
    assert metrics.forgetting(one) * 3 == pytest.approx(0.3)
    assert metrics.peak(one) * 3 == pytest.approx(0.8)


@given(st.integers(2, 6), st.integers(0, 10**6))
def test_identity_when_peaks_are_on_the_diagonal(tasks: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = np.tril(rng.random((tasks, tasks)))
    np.fill_diagonal(matrix, 1.0 + rng.random(tasks))
    left = metrics.learning_accuracy(matrix)
    right = metrics.average_accuracy(matrix) + (tasks - 1) / tasks * metrics.forgetting(matrix)
    assert left == pytest.approx(right)
    assert metrics.forgetting(matrix) == pytest.approx(-metrics.backward_transfer(matrix))


def test_one_task_leaves_most_undefined() -> None:
    assert metrics.average_accuracy([[0.9]]) == 0.9
    assert metrics.intransigence([[0.9]], [1.0], over="all") == pytest.approx(0.1)
    for value in (
        metrics.forgetting([[0.9]]),
        metrics.peak([[0.9]]),
        metrics.backward_transfer([[0.9]]),
        metrics.forward_transfer([[0.9]], [0.1]),
        metrics.intransigence([[0.9]], [1.0]),
    ):
        assert math.isnan(value)


def test_what_needs_a_reference_is_there_only_with_one() -> None:
    assert "int" not in metrics.measure({"accuracy": R})
    assert metrics.measure({"accuracy": R, "reference_accuracy": REFERENCE}) == pytest.approx(
        {
            "acc": 0.4375,
            "fm": 0.8 / 3,
            "peak": 1.9 / 3,
            "bwt": -0.7 / 3,
            "learning_accuracy": 0.6125,
            "average_anytime_accuracy": 0.596875,
            "int": 0.19,
            "int_all": 0.1475,
            "int_last": 0.05,
            "worst_task": min(R[-1]),
        }
    )


def test_every_metric_is_computed_from_what_it_needs_and_nothing_else() -> None:
    two = [[0.9, 0.2], [0.6, 0.8]]
    observed = {
        "accuracy": two,
        "masked_accuracy": [[1.0, 0.5], [0.75, 0.25]],
        "validation_accuracy": [[0.8, 0.1], [0.5, 0.7]],
        "baseline": [0.1, 0.15],
        "reference_accuracy": [0.9, 1.0],
        "extra_accuracy": {"official": [0.5, 0.4], "cut short": [0.5]},
        "train_accuracy": 0.99,
        "online": {"task": [0, 1], "samples": [4, 6], "right": [1, 3]},
        "within": {"every": 5, "step": [5], "task": [1], "accuracy": [[0.3, 0.4]]},
        "confusion": [pack_confusion([[3, 1], [0, 4]])] * 2,
        "calibration": {"count": [[4], [8]], "right": [[3], [7]], "confidence": [[3.5], [6.0]]},
        "dormant_units": [0.0, 0.125],
        "feature_rank": [2.0, 1.5],
        "effective_rate": 0.1,
        "seconds": 3,
        "peak_memory_bytes": 3 * 2**19,
    }
    found = metrics.measure(observed)
    single = {"fwt": 0.05, "acc_task_masked": 0.5, "acc_official": 0.4, "acc_train": 0.99, "rate": 0.1, "seconds": 3.0}
    single |= {"val_acc": 0.6, "val_fm": 0.3, "val_learning_accuracy": 0.75}
    single |= {"aaa": (0.9 + 0.35 + 0.7) / 3, "min_acc": 0.3, "wc_acc": 0.55, "worst_task": 0.6, "worst_class": 0.75}
    single |= {"online": 0.4}
    single |= {"ece": 0.125, "dormant": 0.125, "feature_rank": 1.5, "memory": 1.5}
    assert {name: found[name] for name in single} == pytest.approx(single)
    assert {metrics.row_of(name) for name in found} == set(metrics.METRICS)
    for need in observed:
        left = metrics.measure({key: value for key, value in observed.items() if key != need})
        gone = {name for name in found if need in metrics.metric_of(name).needs}
        whole = {
            name for name in found if need == "accuracy" and name not in ("acc_train", "rate", "seconds", "memory")
        }
        assert left == {name: value for name, value in found.items() if name not in gone | whole}


def test_a_run_that_did_not_come_to_its_end_has_no_metrics() -> None:
    cut = {"accuracy": [[0.5, 0.0]], "masked_accuracy": [[0.5, 0.5]], "baseline": [0.1, 0.1], "seconds": math.nan}
    assert metrics.measure({**cut, "extra_accuracy": {"official": [0.5]}, "train_accuracy": None}) == {}
    assert metrics.measure({"accuracy": []}) == metrics.measure({}) == {}


def test_every_metric_has_its_range() -> None:
    assert {name: metric.within for name, metric in metrics.METRICS.items()} == {
        **dict.fromkeys(("fm", "int", "int_all", "int_last", "bwt", "fwt", "val_fm"), (-1.0, 1.0)),
        **dict.fromkeys(
            (
                "acc",
                "peak",
                "acc_*",
                "learning_accuracy",
                "average_anytime_accuracy",
                "acc_task_masked",
                "acc_train",
                "val_acc",
                "val_learning_accuracy",
                "aaa",
                "min_acc",
                "wc_acc",
                "worst_task",
                "worst_class",
                "ece",
                "online",
                "dormant",
            ),
            (0.0, 1.0),
        ),
        **dict.fromkeys(("feature_rank", "rate", "seconds", "memory"), (0.0, math.inf)),
    }
    assert metrics.metric_of("acc_official").within == (0.0, 1.0)
    assert metrics.metric_of("made up").within == (-math.inf, math.inf)  # nothing is known of it


def test_headings_say_unit_and_direction() -> None:
    """And where each is a column without being asked for."""
    assert {name: (metric.title, metric.shown) for name, metric in metrics.METRICS.items()} == {
        "acc": ("ACC % ↑", "always"),
        "fm": ("FM % ↓", "always"),
        "peak": ("peak % ↑", "always"),
        "int": ("INT % ↓", "always"),
        "bwt": ("BWT % ↑", ""),
        "fwt": ("FWT % ↑", ""),
        "learning_accuracy": ("LA % ↑", ""),
        "average_anytime_accuracy": ("AAA % ↑", ""),
        "aaa": ("AAA steps % ↑", "there"),
        "min_acc": ("min-ACC % ↑", "there"),
        "wc_acc": ("WC-ACC % ↑", ""),
        "worst_task": ("worst task % ↑", ""),
        "worst_class": ("worst class % ↑", ""),
        "ece": ("ECE % ↓", ""),
        "acc_*": ("ACC % ↑", "there"),
        "val_acc": ("val ACC % ↑", "there"),
        "val_fm": ("val FM % ↓", ""),
        "val_learning_accuracy": ("val LA % ↑", ""),
        "acc_task_masked": ("masked ACC % ↑", ""),
        "acc_train": ("train ACC % ↑", "there"),
        "online": ("online ACC % ↑", "there"),
        "int_all": ("INT all % ↓", ""),
        "int_last": ("INT last % ↓", ""),
        "dormant": ("dormant % ↓", ""),
        "feature_rank": ("eff. rank", ""),
        "rate": ("rate", "differs"),
        "seconds": ("seconds", "always"),
        "memory": ("MiB", ""),
    }
    assert all(metric.about and metric.percent == metric.is_ranked for metric in metrics.METRICS.values())
    less = {name for name, metric in metrics.METRICS.items() if not metric.more_is_better}
    assert less == {"fm", "int", "int_all", "int_last", "val_fm", "ece", "dormant", "rate", "seconds", "memory"}
    assert [metrics.METRICS[name].digits for name in ("rate", "seconds")] == [".3g", ".1f"]


def test_a_metric_of_a_family_and_one_of_nobody() -> None:
    assert metrics.metric_of("acc_official").title == "ACC official % ↑"
    assert metrics.row_of("acc_official") == "acc_*"
    unknown = metrics.metric_of("account")
    assert metrics.row_of("account") is None
    assert (unknown.title, unknown.digits, unknown.is_ranked) == (
        "account",
        ".3g",
        False,
    )  # which way it is better is not known


def test_columns_are_in_the_order_of_the_table() -> None:
    names = ["seconds", "made up", "acc_b", "fm", "acc_train", "acc_a", "acc"]
    assert metrics.in_order(names) == ["acc", "fm", "acc_a", "acc_b", "acc_train", "made up", "seconds"]


def test_two_tasks_are_enough_for_all() -> None:
    two = [[0.9, 0.2], [0.6, 0.8]]
    assert metrics.forgetting(two) == pytest.approx(0.3)
    assert metrics.backward_transfer(two) == pytest.approx(-0.3)
    assert metrics.forward_transfer(two, [0.5, 0.1]) == pytest.approx(0.1)
    assert metrics.intransigence(two, [1.0, 0.9]) == pytest.approx(0.1)


def test_small_floats_are_averaged_in_double_precision() -> None:
    half = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 0.0]], dtype=np.float16)
    assert metrics.average_accuracy(half) == pytest.approx(2 / 3, abs=1e-12)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="square"):
        metrics.average_accuracy([[0.1, 0.2]])
    for shape in [(0, 0), (3,), (2, 2, 2), (2, 3)]:
        with pytest.raises(ValueError, match="square"):
            metrics.learning_accuracy(np.zeros(shape))
    with pytest.raises(ValueError, match="4 tasks"):
        metrics.intransigence(R, [0.5])
    with pytest.raises(ValueError, match="4 tasks"):
        metrics.forward_transfer(R, [0.5])
    with pytest.raises(ValueError, match="over must be"):
        metrics.intransigence(R, REFERENCE, over="most")  # type: ignore[arg-type]
