"""A study: a scale and its results, requested rows, items with their runs, and pages."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tmln.analysis.measurements import FOLDER, save_analysis
from tmln.analysis.notes import seeds_text
from tmln.analysis.read import attach_reference, read_analyses, with_reference_names
from tmln.analysis.rows import Row, group_rows
from tmln.analysis.statistics import Summary, summarise
from tmln.analysis.tables import cell
from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.files import to_json
from tmln.experiments.result import REFERENCES, Result
from tmln.experiments.store import Store
from tmln.metrics import METRICS, metric_of
from tmln.paper.scales import BenchmarkSetup, Scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Sheet:
    """One table of text, heading first."""

    title: str
    lines: list[list[str]]


@dataclass(frozen=True)
class Page:
    """One item as tables of text, ``records`` for programs, notes and a figure."""

    name: str
    title: str
    sheets: list[Sheet] = field(default_factory=list)
    records: list[Mapping[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    figure: Figure | None = None


@dataclass(frozen=True)
class Study:
    """A scale and a store of results; ``failed`` says why a run has no result."""

    scale: Scale
    store: Store
    failed: Mapping[str, str] = field(default_factory=dict)  # run id -> reason
    published: Mapping[str, Result] | None = None  # by run id, instead of the store's

    def result(self, name: str) -> Result | None:
        """Return the result of the run with this name, or None."""
        return self.store.result(name) if self.published is None else self.published.get(name)

    def setup(self, benchmark: str) -> BenchmarkSetup:
        """Return what is run for a benchmark of the paper at this scale."""
        return self.scale.setup(benchmark)


def find_row(study: Study, setup: BenchmarkSetup, method: str, changes: Mapping[str, Any], seeds: int) -> RequestedRow:
    """Find seeds 0, 1, ... of one row; the reference of INT is ``joint``."""
    get = f"{setup.missing} is not at hand: tmln data get {setup.missing}" if setup.missing else ""
    names = {seed: run_id(setup.config(method, seed, changes)) for seed in range(seeds)}
    return read_requested_row(names, study.result, lambda name: study.failed.get(name) or get or "not finished")


@dataclass(frozen=True)
class RecordingRequest:
    """A run to train once more to record its weights, for ``tasks`` tasks (None: all)."""

    config: RunConfig
    tasks: int | None
    checkpoints: int


def no_runs(scale: Scale) -> list[RunConfig]:
    """Return no runs, for an item that trains nothing or records only."""
    return []


def no_recordings(scale: Scale) -> list[RecordingRequest]:
    """Return no recordings, for an item of results only."""
    return []


@dataclass(frozen=True)
class Item:
    """A table or figure: its runs, recordings, and the function that renders its page."""

    name: str
    title: str
    runs: Callable[[Scale], list[RunConfig]]
    render: Callable[[Study], Page]
    recordings: Callable[[Scale], list[RecordingRequest]] = no_recordings
    picture: bool = False  # needs matplotlib
    measures: str = ""  # the kind of what is measured, if anything is


Content = dict[str, Any]


def get_scale_mark(scale: Scale) -> str:
    """Return the part of a measurement's name that stands for the scale."""
    return f"-paper-{scale.name}-"


def measure_once(
    study: Study,
    setup: BenchmarkSetup,
    kind: str,
    configs: Sequence[RunConfig],
    measure: Callable[[], Content],
    **options: Any,
) -> tuple[Content | None, list[str]]:
    """Return a measurement from disk, made if it is missing; or None and the reasons.

    ``options`` are part of its name: other options are another measurement.
    """
    key = to_json([kind, [run_id(config) for config in configs], options])
    name = f"{setup.benchmark}{get_scale_mark(study.scale)}{hashlib.sha256(key.encode()).hexdigest()[:8]}"
    found = _load(study, kind, name)
    if study.published is not None:
        return found, [] if found is not None else [f"not measured in what {study.store.root} has of {kind}"]
    if found is not None:
        return found, [f"measured before; without {study.store.root / FOLDER} it is measured anew"]
    if setup.missing:
        return None, [f"not run: {setup.missing} is not at hand; tmln data get {setup.missing}"]
    try:
        save_analysis(study.store.root, kind, name, measure())
    except (ArithmeticError, RuntimeError, ValueError) as error:
        return None, [f"not measured: {error}"]
    return _load(study, kind, name), []


def _load(study: Study, kind: str, name: str) -> Content | None:
    return next((one.content for one in read_analyses(study.store.root, kind) if one.name == name), None)


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

    def notes(self, label: str, has_int: bool = True) -> list[str]:
        """Return what a reader must know about this row; ``has_int``: its table shows INT."""
        texts = []
        if self.row is not None and self.row.diverged:
            left = "left out of the mean" if self.n else "so there is no mean"
            texts.append(f"{label}: {seeds_text(self.row.diverged)} diverged; kept in the store, {left}")
        texts += [
            f"{label}: {seeds_text([s for s in self.why if self.why[s] == reason])} not run: {reason}"
            for reason in dict.fromkeys(self.why.values())
        ]
        if self.n == 1:
            texts.append(f"{label}: one seed only, so no deviation and no interval")
        if has_int and self.n and self.unreferenced:
            texts.append(f"{label}: no joint reference for {seeds_text(self.unreferenced)}, so no INT there")
        return texts


def read_requested_row(
    names: Mapping[int, str],
    read: Callable[[str], Result | None],
    reason: Callable[[str], str],
) -> RequestedRow:
    """Read the runs of these names, by seed; ``reason`` says why one of them is missing."""
    results, why = [], {}

    def reference(name: str) -> Result | None:
        with suppress(ValueError):  # of a newer version: its own row says so
            found = read(name)
            return None if found is None else with_reference_names(found)
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
            results.append(attach_reference(with_reference_names(result), reference, ("prefix",)))
    row = replace(group_rows(results)[0], label=results[0].method) if results else None
    return RequestedRow(row, why)
