"""One table or figure of the paper: its name, the runs it declares, and how it is rendered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tmln.experiments.config import RunConfig
from tmln.paper.evidence import Study
from tmln.paper.page import Page
from tmln.paper.scales import Scale


@dataclass(frozen=True)
class Recorded:
    """A run trained once more to record its weights: for so many tasks (None: all), at so many points a task."""

    config: RunConfig
    tasks: int | None
    checkpoints: int


def no_runs(scale: Scale) -> list[RunConfig]:
    """Of an item that trains nothing, or only what is recorded."""
    return []


def no_recordings(scale: Scale) -> list[Recorded]:
    """Of an item that needs results alone."""
    return []


@dataclass(frozen=True)
class Item:
    """``render`` makes the page from what the store has of the ``runs``, and measures what else it needs."""

    name: str
    title: str
    runs: Callable[[Scale], list[RunConfig]]
    render: Callable[[Study], Page]
    recordings: Callable[[Scale], list[Recorded]] = no_recordings
    picture: bool = False  # needs matplotlib
    measures: str = ""  # the kind of what is measured, if anything is
