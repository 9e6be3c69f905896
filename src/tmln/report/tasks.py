"""What the tasks of a run are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tmln.streams.split import split_sizes


def task_names(result: Mapping[str, Any]) -> list[str]:
    """One for each column of the accuracy matrix: the data's own where there are any, else the classes, else none."""
    matrix = result["accuracy"]
    count = len(matrix[0]) if matrix else 0
    stream = result.get("stream")
    about: Mapping[str, Any] = stream if isinstance(stream, Mapping) else {}
    for key in ("tasks", "domains"):
        names = about.get(key)
        if isinstance(names, list) and len(names) == count:
            return [_text(name) for name in names]
    order = about.get("class_order")
    if isinstance(order, list) and 0 < count <= len(order):
        names, start = [], 0
        for size in split_sizes(len(order), count):
            names.append("classes " + ", ".join(str(label) for label in order[start : start + size]))
            start += size
        return names
    return [""] * count


def _text(name: Any) -> str:
    return ", ".join(map(str, name)) if isinstance(name, (list, tuple)) else str(name)
