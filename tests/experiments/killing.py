"""What the tests of executors share: a small run, one whose process is killed on the way, and how processes end."""

from __future__ import annotations

import math
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

from torch import Tensor

from tmln.executors.execute import Event
from tmln.experiments.config import RunConfig
from tmln.experiments.lock import RunLock, RunLocked
from tmln.experiments.result import Result
from tmln.experiments.run import Execution
from tmln.experiments.store import Run, Store
from tmln.models import MLP

PATIENCE = 600.0  # seconds till a test gives up what it waits for: no measure of anything
SMALL = {"benchmark": "split-digits", "benchmark_options": {"per_class": 24, "per_class_test": 10}}


def config(method: str = "tmln", epochs: int = 2, **changes: Any) -> RunConfig:
    return RunConfig.of({**SMALL, "method": method, "epochs": epochs, **changes})


def worker_of(run: Run) -> int | None:
    """Return the process that holds the run's lock, or None."""
    try:
        with RunLock(run.path / ".lock"):
            return None
    except RunLocked as error:
        found = re.search(r"by process (\d+) on ", str(error))
        return int(found[1]) if found else None


def gone(pid: int, seconds: float = PATIENCE) -> bool:
    """Whether the process ends at all; a zombie has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.05)
    return False


class Mortal(MLP):
    """Kills its process after this many batches in training, once, and counts in a file those that come after that."""

    def __init__(self, shape: tuple[int, ...], classes: int, after: str, at: int) -> None:
        super().__init__(math.prod(shape), 128, classes)
        self.after, self.left = Path(after), at

    def forward(self, x: Tensor) -> Tensor:
        self.left -= self.training
        if self.training and self.after.exists():
            with self.after.open("a") as file:
                file.write(".")
        elif self.training and self.left < 0:
            self.after.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)


def mortal(after: Path, at: int) -> RunConfig:
    return config(model=f"{__name__}:Mortal", model_options={"after": str(after), "at": at})


class Notes:
    """All events, in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def steps_after(self, kind: str) -> list[int]:
        """The steps of the run that had the first event of this kind, from there on."""
        at = next(i for i, event in enumerate(self.events) if event.kind == kind)
        mine = [event for event in self.events[at:] if event.job == self.events[at].job]
        return [event.info.step for event in mine if event.info is not None]


def uninterrupted(root: Path, wanted: RunConfig) -> Result:
    """The run, done in this process."""
    run = Store(root).open(wanted)
    with run.lock:
        return Execution(run)()
