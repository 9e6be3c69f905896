"""What the runs of one row say: found in the store, seed by seed, with intransigence against their joint runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tmln.lab.config import RunConfig, run_id
from tmln.lab.oracle import with_reference
from tmln.lab.store import Store
from tmln.paper.scales import Scale, Stand
from tmln.results.rows import Row, metric_of, rows_of
from tmln.results.tables import cell

NOT_RUN = "not run"


@dataclass(frozen=True)
class Study:
    """A scale, its seeds and a store: what every item is made from. ``failed`` says why a run has no result."""

    scale: Scale
    store: Store
    failed: Mapping[str, str] = field(default_factory=dict)  # run id -> reason

    def stand(self, benchmark: str) -> Stand:
        return self.scale.stand(benchmark)

    def result(self, config: RunConfig) -> dict[str, Any] | None:
        run = self.store.find(config)
        return None if run is None else run.result


@dataclass(frozen=True)
class Found:
    """The runs of one row. ``row`` is None where no seed has a result."""

    row: Row | None
    asked: tuple[int, ...]
    why: Mapping[int, str] = field(default_factory=dict)  # seed -> why there is no result
    unreferenced: tuple[int, ...] = ()  # seeds without a joint run
    versions: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        return 0 if self.row is None else self.row.summary("acc").n

    def text(self, metric: str) -> str:
        """``94.9 ± 1.0``, or in a word why there is no number; a star where seeds are left out."""
        if self.row is None:
            return NOT_RUN
        if not self.n:
            return "diverged"
        shown = cell(self.row.summary(metric), metric_of(metric).percent)
        if metric == "int" and shown == "-":
            return "no reference"
        left_out = self.row.diverged or self.why or (metric == "int" and self.unreferenced)
        return f"{shown} *" if left_out else shown

    def notes(self, label: str) -> list[str]:
        """What a reader must know of this row."""
        said = []
        if self.row is not None and self.row.diverged:
            left = "left out of the mean" if self.n else "so there is no mean"
            said.append(f"{label}: {_seeds(self.row.diverged)} diverged; kept in the store, {left}")
        said += [
            f"{label}: {_seeds([s for s in self.why if self.why[s] == reason])} not run: {reason}"
            for reason in dict.fromkeys(self.why.values())
        ]
        if self.n == 1:
            said.append(f"{label}: one seed only, so no deviation and no interval")
        if self.n and self.unreferenced:
            said.append(f"{label}: no joint reference for {_seeds(self.unreferenced)}, so no INT there")
        return said


def find(study: Study, stand: Stand, method: str, changes: Mapping[str, Any], seeds: int) -> Found:
    """Look up seeds 0, 1, ... of one row; INT is against ``joint``, by the rule of :mod:`tmln.lab.oracle`."""
    asked = tuple(range(seeds))
    missing = stand.missing
    results, why, unreferenced = [], {}, []
    for seed in asked:
        config = stand.config(method, seed, changes)
        try:
            result = study.result(config)
        except ValueError as error:  # of a newer version
            why[seed] = str(error)
            continue
        if result is None:
            get = f"{missing} is not at hand: tmln data get {missing}" if missing else ""
            why[seed] = study.failed.get(run_id(config)) or get or "not finished"
            continue
        result = with_reference(result, lambda name, wanted: _readable(study, wanted), ("prefix",))
        if "int" not in result["metrics"] and method != "joint" and not result.get("diverged"):
            unreferenced.append(seed)
        results.append(result)
    row = replace(rows_of(results)[0], label=method) if results else None
    versions = tuple(_version(result) for result in results)
    return Found(row, asked, why, tuple(unreferenced), versions)


def version_notes(found: Sequence[Found]) -> list[str]:
    """Runs of different versions may differ for reasons that are none of the methods'."""
    counted = Counter(version for each in found for version in each.versions)
    if len(counted) < 2:
        return []
    listed = "; ".join(f"{count} of {version}" for version, count in sorted(counted.items()))
    return [f"mixed versions: runs are {listed}; a new --out folder has them all of one"]


def _readable(study: Study, config: RunConfig) -> dict[str, Any] | None:
    try:
        return study.result(config)
    except ValueError:  # of a newer version: its own row says so
        return None


def _version(result: Mapping[str, Any]) -> str:
    versions = result.get("versions") or {}
    return " and ".join(f"{name} {versions[name]}" for name in ("tmln", "torch") if name in versions) or "unknown"


def _seeds(seeds: Sequence[int]) -> str:
    listed = ", ".join(str(seed) for seed in seeds)
    return f"seed {listed}" if len(seeds) == 1 else f"seeds {listed}"


def finite(value: float) -> float | None:
    """For programs: None where there is no number."""
    return value if math.isfinite(value) else None


def percent(value: float) -> float | None:
    return finite(100.0 * value)
