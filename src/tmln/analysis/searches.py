"""What a search left in a folder of runs: trials, which chose, and the runs of what was chosen, which are to be shown.

A trial's seeds were looked at to choose by. Were they in one row with the fresh seeds of what was chosen, the row would
be better than the method.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tmln.experiments.files import from_json, read_own

FORMAT = 1

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Searched:
    """One ``tune-*.json``: names of runs, and in words how the choice was made."""

    name: str
    trials: frozenset[str]
    finals: frozenset[str]
    how: str


def searches_in(runs: Path) -> Iterator[Searched]:
    """By name; what cannot be read is said and passed over."""
    for path in sorted(runs.glob("tune-*.json")):
        try:
            yield _searched(path.name, from_json(read_own(path)))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            log.warning("passed over %s: %s", path, error)


def trials_of(searches: Sequence[Searched]) -> frozenset[str]:
    """The runs that only chose: of searches that ran what they chose, and final in none."""
    tried = {name for search in searches if search.finals for name in search.trials}
    return frozenset(tried - {name for search in searches for name in search.finals})


def _searched(name: str, found: Mapping[str, Any]) -> Searched:
    if found["format"] > FORMAT:
        raise ValueError(f"format {found['format']}, this tmln reads up to {FORMAT}: upgrade tmln")
    methods = [(str(one["method"]), one["trials"]) for one in found["methods"]]
    trials = frozenset(str(run) for _, tried in methods for trial in tried for run in trial["runs"])
    data = "validation" if all(str(name).startswith("val_") for name in found["objectives"]) else "the test"
    counts = ", ".join(f"{method} from {len(tried)}" for method, tried in methods)
    how = f"chosen on {data} data, {counts} trials"
    return Searched(name, trials, frozenset(map(str, found["final_runs"])), how)
