"""A folder of runs as results that make sense, and what is wrong with the others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tmln.lab.oracle import Oracle, with_references
from tmln.lab.store import Store
from tmln.results.validity import complaint, readable


@dataclass(frozen=True)
class Problem:
    """A run without a result that can be shown; ``state`` is unfinished or corrupt."""

    name: str
    state: str
    reason: str


def gather(runs: Path, oracle: Oracle | None = None) -> tuple[dict[str, dict[str, Any]], list[Problem]]:
    """Results by the names of their runs, with INT wherever its reference is there; nothing in a folder stops it.

    ``oracle`` asks for one kind of reference; else the first that is there is taken.
    """
    if not runs.is_dir():
        raise ValueError(f"there is no folder {runs}; `tmln compare` makes one")
    results: dict[str, dict[str, Any]] = {}
    problems = []
    for entry in Store(runs).runs():
        result = readable(entry.result)
        why = entry.reason if result is None else complaint(result)
        if result is None or why:
            problems.append(Problem(entry.name, entry.state if result is None else "corrupt", why))
        else:
            results[entry.name] = result
    return dict(zip(results, with_references(results.values(), oracle), strict=True)), problems
