"""Read a row by the names of its runs, with the reason for each missing run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from tmln.analysis.notes import seeds_text
from tmln.analysis.read import named, with_reference
from tmln.analysis.rows import Row, rows_of
from tmln.analysis.statistics import Summary, summarise
from tmln.analysis.tables import cell
from tmln.experiments.result import REFERENCES, Oracle, Result
from tmln.metrics import METRICS, metric_of

NOT_RUN = "not run"


@dataclass(frozen=True)
class RequestedRow:
    """The row of the requested runs; ``row`` is None where no seed has a result."""

    row: Row | None = None
    why: Mapping[int, str] = field(default_factory=dict)  # seed -> why there is no result

    @property
    def n(self) -> int:
        """Count the seeds that have a result."""
        return self.summary("acc").n

    @property
    def unreferenced(self) -> list[int]:
        """Return the seeds without a reference for INT."""
        results = () if self.row is None else self.row.results
        return [r.seed for r in results if not r.diverged and r.method not in REFERENCES and "int" not in r.metrics]

    def summary(self, metric: str) -> Summary:
        """Summarise over the seeds that have a result; ``n=0`` and NaN where there is none."""
        return summarise([]) if self.row is None else self.row.summary(metric)

    def text(self, metric: str) -> str:
        """Return ``94.9 ± 1.0``, or why there is no number; a star where seeds are left out."""
        if self.row is None:
            return NOT_RUN
        if not self.n:
            return "diverged"
        shown = cell(self.row.summary(metric), metric_of(metric))
        referenced = metric in METRICS and "reference_accuracy" in METRICS[metric].needs
        if referenced and shown == "-":
            return "no reference"
        left_out = self.row.diverged or self.why or (referenced and self.unreferenced)
        return f"{shown} *" if left_out else shown

    def notes(self, label: str) -> list[str]:
        """Return what a reader must know about this row."""
        said = []
        if self.row is not None and self.row.diverged:
            left = "left out of the mean" if self.n else "so there is no mean"
            said.append(f"{label}: {seeds_text(self.row.diverged)} diverged; kept in the store, {left}")
        said += [
            f"{label}: {seeds_text([s for s in self.why if self.why[s] == reason])} not run: {reason}"
            for reason in dict.fromkeys(self.why.values())
        ]
        if self.n == 1:
            said.append(f"{label}: one seed only, so no deviation and no interval")
        if self.n and self.unreferenced:
            said.append(f"{label}: no joint reference for {seeds_text(self.unreferenced)}, so no INT there")
        return said


def read_requested_row(
    names: Mapping[int, str],
    read: Callable[[str], Result | None],
    reason: Callable[[str], str],
    oracles: Sequence[Oracle] = ("prefix",),
) -> RequestedRow:
    """Read the runs of these names, by seed; ``reason`` says why one of them is missing."""
    results, why = [], {}

    def reference(name: str) -> Result | None:
        with suppress(ValueError):  # of a newer version: its own row says so
            found = read(name)
            return None if found is None else named(found)
        return None

    for seed, name in names.items():
        try:
            result = read(name)
        except ValueError as error:  # of a newer version
            why[seed] = str(error)
            continue
        if result is None:
            why[seed] = reason(name)
        else:
            results.append(with_reference(named(result), reference, oracles))
    row = replace(rows_of(results)[0], label=results[0].method) if results else None
    return RequestedRow(row, why)
