"""Plan the runs of a command: each once, reference runs first, and the slice of one array job."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.reference_runs import reference_config
from tmln.experiments.result import REFERENCES, Oracle
from tmln.experiments.store import Store

if TYPE_CHECKING:
    pass


T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """A run to be executed; ``reference`` marks those that only intransigence (INT) needs."""

    config: RunConfig
    reference: bool = False

    @property
    def label(self) -> str:
        """Return the method, or the row's name, and the seed: ``tmln, seed 3``."""
        return f"{self.config.name or self.config.method}, seed {self.config.seed}"

    @property
    def why(self) -> str:
        """Return what is shown behind the label of a reference run."""
        return " (reference for INT)" if self.reference else ""


def plan(configs: Sequence[RunConfig], oracle: Oracle) -> list[Job]:
    """Return every run once, preceded by the reference runs that they need."""
    requested = {run_id(config): Job(config) for config in configs}
    needed = {}
    for config in configs:
        wanted = reference_config(config, oracle)
        if wanted is not None and run_id(wanted) not in requested:
            needed[run_id(wanted)] = Job(wanted, reference=True)
    jobs = sorted(requested.values(), key=lambda job: job.config.method not in REFERENCES)
    return [*needed.values(), *jobs]


def state_of(store: Store, job: Job) -> Literal["finished", "begun", "new"]:
    """Return how far the run of a job is in the store."""
    run = store.find(job.config)
    try:
        return "new" if run is None else "finished" if run.finished else "begun"
    except ValueError:  # written by a newer version, and left alone
        return "finished"


@dataclass(frozen=True)
class ArraySlice:
    """Slice ``index`` of ``count`` (counted from 1) of the runs, for array jobs."""

    index: int = 1
    count: int = 1

    def of(self, jobs: Sequence[T]) -> list[T]:
        """Return every ``count``-th job: slices are disjoint, complete, and equal in size to one.

        A plan depends on the command only, not on what has finished, so equal commands give
        equal slices. Reference runs come first in a plan and are spread evenly, too.

        >>> ArraySlice(1, 3).of("abcdefg"), ArraySlice(3, 3).of("abcdefg")
        (['a', 'd', 'g'], ['c', 'f'])
        """
        return list(jobs[self.index - 1 :: self.count])

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @property
    def whole(self) -> bool:
        """Return whether this is the only slice."""
        return self.count == 1


def read_slice(text: str | None) -> ArraySlice:
    """Read ``2/8``; None is the whole.

    Raises:
        ValueError: if the text is no slice, or the index is not between 1 and the count.
    """
    if text is None:
        return ArraySlice()
    found = re.fullmatch(r"\s*([0-9]{1,9})\s*/\s*([0-9]{1,9})\s*", text)
    if found is None:
        raise ValueError(f"--shard takes I/N, e.g. 2/8 for the second of eight slices, not {text!r}")
    index, count = int(found[1]), int(found[2])
    if not 1 <= index <= count:
        raise ValueError(f"there is no shard {text!r}: of {count} slices they are 1/{count} to {count}/{count}")
    return ArraySlice(index, count)
