"""How far a number of runs have come: which are finished, at work or failed, and the time that is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from tmln.executors.plan import Job
from tmln.executors.schedule import Event
from tmln.experiments.config import run_id
from tmln.experiments.result import Result
from tmln.experiments.run import Moment

State = Literal["waiting", "running", "finished", "diverged", "failed"]
WORDS: dict[State, str] = {
    "finished": "finished",
    "diverged": "diverged",
    "running": "running",
    "failed": "failed",
    "waiting": "to go",
}


@dataclass
class RunProgress:
    """One job: its state, where it is, and what it came to."""

    job: Job
    label: str
    state: State = "waiting"
    note: str = ""
    before: bool = False  # done in an earlier session
    first: tuple[float, int] | None = None  # time and step when this try was first heard of
    moment: Moment | None = None
    heard: float = 0.0
    result: Result | None = None
    changed: float = 0.0

    def seconds_left(self, now: float) -> float | None:
        """By its own speed; None until that is known."""
        if self.state != "running" or self.moment is None:
            return None
        pace = self.pace
        return pace and max(0.0, (self.moment.steps - self.moment.step) * pace - (now - self.heard))

    @property
    def pace(self) -> float | None:
        """Seconds a step, since this try was first heard of: the time it took to get ready does not count."""
        if self.moment is None or self.first is None or self.moment.step == self.first[1]:
            return None
        return (self.heard - self.first[0]) / (self.moment.step - self.first[1])

    def seconds_whole(self) -> float | None:
        """What a run like this takes from its beginning."""
        if self.result is not None:
            return self.result.seconds
        left = self.seconds_left(self.heard)
        if left is None or self.moment is None or self.moment.step == self.moment.steps:
            return None
        return left * self.moment.steps / (self.moment.steps - self.moment.step)


class ProgressState:
    """All of them; :meth:`note` takes the events of :func:`tmln.executors.execute.execute`."""

    def __init__(self, labels: Mapping[str, tuple[Job, str]], clock: Callable[[], float] = time.monotonic) -> None:
        """``labels``: by the name of its run, each job and what it is called."""
        self.clock = clock
        self.all = {name: RunProgress(job, label) for name, (job, label) in labels.items()}

    def note(self, event: Event) -> RunProgress:
        """Count what happened, and return where its run stands now."""
        standing, now = self.all[run_id(event.job.config)], self.clock()
        if event.kind == "step" and event.moment is not None:
            standing.first = standing.first or (now, event.moment.step)
            standing.moment, standing.heard = event.moment, now
            return standing
        if event.kind == "said":
            return standing
        standing.changed, standing.note, standing.first, standing.moment = now, event.text, None, None
        if event.kind in ("finished", "before"):
            standing.result, standing.before = event.result, event.kind == "before"
            diverged = event.result.diverged if event.result else ""
            standing.note, standing.state = (diverged, "diverged") if diverged else (event.text, "finished")
        elif event.kind in ("again", "elsewhere"):
            standing.state = "waiting"
        else:
            standing.state = "failed" if event.kind == "failed" else "running"
        return standing

    def of(self, *states: State) -> list[RunProgress]:
        """Those in these states, the latest change first."""
        found = [standing for standing in self.all.values() if standing.state in states]
        return sorted(found, key=lambda standing: -standing.changed)

    def seconds_left(self) -> float | None:
        """For all of it, at the present number of runs at a time; None until something is known."""
        running, now = self.of("running"), self.clock()
        wholes: dict[str, list[float]] = {}
        for standing in self.all.values():
            whole = standing.seconds_whole()
            if whole is not None:
                wholes.setdefault(standing.job.config.method, []).append(whole)
        if not wholes:
            return None
        means = {method: sum(values) / len(values) for method, values in wholes.items()}
        other = sum(means.values()) / len(means)
        lefts = []
        for standing in running:
            left = standing.seconds_left(now)
            lefts.append(means.get(standing.job.config.method, other) if left is None else left)
        ahead = [means.get(standing.job.config.method, other) for standing in self.of("waiting")]
        return max([(sum(lefts) + sum(ahead)) / max(1, len(running)), *lefts])

    def __str__(self) -> str:
        """``12 runs: 5 finished, 2 running, 1 failed, 4 to go, about 3 min left``."""
        said = []
        for state, words in WORDS.items():
            number = len(self.of(state))
            if number or state == "finished":
                said.append(f"{number} {words}")
        left = self.seconds_left() if self.of("running", "waiting") else None
        if left is not None:
            said.append(f"about {duration(left)} left")
        return f"{len(self.all)} runs: {', '.join(said)}"


def duration(seconds: float) -> str:
    """``0.4 s``, ``42 s``, ``7 min``, ``3.5 h``, ``2.1 days``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
