"""Options of how runs are executed, which change no result."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from tmln.experiments.machine import VARIABLE as DEVICE
from tmln.experiments.memory_estimate import VARIABLE as MEMORY
from tmln.experiments.result import Oracle
from tmln.models.custom import VARIABLE as ALLOW_CODE
from tmln.models.custom import code_allowed

KEEPABLE = ("predictions",)


@dataclass(frozen=True)
class RunOptions:
    """Options of how one run is executed.

    ``threads`` follow the rule of :mod:`tmln.executors.config` unless given.
    """

    oracle: Oracle = "none"
    checkpoint_seconds: float = 300.0
    checkpoint_steps: int | None = None
    logger: str = "none"
    threads: int | None = None
    device: str = field(default_factory=lambda: os.environ.get(DEVICE) or "auto")
    memory: str = field(default_factory=lambda: os.environ.get(MEMORY) or "")  # what each run may hold
    allow_code: bool = field(default_factory=code_allowed)
    eval_every: int | None = None  # steps between tests within tasks; none but after each task
    keep: tuple[str, ...] = ()  # of KEEPABLE: what is kept besides the result
    accumulate: int = 1  # pieces in which a batch is passed

    def apply(self) -> None:
        """Set device, memory and permission to import code for this process."""
        os.environ[DEVICE] = self.device
        os.environ[MEMORY] = self.memory
        os.environ[ALLOW_CODE] = "1" if self.allow_code else "0"
