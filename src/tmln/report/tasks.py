"""What the tasks of a run are called."""

from __future__ import annotations

from typing import Any

import numpy as np

from tmln.lab.result import Result


def task_names(result: Result) -> list[str]:
    """One for each column of the accuracy matrix: the data's own where there are any, else the classes, else none."""
    count = len(result.accuracy[0]) if result.accuracy else 0
    for key in ("tasks", "domains"):
        names = result.stream.get(key)
        if isinstance(names, list) and len(names) == count:
            return [_text(name) for name in names]
    order = result.stream.get("class_order")
    if isinstance(order, list) and 0 < count <= len(order):
        parts = np.array_split(np.arange(len(order)), count)  # as streams are split
        return ["classes " + ", ".join(str(order[k]) for k in part) for part in parts]
    return [""] * count


def _text(name: Any) -> str:
    return ", ".join(map(str, name)) if isinstance(name, (list, tuple)) else str(name)
