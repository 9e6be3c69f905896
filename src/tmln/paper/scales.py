"""What a scale means: which benchmark stands for each of the paper's, how long it is trained, with how many seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tmln.data import list_data
from tmln.lab.config import RunConfig
from tmln.streams import BENCHMARKS
from tmln.suggest import did_you_mean

TITLES = {name: BENCHMARKS[name].title for name in ("split-cifar100", "split-cifar10", "core50")}


@dataclass(frozen=True)
class Stand:
    """What runs where the paper runs ``paper``: a benchmark, and the settings in which runs differ from its own."""

    paper: str
    benchmark: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def config(self, method: str, seed: int = 0, changes: Mapping[str, Any] | None = None) -> RunConfig:
        """A run on it, with the scale's settings, then ``changes``."""
        plain = RunConfig(benchmark=self.benchmark, method=method, seed=seed)
        return plain.with_settings({**self.settings, **(changes or {})})

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
    threads: int | None = None  # of this process, which records and measures; all cores unless given

    def stand(self, benchmark: str) -> Stand:
        """By the paper's benchmark."""
        return self.stands[benchmark]


def _stands(*stands: Stand) -> dict[str, Stand]:
    return {stand.paper: stand for stand in stands}


_SLIM = {"model": "resnet18-slim"}
_FEW_FRAMES = {
    "model.width": 0.35,
    "benchmark.per_class": 100,
    "benchmark.per_class_test": 30,
    "batch_size": 32,
    "epochs": 1,
}

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
        threads=1,  # networks are too small for more
    ),
    "cpu": Scale(
        "cpu",
        "the real images, a network of width 20, few epochs",
        _stands(
            Stand("split-cifar100", "split-cifar100", {**_SLIM, "epochs": 2}),
            Stand("split-cifar10", "split-cifar10", {**_SLIM, "epochs": 1}),
            Stand("core50", "core50", _FEW_FRAMES),
        ),
        seeds=2,
        grid_seeds=1,
        resolution=15,
        samples=200,
        rounds=3,
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
