"""Learning-rate schedules within a task: a factor from its first step to its last."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

ScheduleName = Literal["constant", "cosine", "linear"]
SCHEDULES = get_args(ScheduleName)


def rate_factor(rule: str, warm: int, step: int, steps: int) -> float:
    """Return the factor of the rate in a step.

    Warm-up rises to 1, (t+1)/W. With t and T counted from there on: 1, (1 + cos(pi*t/T))/2, or 1 -
    t/T; never 0.

    Args:
        rule: ``constant``, ``cosine`` or ``linear``.
        warm: Steps of warm-up.
        step: The step, counted from 0.
        steps: All steps of the task.

    >>> [rate_factor("linear", 2, step, 6) for step in range(6)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    if step < warm:
        return (step + 1) / warm
    gone = (step - warm) / (steps - warm)
    if rule == "cosine":
        return (1.0 + math.cos(math.pi * gone)) / 2.0
    return 1.0 - gone if rule == "linear" else 1.0


@dataclass(frozen=True)
class Schedule:
    """A rule and its warm-up: steps, or if less than 1 a share of the task's steps."""

    rule: str = "constant"
    warmup: float = 0.0

    def __post_init__(self) -> None:
        if self.rule not in SCHEDULES:
            raise ValueError(f"schedule must be one of {', '.join(SCHEDULES)}; got {self.rule!r}")
        if not 0 <= self.warmup < math.inf or (self.warmup >= 1 and self.warmup != int(self.warmup)):
            raise ValueError(
                f"warmup is a share of the task's steps, less than 1, or a whole number of steps; got {self.warmup}"
            )

    @property
    def changes(self) -> bool:
        """Whether the rate ever differs from the configured one."""
        return self.rule != "constant" or self.warmup > 0

    def factor(self, step: int, steps: int) -> float:
        """Return the factor of a step, counted from 0; a warm-up may be longer than the task."""
        warm = round(self.warmup * steps) if self.warmup < 1 else int(self.warmup)
        return rate_factor(self.rule, warm, step, steps)
