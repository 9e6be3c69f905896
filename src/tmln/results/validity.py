"""What is wrong with a result that was read: by hand or by accident, files come to say odd things."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

SLACK = 1e-6  # by which rounding may have moved an accuracy
LARGEST = 1e100  # of a number whose squares are summed


def complaint(result: Mapping[str, Any]) -> str:
    """Why the result cannot be shown; empty if it can."""
    seed, matrix = result["seed"], result["accuracy"]
    if isinstance(seed, bool) or not isinstance(seed, int):
        return f"its seed is no whole number but {_short(seed)}"
    for key in ("benchmark", "method"):
        if not isinstance(result[key], str) or not result[key]:
            return f"its {key} is no name but {_short(result[key])}"
    if not matrix and not result.get("diverged"):
        return "its accuracy matrix is empty"
    widths = {len(row) for row in matrix}
    if len(widths) > 1 or 0 in widths:
        return f"its accuracy matrix is ragged: rows of {', '.join(map(str, sorted(widths)))}"
    if matrix and not result["config"].get("merged") and len(matrix) > len(matrix[0]):
        return f"its accuracy matrix has {len(matrix)} rows for {len(matrix[0])} tasks"
    if len(matrix) < max(widths, default=0) and not result.get("diverged") and not result["config"].get("merged"):
        return f"its accuracy matrix has {len(matrix)} rows for {max(widths)} tasks, though it has not diverged"
    for value in (value for row in matrix for value in row):
        if not (math.isnan(value) or -SLACK <= value <= 1 + SLACK):
            return f"its accuracy matrix holds {_short(value)}, which is no fraction"
    for key, value in {**result["metrics"], "seconds": result.get("seconds")}.items():
        if isinstance(value, (int, float)) and math.isfinite(value) and abs(value) > LARGEST:
            return f"its {_short(key)} is {_short(value)}, too large to reckon with"
    return ""


def readable(value: Any) -> Any:
    """The value, with halves of characters, which JSON can hold and files cannot, replaced by question marks."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {readable(key): readable(item) for key, item in value.items()}
    return [readable(item) for item in value] if isinstance(value, list) else value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
