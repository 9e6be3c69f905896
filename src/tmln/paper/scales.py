"""What a scale means: which benchmark stands for each of the paper's, how long it is trained, with how many seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any

from tmln.data import list_data
from tmln.experiments.config import RunConfig
from tmln.streams import BENCHMARKS
from tmln.suggest import did_you_mean

TITLES = {name: BENCHMARKS[name].title for name in ("split-cifar100", "split-cifar10", "core50")}


@dataclass(frozen=True)
class Stand:
    """What runs where the paper runs ``paper``: a benchmark, and the settings in which runs differ from its own."""

    paper: str
    benchmark: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    memory: int | None = None  # samples, of methods that have a memory; their own unless given
    chosen: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by method: what tuning chose
    past: bool = True  # whether recipes past the paper are run on it

    def config(self, method: str, seed: int = 0, changes: Mapping[str, Any] | None = None) -> RunConfig:
        """A run on it, with the scale's settings, those that tuning chose, then ``changes``."""
        return self.plain(method, seed, {**self.chosen.get(method, {}), **(changes or {})})

    def plain(self, method: str, seed: int = 0, changes: Mapping[str, Any] | None = None) -> RunConfig:
        """The same untuned."""
        config = RunConfig(benchmark=self.benchmark, method=method, seed=seed)
        keeps = self.memory is not None and "replay.capacity" in config.resolved()["settings"]
        memory = {"replay.capacity": self.memory} if keeps else {}
        return config.with_settings({**self.settings, **memory, **(changes or {})})

    @property
    def substitute(self) -> bool:
        """Another benchmark than the paper's: every table says so."""
        return self.benchmark != self.paper

    @property
    def title(self) -> str:
        """``split-digits for Split CIFAR-100``, or the paper's name alone."""
        return f"{self.benchmark} for {TITLES[self.paper]}" if self.substitute else TITLES[self.paper]

    @property
    def remark(self) -> str:
        """How far our numbers can be held against the paper's."""
        if self.substitute:
            return (
                f"{self.benchmark} stands in the place of {TITLES[self.paper]}: the paper's numbers are of another "
                "benchmark and not comparable, only their order may be"
            )
        if self.settings:
            differs = ", ".join(f"{key} = {value}" for key, value in self.settings.items())
            return f"{TITLES[self.paper]} is run at {differs}: not the paper's protocol"
        return f"{TITLES[self.paper]} under the paper's protocol, as far as the paper states it"

    @property
    def missing(self) -> str | None:
        """The data set that is not at hand, if it is not: ``tmln data get`` takes its name."""
        return missing_data(self.benchmark)


@dataclass(frozen=True)
class Scale:
    """``seeds`` are for the tables of methods, ``grid_seeds`` for the grid and the barriers."""

    name: str
    about: str
    stands: Mapping[str, Stand]
    seeds: int
    grid_seeds: int
    resolution: int = 25  # points a side of a landscape
    samples: int = 500  # whose loss is taken at a point of a landscape or of a line
    rounds: int = 5  # turns of each method when overheads are measured
    tuned: bool = False  # every method as the tuning item chose
    larger: Mapping[str, Any] = field(default_factory=dict)  # what the confirmation sets otherwise
    threads: int | None = None  # of this process, which records and measures; all cores unless given

    def stand(self, benchmark: str) -> Stand:
        """By the paper's benchmark."""
        return self.stands[benchmark]


def _stands(*stands: Stand) -> dict[str, Stand]:
    return {stand.paper: stand for stand in stands}


# The protocol of ``cpu``: a run takes 10 to 20 seconds on one core. Untuned, of one seed: on Split CIFAR-10 joint 51.9
# and er 38.2; on Split CIFAR-100 joint 18.0, er 11.6, naive 4.4; on PACS, of two seeds, joint 49.6, er 41.0 and naive
# 28.1 (with a memory of 100 samples er is as good as joint).
_SMALL = {"model": "convnet", "batch_size": 32, "epochs": 5}


def _chosen(benchmark: str) -> Mapping[str, Mapping[str, Any]]:
    """What ``tmln paper tuning --scale cpu`` chose, by method."""
    text = resources.files("tmln.paper").joinpath("chosen.json").read_text(encoding="utf-8")
    found: Mapping[str, Mapping[str, Any]] = json.loads(text).get(benchmark, {})
    return found


SCALES: dict[str, Scale] = {
    "smoke": Scale(
        "smoke",
        "digits that ship with scikit-learn for the paper's images",
        _stands(
            Stand("split-cifar100", "split-digits"),
            Stand("split-cifar10", "split-digits"),
            Stand("core50", "rotated-digits"),
        ),
        seeds=3,
        grid_seeds=2,
        larger={"model.hidden": 256},
        threads=1,  # networks are too small for more
    ),
    "cpu": Scale(
        "cpu",
        "real images of 16x16 pixels, a small network, every method tuned alike",
        _stands(
            Stand(
                "split-cifar100",
                "split-cifar100",
                {**_SMALL, "benchmark.shrink": 2, "benchmark.per_class": 100},
                memory=500,
                chosen=_chosen("split-cifar100"),
            ),
            Stand(
                "split-cifar10",
                "split-cifar10",
                {**_SMALL, "benchmark.shrink": 2, "benchmark.per_class": 1000},
                memory=200,
                chosen=_chosen("split-cifar10"),
            ),
            Stand("core50", "pacs", {**_SMALL, "benchmark.shrink": 4}, memory=50, chosen=_chosen("pacs"), past=False),
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
        _stands(*(Stand(name, name) for name in TITLES)),
        seeds=5,
        grid_seeds=5,
        resolution=41,
    ),
}


def missing_data(benchmark: str) -> str | None:
    """The data set that this benchmark needs and that is not at hand."""
    name = BENCHMARKS[benchmark].data
    there = {status.name for status in list_data() if status.path is not None}
    return name if name is not None and name not in there else None


def with_seeds(scale: Scale, seeds: int | None) -> Scale:
    """The same with so many seeds for everything; None leaves it as it is."""
    return scale if seeds is None else replace(scale, seeds=seeds, grid_seeds=seeds)


def find_scale(name: str) -> Scale:
    """``find_scale("cpu")``; an unknown name is an error that lists what there is."""
    if name not in SCALES:
        raise ValueError(f"unknown scale {name!r}{did_you_mean(name, SCALES)} (scales: {', '.join(SCALES)})")
    return SCALES[name]
