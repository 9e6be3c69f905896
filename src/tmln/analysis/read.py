"""A folder of runs, or what was published of one, as results that make sense, and what is wrong with the others."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tmln.analysis.measurements import Analysis, load_analyses
from tmln.analysis.published import NotPublished, read_measured, read_published
from tmln.analysis.references import with_references
from tmln.analysis.searches import searches_in, trials_of
from tmln.analysis.validity import complaint
from tmln.experiments.result import Oracle, Result
from tmln.experiments.store import Store

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Problem:
    """A run without a result that can be shown, unfinished or corrupt; or a search whose trials are left out."""

    name: str
    state: str
    reason: str


def read_results(runs: Path, oracle: Oracle | None = None, trials: bool = False) -> tuple[list[Result], list[Problem]]:
    """Results in the order of their names, with INT wherever its reference is there; nothing in a folder stops it.

    ``runs`` is a folder of runs, in which published files may lie, too, or such a file. ``oracle`` asks for one kind of
    reference; else the first that is there is taken. The trials of a search that ran what it chose are left out unless
    asked for, and that is a problem of the state ``searched``.
    """
    results: dict[str, Result] = {}
    problems: list[Problem] = []
    searches = list(searches_in(runs)) if runs.is_dir() else []
    aside = frozenset() if trials else trials_of(searches)
    for result in _entries(runs):
        if isinstance(result, Problem):
            problems.append(result)
        elif why := complaint(result):
            problems.append(Problem(result.name, "corrupt", why))
        elif result.name in aside:
            continue
        elif result.name not in results:
            results[result.name] = result
        elif list(result.accuracy) != list(results[result.name].accuracy):
            log.warning("run %s is there twice, with other numbers; the first that was found counts", result.name)
    problems += [Problem(one.name, "searched", one.how) for one in searches if one.trials & aside]
    return with_references((results[name] for name in sorted(results)), oracle), problems


def read_analyses(runs: Path, kind: str | None = None) -> list[Analysis]:
    """What was measured about the runs of a folder, or published with them; of one name the first that is found."""
    every = [] if runs.is_file() else list(load_analyses(runs))
    for path in [runs] if runs.is_file() else sorted(runs.glob("*.json")):
        with suppress(OSError, ValueError):  # read_results says what is wrong with a file
            every += read_measured(path)
    first = {(one.kind, one.name): one for one in reversed(every) if kind in (None, one.kind)}
    return [first[key] for key in sorted(first)]


def _entries(runs: Path) -> Iterator[Result | Problem]:
    if runs.is_file():
        yield from _published(runs)
        return
    if not runs.is_dir():
        wanted, maker = ("file", "publish") if runs.suffix == ".json" else ("folder", "compare")
        raise ValueError(f"there is no {wanted} {runs}; `tmln {maker}` makes one")
    for entry in Store(runs).runs():
        yield entry.result or Problem(entry.name, entry.state, entry.reason)
    for path in sorted(runs.glob("*.json")):
        try:
            yield from _published(path)
        except NotPublished:  # a search's record, or anything
            continue
        except (OSError, ValueError) as error:
            yield Problem(path.name, "corrupt", str(error))


def _published(path: Path) -> list[Result | Problem]:
    results, refused = read_published(path)
    return [*results, *(Problem(name, "corrupt", reason) for name, reason in refused.items())]
