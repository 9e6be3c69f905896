"""What follows from counts: by hand first, then against loops over samples and over steps, and no file breaks it."""

from __future__ import annotations

import base64
import math
import zlib
from typing import Any

import numpy as np
import pytest

from tmln import evaluation_counts
from tmln.metrics import measure

R = [[0.9, 0.0, 0.0], [0.5, 0.8, 0.0], [0.6, 0.4, 0.7]]
WITHIN = {"every": 2, "step": [2, 6, 8, 14], "task": [0, 1, 1, 2], "accuracy": [[0.3], [0.1, 0.2], [0.4, 0.6], [0.7, 0.2, 0.5]]}  # fmt: skip  # noqa: E501


def test_within_tasks_by_hand() -> None:
    means = [0.3, 0.9, 0.15, 0.5, 0.65, 1.4 / 3, 1.7 / 3]
    assert evaluation_counts.anytime_accuracy(R, WITHIN) == pytest.approx(sum(means) / 7)
    # task 1 falls to 0.1 in the midst of task 2, task 2 to 0.2 in the midst of task 3; what was before does not count
    assert evaluation_counts.minimum_accuracy(R, WITHIN) == pytest.approx((0.1 + 0.2) / 2)
    assert evaluation_counts.worst_case_accuracy(R, WITHIN) == pytest.approx(0.7 / 3 + 2 / 3 * 0.15)


def test_one_task_has_no_earlier_ones() -> None:
    within = {"every": 1, "step": [1], "task": [0], "accuracy": [[0.25]]}
    assert math.isnan(evaluation_counts.minimum_accuracy([[0.5]], within))
    assert evaluation_counts.worst_case_accuracy([[0.5]], within) == 0.5
    assert evaluation_counts.anytime_accuracy([[0.5]], within) == 0.375


@pytest.mark.parametrize("seed", range(5))
def test_within_tasks_against_a_loop_over_steps(seed: int) -> None:
    """The papers' definitions word for word, over a table of step times task."""
    draw = np.random.default_rng(seed)
    tasks, length, every = 4, 6, int(draw.integers(1, 5))
    table = draw.random((tasks * length + 1, tasks))  # accuracy on each task after each step
    steps = [n for n in range(1, tasks * length + 1) if n % every == 0 and n % length]
    task_of = [(n - 1) // length for n in range(tasks * length + 1)]
    within = {
        "step": steps,
        "task": [task_of[n] for n in steps],
        "accuracy": [table[n, : task_of[n] + 1].tolist() for n in steps],
    }
    matrix = table[length::length]
    tested = sorted({*steps, *range(length, tasks * length + 1, length)})
    lowest = [min(table[n, j] for n in tested if n > (j + 1) * length) for j in range(tasks - 1)]
    assert evaluation_counts.minimum_accuracy(matrix, within) == pytest.approx(sum(lowest) / (tasks - 1))
    by_time = [np.mean([table[n, j] for j in range(task_of[n] + 1)]) for n in tested]
    assert evaluation_counts.anytime_accuracy(matrix, within) == pytest.approx(float(np.mean(by_time)))


def test_classes_by_hand() -> None:
    counts = [[8, 2, 0, 0], [1, 3, 0, 4], [0, 0, 0, 0], [0, 0, 0, 5]]
    found = evaluation_counts.class_accuracies(counts)
    assert found[[0, 1, 3]].tolist() == [0.8, 0.375, 1.0]
    assert math.isnan(found[2])
    assert evaluation_counts.worst_class_accuracy(["not the last", evaluation_counts.pack_confusion(counts)]) == 0.375
    assert math.isnan(evaluation_counts.worst_class_accuracy([evaluation_counts.pack_confusion(np.zeros((2, 2)))]))


def test_confusions_survive_their_text() -> None:
    counts = np.random.default_rng(0).integers(0, 2**32, (7, 7))
    assert (evaluation_counts.unpack_confusion(evaluation_counts.pack_confusion(counts)) == counts).all()
    sure = np.diag(np.full(100, 100))
    assert len(evaluation_counts.pack_confusion(sure)) < 400
    with pytest.raises(ValueError, match="square"):
        evaluation_counts.pack_confusion([[1, 2]])


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "?",
        "AAAA",
        7,
        None,
        packed(b""),
        packed(b"123"),
        packed(b"0" * 8),
        packed(b"0" * (evaluation_counts.MOST_BYTES + 1)),
    ],
    ids=range(9),
)
def test_what_is_no_confusion_matrix_is_said(text: Any) -> None:
    with pytest.raises(ValueError, match="no confusion matrix"):
        evaluation_counts.unpack_confusion(text)


def test_calibration_by_hand() -> None:
    """Two bins: 4 samples at 0.9 of which 3 are right, 6 at 0.5 of which 3 are: 0.4 * 0.15 + 0.6 * 0."""
    rows: dict[str, list[list[float]]] = {
        "count": [[1, 0], [4, 6]],
        "right": [[0, 0], [3, 3]],
        "confidence": [[1, 0], [3.6, 3.0]],
    }
    assert evaluation_counts.calibration_error(rows) == pytest.approx(0.06)
    assert math.isnan(evaluation_counts.calibration_error({key: [[0, 0]] for key in evaluation_counts.CALIBRATION}))


def test_metrics_are_there_where_something_was_counted() -> None:
    new = {"aaa", "min_acc", "wc_acc", "worst_class", "ece", "dormant", "feature_rank"}
    plain = measure({"accuracy": R})
    assert not new & plain.keys()
    assert plain["worst_task"] == 0.4
    counted = {
        "within": WITHIN,
        "confusion": [evaluation_counts.pack_confusion([[1, 1], [0, 4]])] * 3,
        "calibration": {key: [[1.0]] * 3 for key in evaluation_counts.CALIBRATION},
        "dormant_units": [0.5, 0.5, 0.25],
        "feature_rank": [1.0, 2.0, 3.5],
    }
    found = measure({"accuracy": R, **counted})
    assert {name: found[name] for name in new - {"aaa", "min_acc", "wc_acc"}} == {
        "worst_class": 0.5, "ece": 0.0, "dormant": 0.25, "feature_rank": 3.5
    }  # fmt: skip
    assert not new & measure({"accuracy": R[:1], **counted}).keys()  # it did not come to its end


ONLINE = {"task": [0, 0, 1], "samples": [4, 2, 4], "right": [3, 0, 2]}


def test_accuracies_before_training_by_hand() -> None:
    assert evaluation_counts.online_accuracies(ONLINE) == [3 / 6, 2 / 4]
    assert evaluation_counts.online_accuracy(ONLINE) == 5 / 10
    assert measure({"accuracy": R, "online": ONLINE})["online"] == 0.5


def test_a_window_has_a_hundredth_of_a_task() -> None:
    """Tasks of 250 samples in batches of 1: a window is complete with 3 samples, and never of two tasks."""
    online: dict[str, Any] = {}
    for task in (0, 1):
        for number in range(250):
            online = evaluation_counts.add_online(online, task, 1, number % 2, 250)
    assert online["samples"] == [*[3] * 83, 1] * 2
    assert online["task"] == [0] * 84 + [1] * 84
    assert evaluation_counts.online_accuracies(online) == [0.5, 0.5]


@pytest.mark.parametrize(
    ("observed", "said"),
    [
        ({}, ""),
        ({"within": WITHIN, "confusion": [evaluation_counts.pack_confusion([[1]])]}, ""),
        ({"confusion": ["nonsense"]}, "no confusion matrix"),
        ({"confusion": [3]}, "no confusion matrix"),
        ({"calibration": {"count": [[1]]}}, "calibration"),
        ({"calibration": {"count": [[1]], "right": [[1, 2]], "confidence": [[1]]}}, "calibration"),
        ({"calibration": {"count": [], "right": [], "confidence": []}}, "calibration"),
        ({"online": ONLINE}, ""),
        ({"online": {**ONLINE, "right": [3]}}, "three rows of numbers"),
        ({"online": {"task": [0]}}, "three rows of numbers"),
        ({"online": {**ONLINE, "right": [5, 1, 2]}}, "not of its tasks"),
        ({"online": {**ONLINE, "task": [0, 1, 9]}}, "not of its tasks"),
        ({"online": {**ONLINE, "samples": [4, 0, 4], "right": [3, 0, 2]}}, "not of its tasks"),
        ({"within": {"every": 3}}, "within tasks"),
        ({"within": {**WITHIN, "accuracy": [[2.0]]}}, "no rows of fractions"),
        ({"within": {**WITHIN, "task": [0, 1, 1]}}, "no rows of fractions"),
        ({"within": {**WITHIN, "task": [0, 1, 1, 9]}}, "not of the tasks"),
        ({"within": {**WITHIN, "task": [0, 1, 1, "x"]}}, "not of the tasks"),
    ],
)
def test_what_files_of_others_say(observed: dict[str, Any], said: str) -> None:
    found = evaluation_counts.complaint_about(observed, len(R))
    assert said in found if said else not found
