"""Metrics as one table of pure functions of what a run observed.

R[k][j] is the accuracy on task j after learning task k. Accuracies are fractions. What is undefined
for a single task (forgetting, transfer) is NaN, not 0. A result stores observations, and metrics
are computed when it is read, so a new row applies to old runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tmln.evaluation_counts import (
    anytime_accuracy,
    calibration_error,
    minimum_accuracy,
    online_accuracy,
    worst_case_accuracy,
    worst_class_accuracy,
)

Range = tuple[float, float]  # what a quantity can be, ends included
ANY: Range = (-math.inf, math.inf)
POSITIVE: Range = (0.0, math.inf)
SHARE: Range = (0.0, 1.0)
CHANGE: Range = (-1.0, 1.0)  # the difference of two shares


def _matrix(R: ArrayLike) -> NDArray[np.float64]:
    matrix = np.asarray(R, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        raise ValueError(f"an accuracy matrix is square, a row after each task; got shape {matrix.shape}")
    return matrix


def average_accuracy(R: ArrayLike) -> float:
    """Compute ACC (Lopez-Paz and Ranzato 2017), the mean of the last row."""
    return float(_matrix(R)[-1].mean())


def forgetting(R: ArrayLike) -> float:
    """Compute FM (Chaudhry et al. 2018), the mean drop from each earlier task's best.

    The best is over all rows but the last, also those before the task was learned; it may be below
    the last value, so that forgetting can be negative.
    """
    matrix = _matrix(R)
    if len(matrix) < 2:
        return float("nan")
    return float((matrix[:-1, :-1].max(axis=0) - matrix[-1, :-1]).mean())


def peak(R: ArrayLike) -> float:
    """Compute the mean best accuracy of tasks 1..K-1 before the last task.

    FM = peak - the same tasks' last row. A method that learned nothing forgets nothing.
    """
    matrix = _matrix(R)
    return float(matrix[:-1, :-1].max(axis=0).mean()) if len(matrix) > 1 else float("nan")


def intransigence_by_task(R: ArrayLike, reference: Sequence[float]) -> NDArray[np.float64]:
    """Compute I_k = a*_k - R[k][k], a*_k being a reference's accuracy on task k."""
    diagonal = _matrix(R).diagonal()
    given = np.asarray(reference, dtype=np.float64)
    if given.shape != diagonal.shape:
        raise ValueError(f"the reference needs one accuracy a task: {len(diagonal)} tasks, got shape {given.shape}")
    return np.asarray(given - diagonal)


def intransigence(R: ArrayLike, reference: Sequence[float], over: Literal["from2", "all", "last"] = "from2") -> float:
    """Compute INT, the mean of I_k over tasks 2..K (default), all, or the last."""
    by_task = intransigence_by_task(R, reference)
    if over == "all":
        return float(by_task.mean())
    if over == "last":
        return float(by_task[-1])
    if over != "from2":
        raise ValueError(f"over must be 'from2', 'all' or 'last', got {over!r}")
    return float(by_task[1:].mean()) if len(by_task) > 1 else float("nan")


def backward_transfer(R: ArrayLike) -> float:
    """Compute BWT, the mean change of earlier tasks by later ones; negative is forgetting."""
    matrix = _matrix(R)
    if len(matrix) < 2:
        return float("nan")
    return float((matrix[-1] - matrix.diagonal())[:-1].mean())


def forward_transfer(R: ArrayLike, baseline: Sequence[float]) -> float:
    """Compute FWT, accuracy above ``baseline`` just before each task is learned."""
    matrix = _matrix(R)
    if len(baseline) != len(matrix):
        raise ValueError(f"the baseline needs one accuracy a task: {len(matrix)} tasks, got {len(baseline)}")
    if len(matrix) < 2:
        return float("nan")
    before = matrix.diagonal(offset=1)
    return float((before - np.asarray(baseline[1:])).mean())


def learning_accuracy(R: ArrayLike) -> float:
    """Compute the mean of the diagonal: accuracy of each task right after learning it."""
    return float(_matrix(R).diagonal().mean())


def average_anytime_accuracy(R: ArrayLike) -> float:
    """Compute the mean over time of the average accuracy on the tasks so far."""
    matrix = _matrix(R)
    return float(np.mean([matrix[k, : k + 1].mean() for k in range(len(matrix))]))


def worst_task_accuracy(R: ArrayLike) -> float:
    """Return the lowest final accuracy of a task."""
    return float(_matrix(R)[-1].min())


def last_value(values: Sequence[float]) -> float:
    """Return the last value."""
    return float(values[-1])


def as_observed(value: float) -> float:
    """Return the observed value."""
    return float(value)


def mebibytes(count: float) -> float:
    """Convert bytes to MiB."""
    return count / 2**20


@dataclass(frozen=True)
class Metric:
    """One row of the table.

    ``needs`` names the observations that ``compute`` takes: ``accuracy``, ``masked_accuracy``,
    ``validation_accuracy``, ``baseline``, ``reference_accuracy`` (a*_k), ``extra_accuracy``,
    ``train_accuracy``, ``confusion``, ``calibration``, ``within``, ``online``, ``dormant_units``,
    ``feature_rank``, ``effective_rate``, ``seconds``, ``peak_memory_bytes``. The unit ``%`` marks
    fractions; ``digits`` formats other numbers. ``shown`` says when it is a column by default:
    always, where it exists, or where rows differ. The best value is marked if ``is_ranked``.
    """

    heading: str
    about: str
    compute: Callable[..., float]
    needs: tuple[str, ...] = ("accuracy",)
    more_is_better: bool = True
    within: Range = SHARE
    unit: str = "%"
    digits: str = ".1f"
    shown: Literal["always", "there", "differs", ""] = ""
    is_ranked: bool = True

    @property
    def percent(self) -> bool:
        """Return whether it is a fraction, shown times 100."""
        return self.unit == "%"

    @property
    def against_reference(self) -> bool:
        """Return whether it needs the run's reference."""
        return "reference_accuracy" in self.needs

    @property
    def title(self) -> str:
        """Return ``ACC % ↑``; the arrow says what is better."""
        arrow = ("↑" if self.more_is_better else "↓") if self.is_ranked else ""
        return " ".join(word for word in (self.heading, self.unit, arrow) if word)


_loss = partial(Metric, more_is_better=False, within=CHANGE)
_cost = partial(Metric, compute=as_observed, more_is_better=False, within=POSITIVE, unit="", is_ranked=False)
_REFERENCE = ("accuracy", "reference_accuracy")
_WITHIN = ("accuracy", "within")

# In the order of columns. A name that ends in * is a family: one for each key of what it needs.
METRICS: dict[str, Metric] = {
    "acc": Metric("ACC", "accuracy over all tasks at the end", average_accuracy, shown="always"),
    "fm": _loss("FM", "forgetting: how far tasks fell from their best", forgetting, shown="always"),
    "peak": Metric("peak", "the accuracy that FM falls from: earlier tasks at their best", peak, shown="always"),
    "int": _loss(
        "INT", "intransigence: how far new tasks stay behind the reference", intransigence, _REFERENCE, shown="always"
    ),
    "bwt": Metric("BWT", "backward transfer: what later tasks did to earlier ones", backward_transfer, within=CHANGE),
    "fwt": Metric(
        "FWT",
        "forward transfer: what earlier tasks gave to later ones",
        forward_transfer,
        ("accuracy", "baseline"),
        within=CHANGE,
    ),
    "learning_accuracy": Metric("LA", "accuracy on each task when it had just been learned", learning_accuracy),
    "average_anytime_accuracy": Metric(
        "AAA", "accuracy on the tasks seen so far, averaged over time", average_anytime_accuracy
    ),
    "aaa": Metric(
        "AAA steps",
        "accuracy on the tasks seen so far, averaged over tests every few steps",
        anytime_accuracy,
        _WITHIN,
        shown="there",
    ),
    "min_acc": Metric(
        "min-ACC",
        "the lowest accuracy that earlier tasks fell to at any step after they were learned",
        minimum_accuracy,
        _WITHIN,
        shown="there",
    ),
    "wc_acc": Metric(
        "WC-ACC", "worst case: the last task at the end, and min-ACC of those before", worst_case_accuracy, _WITHIN
    ),
    "worst_task": Metric("worst task", "accuracy on the task that is known least at the end", worst_task_accuracy),
    "worst_class": Metric(
        "worst class", "accuracy on the class that is known least at the end", worst_class_accuracy, ("confusion",)
    ),
    "ece": _loss(
        "ECE",
        "calibration error: how far confidence is from accuracy at the end, in 15 bins",
        calibration_error,
        ("calibration",),
        within=SHARE,
    ),
    "acc_*": Metric("ACC", "accuracy on an extra test set at the end", last_value, ("extra_accuracy",), shown="there"),
    "val_acc": Metric(
        "val ACC",
        "accuracy on the validation split of all tasks at the end",
        average_accuracy,
        ("validation_accuracy",),
        shown="there",
    ),
    "val_fm": _loss("val FM", "forgetting on the validation split", forgetting, ("validation_accuracy",)),
    "val_learning_accuracy": Metric(
        "val LA",
        "accuracy on the validation split of each task when it had just been learned",
        learning_accuracy,
        ("validation_accuracy",),
    ),
    "acc_task_masked": Metric(
        "masked ACC", "accuracy when the task is told at test time", average_accuracy, ("masked_accuracy",)
    ),
    "acc_train": Metric(
        "train ACC",
        "accuracy on the training data of all tasks at the end",
        as_observed,
        ("train_accuracy",),
        shown="there",
    ),
    "online": Metric(
        "online ACC",
        "test-then-train: accuracy on each batch of a task's first epoch before it is trained on",
        online_accuracy,
        ("online",),
        shown="there",
    ),
    "int_all": _loss(
        "INT all", "intransigence, the first task included", partial(intransigence, over="all"), _REFERENCE
    ),
    "int_last": _loss(
        "INT last", "intransigence of the last task alone", partial(intransigence, over="last"), _REFERENCE
    ),
    "dormant": _loss(
        "dormant", "share of units that are all but silent at the end", last_value, ("dormant_units",), within=SHARE
    ),
    "feature_rank": Metric(
        "eff. rank",
        "effective rank of the features at the end",
        last_value,
        ("feature_rank",),
        within=POSITIVE,
        unit="",
        is_ranked=False,
    ),
    "rate": _cost(
        "rate",
        "eta/(lambda (1 - momentum)): the learning rate without curvature, at the start",
        needs=("effective_rate",),
        digits=".3g",
        shown="differs",
    ),
    "seconds": _cost("seconds", "the whole run", needs=("seconds",), shown="always"),
    "memory": _cost("MiB", "peak memory of the run", compute=mebibytes, needs=("peak_memory_bytes",)),
}


def metric_of(name: str) -> Metric:
    """Return the row of a metric or its family; unknown metrics are shown as they are."""
    if name in METRICS:
        return METRICS[name]
    family = row_of(name)
    if family is None:
        return Metric(name, "", as_observed, (), within=ANY, unit="", digits=".3g", is_ranked=False)
    return replace(METRICS[family], heading=f"{METRICS[family].heading} {name.removeprefix(family[:-1])}")


def row_of(name: str) -> str | None:
    """Return the name of a metric's row: its own, or its family's."""
    families = (row for row in METRICS if row.endswith("*") and name.startswith(row[:-1]))
    return name if name in METRICS else next(families, None)


def in_order(names: Iterable[str]) -> list[str]:
    """Sort metrics as in the table; unknown ones come before those that are not ranked."""
    rows = list(METRICS)
    end = next((k for k, row in enumerate(rows) if not METRICS[row].is_ranked), len(rows))

    def place(name: str) -> tuple[float, str]:
        row = row_of(name)
        return (end - 0.5 if row is None else rows.index(row), name)

    return sorted(names, key=place)


def measure(observed: Mapping[str, Any]) -> dict[str, float]:
    """Return every metric whose observations exist, by name.

    >>> measure({"accuracy": [[0.5, 0.0], [0.25, 0.75]]})["fm"]
    0.25
    """
    matrix = observed.get("accuracy") or ()
    tasks = len(matrix) if all(len(row) == len(matrix) for row in matrix) else 0
    found: dict[str, float] = {}
    for name, metric in METRICS.items():
        given = [observed.get(need) for need in metric.needs]
        if name.endswith("*"):
            members = (given[0] or {}).items()
            found |= {name[:-1] + kind: metric.compute(values) for kind, values in members if _there(values, tasks)}
        elif all(_there(value, tasks) for value in given):
            found[name] = metric.compute(*given)
    return found


def _there(value: Any, tasks: int) -> bool:
    """Return whether an observation is complete.

    It is a number, one number per task, or a row per task: an unfinished run has fewer. A count of
    nothing was never taken; counts by kind (``within``, ``calibration``) need only one entry.
    """
    if isinstance(value, int):
        return value > 0
    if isinstance(value, float):
        return not math.isnan(value)
    if isinstance(value, Mapping):
        return bool(value) and tasks > 0
    if not value or len(value) != tasks:
        return False
    return all(len(row) == tasks for row in value if isinstance(row, (list, tuple)))
