"""``result.json``: what a finished run found. Fractions, not percent; what is undefined is null there, NaN here.

From format 2 on it carries a checksum of all that it says. Whatever the format, its configuration must be the one that
its folder is named by: another run's result, or one that was damaged, is not believed.
"""

from __future__ import annotations

import hashlib
import json
import math
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tmln.lab.files import from_json, read_own, to_json, write_whole
from tmln.lab.identity import HEAD, is_named, spelled

FORMAT = 2
NEEDED = ("benchmark", "method", "seed", "config", "accuracy", "metrics")
CHECKSUM = "checksum"


class NewerResult(ValueError):
    """Written by a later version of tmln."""


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """The file appears whole; what could not be read again is not written."""
    complete = {"format": FORMAT, **{key: value for key, value in result.items() if key not in ("format", CHECKSUM)}}
    _check(complete, path.name)
    complete["config"] = spelled(complete["config"])
    _check_folder(complete, path)
    complete[CHECKSUM] = _checksum(json.loads(to_json(complete)))
    write_whole(path, to_json(complete, indent=1) + "\n")


def read_result(path: Path) -> dict[str, Any]:
    """The result; a ValueError says what is wrong with it."""
    data = read_own(path)
    try:
        result = from_json(data)
    except ValueError:
        raise ValueError(f"{path.name} is not JSON") from None
    if not isinstance(result, dict):
        raise ValueError(f"{path.name} holds no result")
    version = result.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise NewerResult(f"{path.name} has format {version}, this tmln reads up to {FORMAT}: upgrade tmln")
    if (CHECKSUM in result or version not in (None, 1)) and result.pop(CHECKSUM, None) != _checksum(result):
        raise ValueError(f"{path.name} does not match its checksum: it was damaged, or edited")
    _check(result, path.name)
    _check_folder(result, path)
    result["metrics"] = {key: _number(value) for key, value in result["metrics"].items()}
    result["accuracy"] = [[_number(value) for value in row] for row in result["accuracy"]]
    return result


def has_checksum(result: Mapping[str, Any]) -> bool:
    """Results of format 1, from earlier versions, have none: they are believed as they are."""
    return result.get("format") not in (None, 1)


def _checksum(content: Mapping[str, Any]) -> str:
    """SHA-256 over JSON in one order and one spelling."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _number(value: Any) -> Any:
    return math.nan if value is None else value


def _check(result: Mapping[str, Any], name: str) -> None:
    missing = [key for key in NEEDED if key not in result]
    if missing:
        raise ValueError(f"{name} lacks {', '.join(missing)}")
    for key in ("config", "metrics"):
        if not isinstance(result[key], Mapping):
            raise ValueError(f"{name}: {key} is no mapping but {reprlib.repr(result[key])}")
    if not _is_matrix(result["accuracy"]):
        raise ValueError(f"{name}: accuracy is no list of rows of numbers but {reprlib.repr(result['accuracy'])}")


def _is_matrix(value: Any) -> bool:
    rows = value if isinstance(value, list) else [None]
    numbers = (int, float, type(None))
    return all(isinstance(row, list) and all(isinstance(item, numbers) for item in row) for row in rows)


def _check_folder(result: Mapping[str, Any], path: Path) -> None:
    if not is_named(result["config"], path.parent.name):
        raise ValueError(
            f"{path.name} is of another run: its configuration is not the one that {path.parent.name!r} names"
        )
    for key in () if has_checksum(result) else HEAD:
        if result[key] != result["config"].get(key):
            raise ValueError(f"{path.name}: its {key} is not that of its configuration")
