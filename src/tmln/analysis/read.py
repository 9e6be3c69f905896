"""Read a folder of runs or a published file as valid results, with their references."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tmln.analysis.measurements import Analysis, load_analyses
from tmln.analysis.published import NotPublished, read_measured, read_published
from tmln.evaluation_counts import complaint_about
from tmln.experiments.files import from_json, read_regular
from tmln.experiments.result import ACCURACIES, ORACLES, Oracle, Result
from tmln.experiments.store import Store

FORMAT = 1

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SearchRecord:
    """A ``tune-*.json``: names of runs, and how the choice was made.

    A trial's seeds were used to choose, so rows with them would overrate the method.
    """

    name: str
    trials: frozenset[str]
    finals: frozenset[str]
    how: str
    searched: frozenset[str] = frozenset()  # settings


def read_searches(runs: Path) -> Iterator[SearchRecord]:
    """Yield searches by name; warn about files that cannot be read."""
    for path in sorted(runs.glob("tune-*.json")):
        try:
            yield _parse_search(path.name, from_json(read_regular(path)))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            log.warning("passed over %s: %s", path, error)


def list_trial_runs(searches: Sequence[SearchRecord]) -> frozenset[str]:
    """Return the runs that were only used to choose."""
    tried = {name for search in searches if search.finals for name in search.trials}
    return frozenset(tried - {name for search in searches for name in search.finals})


def _parse_search(name: str, found: Mapping[str, Any]) -> SearchRecord:
    if found["format"] > FORMAT:
        raise ValueError(f"format {found['format']}, this tmln reads up to {FORMAT}: upgrade tmln")
    methods = [(str(one["method"]), one["trials"], len(one.get("spaces", ()))) for one in found["methods"]]
    trials = frozenset(str(run) for _, tried, _ in methods for trial in tried for run in trial["runs"])
    data = "validation" if all(str(name).startswith("val_") for name in found["objectives"]) else "the test"
    counts = ", ".join(
        f"{method} from {len(tried)}" + (f" over {settings} setting{'s' * (settings != 1)}" if settings else "")
        for method, tried, settings in methods
    )
    how = f"chosen on {data} data, {counts} trials"
    searched = frozenset(str(key) for one in found["methods"] for key in one.get("spaces", ()))
    return SearchRecord(name, trials, frozenset(map(str, found["final_runs"])), how, searched)


def mark_searched(results: Iterable[Result], searches: Sequence[SearchRecord]) -> list[Result]:
    """Return the results, with the settings that a search chose where it ran them."""
    chosen = {name: tuple(sorted(search.searched)) for search in searches for name in search.finals}
    return [replace(result, searched=chosen.get(result.name, ())) for result in results]


def attach_references(results: Iterable[Result], oracle: Oracle | None = None) -> list[Result]:
    """Return the results with the accuracies of their references.

    ``prefix`` is preferred to ``final``, and that to ``independent``; ``oracle`` asks for one kind.
    """
    given = list(results)
    kinds = {result.kind for result in given} | {result.oracle for result in given}
    wanted = [name for name in ORACLES if name in kinds] if oracle is None else [oracle]
    if wanted:
        given = [with_reference_names(result) for result in given]
    references = {result.name: result for result in given if result.kind is not None}
    return [attach_reference(result, references.get, wanted) for result in given]


def attach_reference(result: Result, find: Callable[[str], Result | None], oracles: Sequence[Oracle]) -> Result:
    """Return the result with the first of these references that ``find`` has, by name.

    The reference it had when it ran is kept if it is the same; any other is removed.
    """
    if result.diverged or result.kind or result.references is None:
        return result
    for oracle in oracles:
        name = result.references.get(oracle, "")
        reference = find(name) if name else None
        accuracies = () if reference is None else reference.as_reference(oracle)
        if accuracies and len(accuracies) == len(result.accuracy):
            return replace(result, oracle=oracle, reference=name, reference_accuracy=accuracies)
        if name and (result.oracle, result.reference) == (oracle, name):
            return result
    return result.without_reference()


def with_reference_names(result: Result) -> Result:
    """Return the result with the names of its references; for old results that takes torch."""
    if result.references is not None:
        return result
    from tmln.experiments.reference_runs import with_names

    return with_names(result)


SLACK = 1e-6  # by which rounding may have moved an accuracy
LARGEST = 1e100  # of a number whose squares are summed


def find_defect(result: Result) -> str:
    """Return why the result is invalid; empty if it is valid."""
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


@dataclass(frozen=True)
class Problem:
    """A run that is unfinished or corrupt, or a search whose trials are left out."""

    name: str
    state: str
    reason: str


def read_results(runs: Path, oracle: Oracle | None = None, trials: bool = False) -> tuple[list[Result], list[Problem]]:
    """Return results by name, with INT where its reference exists, and what was left out.

    ``runs`` is a folder of runs, which may hold published files, or such a file. ``oracle`` asks
    for one kind of reference, else the first that exists is taken. Trials of a search that ran what
    it chose are left out unless asked for, as a problem of state ``searched``.
    """
    results: dict[str, Result] = {}
    problems: list[Problem] = []
    searches = list(read_searches(runs)) if runs.is_dir() else []
    aside = frozenset() if trials else list_trial_runs(searches)
    for result in _entries(runs):
        if isinstance(result, Problem):
            problems.append(result)
        elif why := find_defect(result):
            problems.append(Problem(result.name, "corrupt", why))
        elif result.name in aside:
            continue
        elif result.name not in results:
            results[result.name] = result
        elif list(result.accuracy) != list(results[result.name].accuracy):
            log.warning("run %s is there twice, with other numbers; the first that was found counts", result.name)
    problems += [Problem(one.name, "searched", one.how) for one in searches if one.trials & aside]
    marked = mark_searched((results[name] for name in sorted(results)), searches)
    return attach_references(marked, oracle), problems


def read_analyses(runs: Path, kind: str | None = None) -> list[Analysis]:
    """Return the measurements of a folder or published file; the first of each name."""
    every = [] if runs.is_file() else list(load_analyses(runs))
    for path in [runs] if runs.is_file() else sorted(runs.glob("*.json")):
        with suppress(OSError, ValueError):  # read_results says what is wrong with a file
            every += read_measured(path)
    first = {(one.kind, one.name): one for one in reversed(every) if kind in (None, one.kind)}
    return [first[key] for key in sorted(first)]


def _entries(runs: Path) -> Iterator[Result | Problem]:
    if runs.is_file():
        yield from _read_file(runs)
        return
    if not runs.is_dir():
        wanted, maker = ("file", "publish") if runs.suffix == ".json" else ("folder", "compare")
        raise ValueError(f"there is no {wanted} {runs}; `tmln {maker}` makes one")
    for entry in Store(runs).runs():
        yield entry.result or Problem(entry.name, entry.state, entry.reason)
    for path in sorted(runs.glob("*.json")):
        try:
            yield from _read_file(path)
        except NotPublished:  # a search's record, or anything
            continue
        except (OSError, ValueError) as error:
            yield Problem(path.name, "corrupt", str(error))


def _read_file(path: Path) -> list[Result | Problem]:
    results, refused = read_published(path)
    return [*results, *(Problem(name, "corrupt", reason) for name, reason in refused.items())]
