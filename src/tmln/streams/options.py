"""The options a benchmark takes: typed, with their defaults, checked once when they are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every benchmark takes; ``None`` means the benchmark's own default."""

    tasks: int | None = None
    """number of tasks"""
    per_class: int | None = None
    """training samples per class (per class and domain where there are domains), for small machines"""
    per_class_test: int | None = None
    """the same for test samples"""
    blurry: float = 0.0
    """fraction of each task's training samples that appear in other tasks instead"""
    repeats: int = 1
    """visits to each task, each with its own part of the task's training samples"""
    seed: int = 0
    """of what a stream draws: orders, permutations, hold-outs; not the seed of a run"""
    root: Path | None = None
    """data root; else TMLN_DATA, else the platform's cache folder"""
    skip_bad: bool = False
    """leave bad files and labels out with a counted warning instead of an error"""

    def __post_init__(self) -> None:
        for name in ("tasks", "per_class", "per_class_test", "repeats"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is a positive number, not {value}")
        if not 0.0 <= self.blurry <= 1.0:
            raise ValueError(f"blurry is a fraction between 0 and 1, not {self.blurry}")


@dataclass(frozen=True, kw_only=True)
class SplitOptions(Options):
    """Options where classes arrive task by task."""

    class_order: str | Sequence[int] = "ascending"
    """ascending, seeded, run-seed (each run by its own seed), seed:7, icarl1993, or the classes as "3,1,0,2" """
