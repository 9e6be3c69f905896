"""A run so far, apart from the learner: what its checkpoint carries and its result will say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tmln.evaluation_counts import CALIBRATION, COUNT, MOST_BYTES, pack_confusion
from tmln.experiments.predictions import compact
from tmln.learner.evaluation_statistics import Liveliness, Tally


@dataclass
class Progress:
    """What was observed, a row after each task; and how the run began, which it goes on with."""

    step: int = 0
    seconds: float = 0.0
    peak: int = 0  # bytes, in the processes that worked on it before
    accuracy: list[list[float]] = field(default_factory=list)
    masked: list[list[float]] = field(default_factory=list)
    validation: list[list[float]] = field(default_factory=list)
    extra: dict[str, list[float]] = field(default_factory=dict)
    baseline: list[float] = field(default_factory=list)
    pieces: int | None = None  # samples that go through the model at a time, kept so that bits do not change
    confusion: list[str] = field(default_factory=list)
    bins: list[list[list[float]]] = field(default_factory=list)  # of confidence, as a Tally has them
    dormant: list[float] = field(default_factory=list)
    rank: list[float] = field(default_factory=list)
    every: int = 0  # steps between tests within tasks; 0: none
    within: list[dict[str, Any]] = field(default_factory=list)
    keeps: list[str] = field(default_factory=list)
    predicted: list[Tensor] = field(default_factory=list)

    def note(self, tally: Tally, liveliness: Liveliness) -> None:
        """What was counted while testing after a task."""
        if tally.confusion.numel() * COUNT.itemsize <= MOST_BYTES:  # a larger one could not be read again
            self.confusion.append(pack_confusion(tally.confusion.numpy()))
        self.bins.append(tally.bins.tolist())
        if liveliness.dormant is not None:
            self.dormant.append(liveliness.dormant)
        if liveliness.rank is not None:
            self.rank.append(liveliness.rank)
        if "predictions" in self.keeps:
            self.predicted.append(compact(torch.cat(tally.predicted), len(tally.confusion)))

    def counted(self) -> dict[str, Any]:
        """What was counted, as a result has it."""
        bins = {key: [rows[place] for rows in self.bins] for place, key in enumerate(CALIBRATION)}
        within = {key: [row[key] for row in self.within] for key in ("step", "task", "accuracy")}
        return {
            "confusion": self.confusion[-1:] if sum(map(len, self.confusion)) > MOST_BYTES else self.confusion,
            "calibration": bins if self.bins else {},
            "within": {"every": self.every, **within} if self.every else {},
            "dormant_units": self.dormant,
            "feature_rank": self.rank,
        }
