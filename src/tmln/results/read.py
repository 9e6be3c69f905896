"""A folder of runs as results that make sense, and what is wrong with the others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tmln.lab.result import Oracle, Result
from tmln.lab.store import Store
from tmln.results.references import with_references
from tmln.results.searched import searches_in, trials_of
from tmln.results.validity import complaint


@dataclass(frozen=True)
class Problem:
    """A run without a result that can be shown, unfinished or corrupt; or a search whose trials are left out."""

    name: str
    state: str
    reason: str


def read_results(runs: Path, oracle: Oracle | None = None, trials: bool = False) -> tuple[list[Result], list[Problem]]:
    """Results in the order of their names, with INT wherever its reference is there; nothing in a folder stops it.

    ``oracle`` asks for one kind of reference; else the first that is there is taken. The trials of a search that ran
    what it chose are left out unless asked for, and that is a problem of the state ``searched``.
    """
    if not runs.is_dir():
        raise ValueError(f"there is no folder {runs}; `tmln compare` makes one")
    results, problems = [], []
    searches = list(searches_in(runs))
    aside = frozenset() if trials else trials_of(searches)
    for entry in Store(runs).runs():
        why = entry.reason if entry.result is None else complaint(entry.result)
        if entry.result is None or why:
            problems.append(Problem(entry.name, entry.state if entry.result is None else "corrupt", why))
        elif entry.name not in aside:
            results.append(entry.result)
    problems += [Problem(one.name, "searched", one.how) for one in searches if one.trials & aside]
    return with_references(results, oracle), problems
