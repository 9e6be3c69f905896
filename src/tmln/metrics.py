"""How well it went: one table of metrics, each a pure function of what a run observed, with how it is shown.

R[k][j] is the accuracy on task j after learning task k. Accuracies are fractions. What is undefined for a single task
(forgetting, transfer) is NaN, not 0. A result stores what was observed; metrics are computed when it is read, so that a
new row of the table is there for older runs, too.
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
    """ACC (Lopez-Paz and Ranzato 2017): the mean of the last row."""
    return float(_matrix(R)[-1].mean())


def forgetting(R: ArrayLike) -> float:
    """FM (Chaudhry et al. 2018): how far each earlier task has fallen from its best before the last task.

    The best is over all rows but the last, also those before the task was learned; it may be below the last value,
    so that forgetting can be negative.
    """
    matrix = _matrix(R)
    if len(matrix) < 2:
        return float("nan")
    return float((matrix[:-1, :-1].max(axis=0) - matrix[-1, :-1]).mean())


def peak(R: ArrayLike) -> float:
    """What FM falls from: the mean over tasks 1..K-1 of their best accuracy before the last task.

    A method that learned nothing has nothing to forget: FM is read beside this. FM = peak - the same tasks' last row.
    """
    matrix = _matrix(R)
    return float(matrix[:-1, :-1].max(axis=0).mean()) if len(matrix) > 1 else float("nan")


def intransigence_by_task(R: ArrayLike, reference: Sequence[float]) -> NDArray[np.float64]:
    """I_k = a*_k - R[k][k], with a*_k the accuracy on task k of a reference trained on tasks 1..k together."""
    diagonal = _matrix(R).diagonal()
    given = np.asarray(reference, dtype=np.float64)
    if given.shape != diagonal.shape:
        raise ValueError(f"the reference needs one accuracy a task: {len(diagonal)} tasks, got shape {given.shape}")
    return np.asarray(given - diagonal)


def intransigence(R: ArrayLike, reference: Sequence[float], over: Literal["from2", "all", "last"] = "from2") -> float:
    """INT: the mean of I_k over tasks 2..K (default), over all, or the last one alone."""
    by_task = intransigence_by_task(R, reference)
    if over == "all":
        return float(by_task.mean())
    if over == "last":
        return float(by_task[-1])
    if over != "from2":
        raise ValueError(f"over must be 'from2', 'all' or 'last', got {over!r}")
    return float(by_task[1:].mean()) if len(by_task) > 1 else float("nan")


def backward_transfer(R: ArrayLike) -> float:
    """BWT: what learning later tasks did to each earlier one; negative is forgetting."""
    matrix = _matrix(R)
    if len(matrix) < 2:
        return float("nan")
    return float((matrix[-1] - matrix.diagonal())[:-1].mean())


def forward_transfer(R: ArrayLike, baseline: Sequence[float]) -> float:
    """FWT: how much better than ``baseline`` (the untrained model) a task is just before it is learned."""
    matrix = _matrix(R)
    if len(baseline) != len(matrix):
        raise ValueError(f"the baseline needs one accuracy a task: {len(matrix)} tasks, got {len(baseline)}")
    if len(matrix) < 2:
        return float("nan")
    before = matrix.diagonal(offset=1)
    return float((before - np.asarray(baseline[1:])).mean())


def learning_accuracy(R: ArrayLike) -> float:
    """How well each task was known when it had just been learned: the mean of the diagonal."""
    return float(_matrix(R).diagonal().mean())


def average_anytime_accuracy(R: ArrayLike) -> float:
    """The mean, over all times, of the average accuracy on the tasks seen by then."""
    matrix = _matrix(R)
    return float(np.mean([matrix[k, : k + 1].mean() for k in range(len(matrix))]))


def worst_task_accuracy(R: ArrayLike) -> float:
    """The lowest accuracy of a task at the end."""
    return float(_matrix(R)[-1].min())


def last_value(values: Sequence[float]) -> float:
    """At the end."""
    return float(values[-1])


def as_observed(value: float) -> float:
    """What was measured is the metric."""
    return float(value)


def mebibytes(count: float) -> float:
    """Of bytes."""
    return count / 2**20


@dataclass(frozen=True)
class Metric:
    """One row of the table.

    ``needs`` names what was observed and is given to ``compute``: ``accuracy``, ``masked_accuracy``,
    ``validation_accuracy``, ``baseline``, ``reference_accuracy`` (a*_k), ``extra_accuracy``, ``train_accuracy``,
    ``confusion``, ``calibration``, ``within``, ``dormant_units``, ``feature_rank``, ``effective_rate``, ``seconds``,
    ``peak_memory_bytes``.
    The unit ``%`` marks fractions; ``digits`` is how other numbers are written. ``shown`` says where it is a column
    unasked: always, where it is there, or where rows differ in it. Of what is no
    ``contest`` the best is no merit.
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
    contest: bool = True

    @property
    def percent(self) -> bool:
        """Stored as a fraction, shown times 100."""
        return self.unit == "%"

    @property
    def against_reference(self) -> bool:
        """Known only where the run's reference is."""
        return "reference_accuracy" in self.needs

    @property
    def title(self) -> str:
        """``ACC % ↑``: the arrow says what is better."""
        arrow = ("↑" if self.more_is_better else "↓") if self.contest else ""
        return " ".join(word for word in (self.heading, self.unit, arrow) if word)


_loss = partial(Metric, more_is_better=False, within=CHANGE)
_cost = partial(Metric, compute=as_observed, more_is_better=False, within=POSITIVE, unit="", contest=False)
_REFERENCE = ("accuracy", "reference_accuracy")
_WITHIN = ("accuracy", "within")

# In the order of columns. A name that ends in * is a family: a metric for each member of what it needs.
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
        contest=False,
    ),
    "rate": _cost(
        "rate",
        "eta/lambda: the learning rate without curvature, at the start",
        needs=("effective_rate",),
        digits=".3g",
        shown="differs",
    ),
    "seconds": _cost("seconds", "the whole run", needs=("seconds",), shown="always"),
    "memory": _cost("MiB", "peak memory of the run", compute=mebibytes, needs=("peak_memory_bytes",)),
}


def metric_of(name: str) -> Metric:
    """The row of a metric, or of its family; what is in neither, a result's own, is shown as it is."""
    if name in METRICS:
        return METRICS[name]
    family = row_of(name)
    if family is None:
        return Metric(name, "", as_observed, (), within=ANY, unit="", digits=".3g", contest=False)
    return replace(METRICS[family], heading=f"{METRICS[family].heading} {name.removeprefix(family[:-1])}")


def row_of(name: str) -> str | None:
    """Under which name the table has a metric: its own, or its family's."""
    families = (row for row in METRICS if row.endswith("*") and name.startswith(row[:-1]))
    return name if name in METRICS else next(families, None)


def in_order(names: Iterable[str]) -> list[str]:
    """As the table has them; what it does not have comes before what is no contest."""
    rows = list(METRICS)
    end = next((k for k, row in enumerate(rows) if not METRICS[row].contest), len(rows))

    def place(name: str) -> tuple[float, str]:
        row = row_of(name)
        return (end - 0.5 if row is None else rows.index(row), name)

    return sorted(names, key=place)


def measure(observed: Mapping[str, Any]) -> dict[str, float]:
    """Every metric for which what it needs was observed, by name.

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
    """A number; or one for each task; or a row of them for each task: a run that did not come to its end has fewer.
    A count of nothing was never taken.

    What was counted by kind (``within``, ``calibration``) is there as soon as there is anything.
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
