"""What is wrong with a result that was read: by hand or by accident, files come to say odd things."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from tmln.evaluation_counts import complaint_about
from tmln.experiments.result import ACCURACIES, Result

SLACK = 1e-6  # by which rounding may have moved an accuracy
LARGEST = 1e100  # of a number whose squares are summed


def complaint(result: Result) -> str:
    """Why the result cannot be shown; empty if it can."""
    seed, matrix = result.seed, result.accuracy
    if isinstance(seed, bool) or not isinstance(seed, int):
        return f"its seed is no whole number but {_short(seed)}"
    for key in ("benchmark", "method"):
        if not isinstance(name := getattr(result, key), str) or not name:
            return f"its {key} is no name but {_short(name)}"
    if not matrix and not result.diverged:
        return "its accuracy matrix is empty"
    widths = {len(row) for row in matrix}
    if len(widths) > 1 or 0 in widths:
        return f"its accuracy matrix is ragged: rows of {', '.join(map(str, sorted(widths)))}"
    if matrix and not result.merged and len(matrix) > len(matrix[0]):
        return f"its accuracy matrix has {len(matrix)} rows for {len(matrix[0])} tasks"
    if len(matrix) < max(widths, default=0) and not result.diverged and not result.merged:
        return f"its accuracy matrix has {len(matrix)} rows for {max(widths)} tasks, though it has not diverged"
    for what in ACCURACIES:
        for value in _leaves(getattr(result, what)):
            if not isinstance(value, (int, float)) or not (math.isnan(value) or -SLACK <= value <= 1 + SLACK):
                matter = "accuracy matrix" if what == "accuracy" else what.replace("_", " ")
                return f"its {matter} holds {_short(value)}, which is no fraction"
    for what in ("dormant_units", "feature_rank"):
        if not all(isinstance(value, (int, float)) for value in getattr(result, what)):
            return f"its {what.replace('_', ' ')} are no numbers"
    if why := complaint_about(vars(result), len(matrix)):
        return why
    for key, value in {**result.said, "seconds": result.seconds, "rate": result.effective_rate}.items():
        if isinstance(value, (int, float)) and math.isfinite(value) and abs(value) > LARGEST:
            return f"its {_short(key)} is {_short(value)}, too large to reckon with"
    return ""


def _leaves(value: Any) -> Iterator[Any]:
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else None
    if inner is None:
        yield value
    else:
        for item in inner:
            yield from _leaves(item)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
