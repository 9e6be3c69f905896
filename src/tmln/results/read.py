"""A folder of runs as results that make sense, and what is wrong with the others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tmln.lab.result import Oracle, Result
from tmln.lab.store import Store
from tmln.results.references import with_references
from tmln.results.validity import complaint


@dataclass(frozen=True)
class Problem:
    """A run without a result that can be shown; ``state`` is unfinished or corrupt."""

    name: str
    state: str
    reason: str


def read_results(runs: Path, oracle: Oracle | None = None) -> tuple[list[Result], list[Problem]]:
    """Results in the order of their names, with INT wherever its reference is there; nothing in a folder stops it.

    ``oracle`` asks for one kind of reference; else the first that is there is taken.
    """
    if not runs.is_dir():
        raise ValueError(f"there is no folder {runs}; `tmln compare` makes one")
    results, problems = [], []
    for entry in Store(runs).runs():
        why = entry.reason if entry.result is None else complaint(entry.result)
        if entry.result is None or why:
            problems.append(Problem(entry.name, entry.state if entry.result is None else "corrupt", why))
        else:
            results.append(entry.result)
    return with_references(results, oracle), problems
