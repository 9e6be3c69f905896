"""``result.json``: what a finished run found. Fractions, not percent; what is undefined is null there, NaN here."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tmln.lab.files import to_json, write_whole

FORMAT = 1
NEEDED = ("benchmark", "method", "seed", "config", "accuracy", "metrics")


class NewerResult(ValueError):
    """Written by a later version of tmln."""


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """The file appears whole; what could not be read again is not written."""
    complete = {"format": FORMAT, **result}
    _check(complete, path.name)
    write_whole(path, to_json(complete, indent=1) + "\n")


def read_result(path: Path) -> dict[str, Any]:
    """The result; a ValueError says what is wrong with it."""
    try:
        result = json.loads(path.read_bytes())
    except ValueError:
        raise ValueError(f"{path.name} is not JSON") from None
    if not isinstance(result, dict):
        raise ValueError(f"{path.name} holds no result")
    version = result.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise NewerResult(f"{path.name} has format {version}, this tmln reads up to {FORMAT}: upgrade tmln")
    _check(result, path.name)
    result["metrics"] = {key: _number(value) for key, value in result["metrics"].items()}
    result["accuracy"] = [[_number(value) for value in row] for row in result["accuracy"]]
    return result


def _number(value: Any) -> Any:
    return math.nan if value is None else value


def _check(result: Mapping[str, Any], name: str) -> None:
    missing = [key for key in NEEDED if key not in result]
    if missing:
        raise ValueError(f"{name} lacks {', '.join(missing)}")
    for key in ("config", "metrics"):
        if not isinstance(result[key], Mapping):
            raise ValueError(f"{name}: {key} is no mapping but {result[key]!r}")
    if not _is_matrix(result["accuracy"]):
        raise ValueError(f"{name}: accuracy is no list of rows of numbers but {result['accuracy']!r}")


def _is_matrix(value: Any) -> bool:
    rows = value if isinstance(value, list) else [None]
    numbers = (int, float, type(None))
    return all(isinstance(row, list) and all(isinstance(item, numbers) for item in row) for row in rows)
