"""What the tests of executors share: a run that lasts a little, and the end of the process that does it."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from tmln.lab.config import RunConfig
from tmln.lab.executors import Event
from tmln.lab.run import Execution
from tmln.lab.store import Run, Store

SMALL = {"benchmark": "split-digits", "benchmark_options": {"per_class": 24, "per_class_test": 10}}


def config(method: str = "tmln", epochs: int = 2, **changes: Any) -> RunConfig:
    return RunConfig.of({**SMALL, "method": method, "epochs": epochs, **changes})


def worker_of(run: Run) -> int | None:
    """The process that holds the run's lock."""
    for path in sorted((run.path / ".lock").glob("[0-9]*"), reverse=True):
        text = path.read_text(encoding="utf-8")
        return None if text.endswith("free\n") or not text else int(json.loads(text)["pid"])
    return None


def gone(pid: int, seconds: float = 30.0) -> bool:
    """Whether the process ends in time; a zombie has ended."""
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


class Killer:
    """Notes all events, and kills the process of one run once, when it is past a checkpoint."""

    def __init__(self, store: Store, victim: RunConfig) -> None:
        self.store, self.victim = store, victim
        self.events: list[Event] = []
        self.killed: int | None = None

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if event.kind != "step" or event.job.config != self.victim or self.killed is not None:
            return
        run = self.store.open(self.victim)
        pid = worker_of(run)
        if pid is not None and any(run.checkpoints.glob("*-step-*")):
            os.kill(pid, signal.SIGKILL)
            self.killed = pid

    def steps_after(self, kind: str) -> list[int]:
        """The victim's steps from the first event of this kind on."""
        mine = [event for event in self.events if event.job.config == self.victim]
        at = next(i for i, event in enumerate(mine) if event.kind == kind)
        return [event.moment.step for event in mine[at:] if event.moment is not None]


def uninterrupted(root: Path, wanted: RunConfig) -> dict[str, Any]:
    """The run, done in this process."""
    run = Store(root).open(wanted)
    with run.lock:
        return Execution(run)()
