"""Describe what the runs of a row observed: tasks, mean matrix, curves, classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tmln.analysis.statistics import Summary, mean, summarise
from tmln.evaluation_counts import class_accuracies, unpack_confusion
from tmln.experiments.result import Result
from tmln.metrics import SHARE

MOST = 400  # classes that a page draws
DIGITS = 5  # of accuracies and losses that are drawn
CURVE_DIGITS = 6


def shorten(value: Any) -> Any:
    """Round every number in nested values to the digits of a figure; not finite is None."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return round(value, DIGITS) if abs(value) >= 10**-DIGITS else float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {str(key): shorten(item) for key, item in value.items()}
    return [shorten(item) for item in value] if isinstance(value, (list, tuple)) else value


# -- tasks --


def name_tasks(results: Sequence[Result]) -> list[str]:
    """Return the names of a row's tasks; empty ones where they differ from seed to seed."""
    first, *others = [task_names(one) for one in results]
    return first if all(names == first for names in others) else [""] * len(first)


def task_names(result: Result) -> list[str]:
    """Return a name per column of the accuracy matrix: the data's, else the classes, else empty."""
    count = len(result.accuracy[0]) if result.accuracy else 0
    for key in ("tasks", "domains"):
        names = result.stream.get(key)
        if isinstance(names, list) and len(names) == count:
            return [", ".join(map(str, name)) if isinstance(name, (list, tuple)) else str(name) for name in names]
    order = result.stream.get("class_order")
    if isinstance(order, list) and 0 < count <= len(order):
        parts = np.array_split(np.arange(len(order)), count)  # as streams are split
        return ["classes " + ", ".join(str(order[k]) for k in part) for part in parts]
    return [""] * count


# -- accuracy --


def mean_matrix(results: Sequence[Result]) -> list[list[float]]:
    """Average the longest accuracy matrices of runs that did not diverge; empty if none."""
    found = [one.accuracy for one in results if not one.diverged and one.accuracy]
    tasks = max(map(len, found), default=0)
    whole = [matrix for matrix in found if len(matrix) == tasks]
    return [[mean(values) for values in zip(*lines, strict=True)] for lines in zip(*whole, strict=True)]


def summarise_curves(results: Sequence[Result]) -> dict[str, Any]:
    """Summarise accuracy after each task over seeds: ``average`` so far, and ``tasks``.

    A point is ``[n, mean, std, low, high]`` with a 95% interval; a task's curve begins when it is
    learned.
    """
    found = [one.accuracy for one in results if not one.diverged and one.accuracy]
    times = max(map(len, found), default=0)
    seen = [[mean(matrix[k][: k + 1]) for matrix in found if k < len(matrix)] for k in range(times)]
    alone = [
        [[matrix[k][j] for matrix in found if k < len(matrix) and j < len(matrix[k])] for k in range(j, times)]
        for j in range(max((len(matrix[0]) for matrix in found), default=0))
    ]
    return {"average": _summaries(seen), "tasks": [_summaries(values) for values in alone]}


def _summaries(values: Sequence[Sequence[float]]) -> list[list[float | None]]:
    points = [plain_summary(summarise(found, within=SHARE)) for found in values]
    return [[None if x is None else round(x, CURVE_DIGITS) for x in point] for point in points]


def plain_summary(found: Summary) -> list[float | None]:
    """Return n, mean, deviation and interval as plain numbers, None where there is none."""
    return [found.n, *(x if math.isfinite(x) else None for x in (found.mean, found.std, found.low, found.high))]


# -- classes --


def describe_classes(results: Sequence[Result]) -> dict[str, Any] | None:
    """Return each class's accuracy after each task, its mean, and the final confusion.

    ``confusion`` lists true class, predicted class, count and share of the true class, for counts
    above 0, seeds summed. Only finished runs with counts are used; None where there are none, or
    they do not fit together.
    """
    counted = [one for one in results if one.confusion and not one.diverged and len(one.confusion) == len(one.accuracy)]
    try:
        tables = np.array([[unpack_confusion(text) for text in one.confusion] for one in counted])
    except ValueError:  # damaged, or of different sizes
        return None
    if tables.ndim != 4 or tables.shape[-1] > MOST:
        return None
    sums = tables.sum(axis=0)
    accuracy = [[float(value) for value in class_accuracies(table)] for table in sums]
    tested = sums[-1].sum(axis=1)
    return {
        "names": _class_names(counted, sums.shape[-1]),
        "seeds": len(counted),
        "accuracy": shorten(accuracy),
        "mean": shorten([mean(line) for line in accuracy]),
        "confusion": [
            [int(t), int(p), int(sums[-1, t, p]), shorten(float(sums[-1, t, p] / tested[t]))]
            for t, p in np.argwhere(sums[-1])
        ],
    }


def _class_names(results: Sequence[Result], classes: int) -> list[str]:
    found = {tuple(map(str, one.class_names)) for one in results}
    names = found.pop() if len(found) == 1 else ()
    return list(names) if len(names) == classes else [str(number) for number in range(classes)]


# -- barriers --


def summarise_barriers(content: Mapping[str, Any]) -> dict[str, Any]:
    """Add mean and deviation over seeds of the loss on each line to a barrier analysis."""
    try:
        return {**content, "methods": [{**one, "lines": _barrier_lines(one["seeds"])} for one in content["methods"]]}
    except (KeyError, TypeError, ValueError):  # damaged: the page says that it cannot show it
        return dict(content)


def _barrier_lines(seeds: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the mean loss, over earlier tasks and seeds, between consecutive solutions."""
    lines = []
    for pairs in zip(*(seed["pairs"] for seed in seeds), strict=True):
        curves = [
            [_mean_loss(losses) for losses in zip(*(t["loss"] for t in pair["tasks"]), strict=True)] for pair in pairs
        ]
        points = [summarise(values) for values in zip(*curves, strict=True)]
        means, stds = ([getattr(point, part) for point in points] for part in ("mean", "std"))
        lines.append({"from": pairs[0]["from"], "to": pairs[0]["to"], "mean": means, "std": stds})
    return lines


def _mean_loss(losses: Sequence[float | None]) -> float:
    return mean(math.nan if loss is None else loss for loss in losses)
