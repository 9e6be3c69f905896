"""Scales: which benchmark is run for each of the paper's, how long, and with how many seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any

from tmln.data import list_data
from tmln.experiments.config import RunConfig
from tmln.paper.anchors import ANCHORS, Anchor
from tmln.streams import BENCHMARKS
from tmln.suggest import did_you_mean

VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "tmln with momentum": ("tmln", {"step.momentum": 0.9}),
    "tmln-kfac+ with momentum": ("tmln-kfac+", {"step.momentum": 0.9}),
    "ocar with momentum": ("ocar", {"step.momentum": 0.9}),
    "ocar+der with momentum": ("ocar+der", {"step.momentum": 0.9}),
    "der++ with separate passes": ("der++", {"replay.passes": "separate"}),
}
"""Rows that are a method with fixed settings, tuned like a method: row -> (method, settings)."""

TITLES = {name: BENCHMARKS[name].title for name in ("split-cifar100", "split-cifar10", "core50")}


def split_variant(row: str) -> tuple[str, Mapping[str, Any]]:
    """Return the method of a row, and the settings that are fixed in it.

    >>> split_variant("tmln with momentum"), split_variant("er")
    (('tmln', {'step.momentum': 0.9}), ('er', {}))
    """
    return VARIANTS.get(row, (row, {}))


@dataclass(frozen=True)
class BenchmarkSetup:
    """The benchmark that is run for ``paper``, and the settings that differ from its own."""

    paper: str
    benchmark: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    memory: int | None = None  # samples of methods with a memory; by default their own
    chosen: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by method: the settings chosen by tuning
    has_recipes: bool = True  # whether recipes beyond the paper are run on it

    def config(self, method: str, seed: int = 0, changes: Mapping[str, Any] | None = None) -> RunConfig:
        """Return a run with the scale's settings, those chosen by tuning, then ``changes``."""
        return self.plain(method, seed, {**self.chosen.get(method, {}), **(changes or {})})

    def plain(self, method: str, seed: int = 0, changes: Mapping[str, Any] | None = None) -> RunConfig:
        """Return a run with the scale's settings and ``changes``, without those of tuning.

        ``method`` is a method or a variant.
        """
        method, fixed = split_variant(method)
        config = RunConfig(benchmark=self.benchmark, method=method, seed=seed)
        keeps = self.memory is not None and "replay.capacity" in config.resolved()["settings"]
        memory = {"replay.capacity": self.memory} if keeps else {}
        return config.with_settings({**self.settings, **memory, **fixed, **(changes or {})})

    @property
    def substitute(self) -> bool:
        """Return whether this is another benchmark than the paper's; every table says so."""
        return self.benchmark != self.paper

    @property
    def title(self) -> str:
        """Return ``split-digits for Split CIFAR-100``, or the paper's name alone."""
        return f"{self.benchmark} for {TITLES[self.paper]}" if self.substitute else TITLES[self.paper]

    @property
    def remark(self) -> str:
        """Return how far our numbers can be compared with the paper's."""
        if self.substitute:
            return (
                f"{self.benchmark} is run in place of {TITLES[self.paper]}: the paper's numbers are of another "
                "benchmark and not comparable, only their order may be"
            )
        if self.settings:
            differs = ", ".join(f"{key} = {value}" for key, value in self.settings.items())
            return f"{TITLES[self.paper]} is run at {differs}: not the paper's protocol"
        return f"{TITLES[self.paper]} under the paper's protocol, as far as the paper states it"

    @property
    def missing(self) -> str | None:
        """Return the data set that is missing, a name for ``tmln data get``; else None."""
        return missing_data(self.benchmark)


@dataclass(frozen=True)
class Scale:
    """A scale; ``seeds`` are those of method tables, ``grid_seeds`` those of grids and barriers."""

    name: str
    about: str
    setups: Mapping[str, BenchmarkSetup]
    seeds: int
    grid_seeds: int
    resolution: int = 25  # points per side of a landscape
    samples: int = 500  # samples of a loss in a landscape or on a line
    rounds: int = 5  # turns of each method in overhead measurements
    tuned: bool = False  # every method with the settings chosen by tuning
    can_be_tuned: bool = False  # `tmln paper tuning` alone runs the searches, and no table takes their choices
    larger: Mapping[str, Any] = field(default_factory=dict)  # settings of the confirmation
    threads: int | None = None  # of the process that records and measures; by default all cores
    anchors: tuple[Anchor, ...] = ()  # published results to run again

    def setup(self, benchmark: str) -> BenchmarkSetup:
        """Return what is run for a benchmark of the paper."""
        return self.setups[benchmark]


def _by_paper(*setups: BenchmarkSetup) -> dict[str, BenchmarkSetup]:
    return {setup.paper: setup for setup in setups}


# The protocol of ``cpu``: a run takes 10 to 20 seconds on one core. Untuned, of one seed: on Split
# CIFAR-10 joint 51.9 and er 38.2; on Split CIFAR-100 joint 18.0, er 11.6, naive 4.4; on PACS, of
# two seeds, joint 49.6, er 41.0 and naive 28.1 (with a memory of 100 samples er is as good as
# joint).
_SMALL = {"model": "convnet", "batch_size": 32, "epochs": 5}


def _chosen(benchmark: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the settings by method that ``tmln paper tuning --scale cpu`` chose."""
    text = resources.files("tmln.paper").joinpath("chosen.json").read_text(encoding="utf-8")
    found: Mapping[str, Mapping[str, Any]] = json.loads(text).get(benchmark, {})
    return found


SCALES: dict[str, Scale] = {
    "smoke": Scale(
        "smoke",
        "digits that ship with scikit-learn for the paper's images",
        _by_paper(
            BenchmarkSetup("split-cifar100", "split-digits"),
            BenchmarkSetup("split-cifar10", "split-digits"),
            BenchmarkSetup("core50", "rotated-digits"),
        ),
        seeds=3,
        grid_seeds=2,
        larger={"model.hidden": 256},
        threads=1,  # networks are too small for more
    ),
    "cpu": Scale(
        "cpu",
        "real images of 16x16 pixels, a small network, every method tuned alike",
        _by_paper(
            BenchmarkSetup(
                "split-cifar100",
                "split-cifar100",
                {**_SMALL, "benchmark.shrink": 2, "benchmark.per_class": 100},
                memory=500,
                chosen=_chosen("split-cifar100"),
            ),
            BenchmarkSetup(
                "split-cifar10",
                "split-cifar10",
                {**_SMALL, "benchmark.shrink": 2, "benchmark.per_class": 1000},
                memory=200,
                chosen=_chosen("split-cifar10"),
            ),
            BenchmarkSetup(
                "core50",
                "pacs",
                {**_SMALL, "benchmark.shrink": 4},
                memory=50,
                chosen=_chosen("pacs"),
                has_recipes=False,
            ),
        ),
        seeds=5,
        grid_seeds=3,
        tuned=True,
        larger={"model": "resnet18", "model.width": 8, "benchmark.shrink": 1, "epochs": 3},
        resolution=15,
        samples=200,
        rounds=3,
        threads=1,
    ),
    "full": Scale(
        "full",
        "the paper's protocol: its epochs, width 64, five seeds",
        _by_paper(*(BenchmarkSetup(name, name) for name in TITLES)),
        seeds=5,
        grid_seeds=5,
        can_be_tuned=True,
        resolution=41,
        anchors=ANCHORS,
    ),
}


def missing_data(benchmark: str) -> str | None:
    """Return the data set that a benchmark needs and that is missing, or None."""
    name = BENCHMARKS[benchmark].data
    there = {status.name for status in list_data() if status.path is not None}
    return name if name is not None and name not in there else None


def with_seeds(scale: Scale, seeds: int | None) -> Scale:
    """Return the scale with this number of seeds for everything; None leaves it unchanged."""
    return scale if seeds is None else replace(scale, seeds=seeds, grid_seeds=seeds)


def find_scale(name: str) -> Scale:
    """Return a scale by name."""
    if name not in SCALES:
        raise ValueError(f"unknown scale {name!r}{did_you_mean(name, SCALES)} (scales: {', '.join(SCALES)})")
    return SCALES[name]
