"""A study: a scale and its results, items with their runs, and the pages made of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tmln.analysis.measurements import FOLDER, save_analysis
from tmln.analysis.read import read_analyses
from tmln.analysis.requested_rows import RequestedRow, read_requested_row
from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.files import to_json
from tmln.experiments.result import Result
from tmln.experiments.store import Store
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
    asked = to_json([kind, [run_id(config) for config in configs], options])
    name = f"{setup.benchmark}{get_scale_mark(study.scale)}{hashlib.sha256(asked.encode()).hexdigest()[:8]}"
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
