"""How well it went, as pure functions of the accuracy matrix: R[k][j] is the accuracy on task j after learning task k.

Accuracies are fractions. What is undefined for a single task (forgetting, transfer) is NaN, not 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray


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


def summary(R: ArrayLike, reference: Sequence[float] | None = None) -> dict[str, Any]:
    """The metrics that need no more than the matrix, and intransigence where there is a reference."""
    found: dict[str, Any] = {
        "acc": average_accuracy(R),
        "fm": forgetting(R),
        "bwt": backward_transfer(R),
        "learning_accuracy": learning_accuracy(R),
        "average_anytime_accuracy": average_anytime_accuracy(R),
    }
    if reference is not None:
        found["int"] = intransigence(R, reference)
        found["int_all"] = intransigence(R, reference, over="all")
        found["int_last"] = intransigence(R, reference, over="last")
    return found
