"""What the runs of one row of the paper's tables say: found in the store, held against their joint runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tmln.analysis.requested_rows import RequestedRow, read_requested_row
from tmln.experiments.config import run_id
from tmln.experiments.result import Result
from tmln.experiments.store import Store
from tmln.paper.scales import Scale, Stand


@dataclass(frozen=True)
class Study:
    """A scale, its seeds and a store: what every item is made from. ``failed`` says why a run has no result."""

    scale: Scale
    store: Store
    failed: Mapping[str, str] = field(default_factory=dict)  # run id -> reason
    published: Mapping[str, Result] | None = None  # by run id, in place of the store's

    def result(self, name: str) -> Result | None:
        """Of the run with this name, if it is finished."""
        return self.store.result(name) if self.published is None else self.published.get(name)

    def stand(self, benchmark: str) -> Stand:
        """What stands for a benchmark of the paper at this scale."""
        return self.scale.stand(benchmark)


def find(study: Study, stand: Stand, method: str, changes: Mapping[str, Any], seeds: int) -> RequestedRow:
    """Look up seeds 0, 1, ... of one row; INT is against ``joint`` (:mod:`tmln.experiments.reference_runs`)."""
    get = f"{stand.missing} is not at hand: tmln data get {stand.missing}" if stand.missing else ""
    names = {seed: run_id(stand.config(method, seed, changes)) for seed in range(seeds)}
    return read_requested_row(names, study.result, lambda name: study.failed.get(name) or get or "not finished")
