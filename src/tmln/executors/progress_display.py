"""Show the progress of runs: a bar, a live table, or plain lines without a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tmln.executors.execute import Event
from tmln.executors.plan import Job
from tmln.experiments.config import run_id
from tmln.experiments.result import Result
from tmln.experiments.run import StepInfo
from tmln.printable import printable

PAUSE = 15.0  # seconds between plain lines while no run ends
DETAIL = 38  # columns for the step or the result of a run
STYLES = {"failed": "red", "diverged": "yellow", "finished": "green"}
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
    """The state of one job, its last progress message and its result."""

    job: Job
    label: str
    state: State = "waiting"
    note: str = ""
    skipped: bool = False  # finished by an earlier command
    first: tuple[float, int] | None = None  # time and step of the first message of this attempt
    info: StepInfo | None = None
    heard: float = 0.0
    result: Result | None = None
    changed: float = 0.0

    def seconds_left(self, now: float) -> float | None:
        """Return the seconds left at the run's own speed; None until that is known."""
        if self.state != "running" or self.info is None:
            return None
        pace = self.pace
        return pace and max(0.0, (self.info.steps - self.info.step) * pace - (now - self.heard))

    @property
    def pace(self) -> float | None:
        """Return the seconds per step since the first message of this attempt."""
        if self.info is None or self.first is None or self.info.step == self.first[1]:
            return None
        return (self.heard - self.first[0]) / (self.info.step - self.first[1])

    def seconds_whole(self) -> float | None:
        """Return the seconds of the whole run from its beginning; None until that is known."""
        if self.result is not None:
            return self.result.seconds
        left = self.seconds_left(self.heard)
        if left is None or self.info is None or self.info.step == self.info.steps:
            return None
        return left * self.info.steps / (self.info.steps - self.info.step)


class ProgressState:
    """The progress of all jobs, from the events of :func:`tmln.executors.execute.execute`."""

    def __init__(self, labels: Mapping[str, tuple[Job, str]], clock: Callable[[], float] = time.monotonic) -> None:
        """Take each job and its label, by the name of its run."""
        self.clock = clock
        self.all = {name: RunProgress(job, label) for name, (job, label) in labels.items()}

    def update(self, event: Event) -> RunProgress:
        """Apply an event, and return the progress of its run."""
        run, now = self.all[run_id(event.job.config)], self.clock()
        if event.kind == "step" and event.info is not None:
            run.first = run.first or (now, event.info.step)
            run.info, run.heard = event.info, now
            return run
        if event.kind == "warning":
            return run
        run.changed, run.note, run.first, run.info = now, event.text, None, None
        if event.kind in ("finished", "skipped"):
            run.result, run.skipped = event.result, event.kind == "skipped"
            diverged = event.result.diverged if event.result else ""
            run.note, run.state = (diverged, "diverged") if diverged else (event.text, "finished")
        elif event.kind in ("retried", "locked"):
            run.state = "waiting"
        else:
            run.state = "failed" if event.kind == "failed" else "running"
        return run

    def of(self, *states: State) -> list[RunProgress]:
        """Return the runs in these states, the latest change first."""
        found = [run for run in self.all.values() if run.state in states]
        return sorted(found, key=lambda run: -run.changed)

    def seconds_left(self) -> float | None:
        """Return the seconds left for all runs, at as many at a time as now; None until known."""
        running, now = self.of("running"), self.clock()
        wholes: dict[str, list[float]] = {}
        for run in self.all.values():
            whole = run.seconds_whole()
            if whole is not None:
                wholes.setdefault(run.job.config.method, []).append(whole)
        if not wholes:
            return None
        means = {method: sum(values) / len(values) for method, values in wholes.items()}
        other = sum(means.values()) / len(means)
        lefts = []
        for run in running:
            left = run.seconds_left(now)
            lefts.append(means.get(run.job.config.method, other) if left is None else left)
        ahead = [means.get(run.job.config.method, other) for run in self.of("waiting")]
        return max([(sum(lefts) + sum(ahead)) / max(1, len(running)), *lefts])

    def __str__(self) -> str:
        """Return ``12 runs: 5 finished, 2 running, 1 failed, 4 to go, about 3 min left``."""
        texts = []
        for state, words in WORDS.items():
            number = len(self.of(state))
            if number or state == "finished":
                texts.append(f"{number} {words}")
        left = self.seconds_left() if self.of("running", "waiting") else None
        if left is not None:
            texts.append(f"about {duration(left)} left")
        return f"{len(self.all)} runs: {', '.join(texts)}"


def duration(seconds: float) -> str:
    """Format seconds: ``0.4 s``, ``42 s``, ``7 min``, ``3.5 h``, ``2.1 days``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


class ProgressDisplay(AbstractContextManager["ProgressDisplay"]):
    """A display of runs; :meth:`update` is an ``on_event`` of ``execute``."""

    def __init__(
        self,
        labels: Mapping[str, tuple[Job, str]],
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        brief: bool = False,
    ) -> None:
        """Take each job and its label, by the name of its run; ``brief`` shows no finished runs."""
        self.stream, self.clock, self.brief = stream or sys.stderr, clock, brief
        self.progress = ProgressState(labels, clock)
        self.console = Console(file=self.stream)
        self.live = (
            Live(console=self.console, get_renderable=self.render, transient=True) if self.stream.isatty() else None
        )
        self._printed_at = clock()
        self._locked: set[str] = set()
        self._skipped: list[str] = []

    def __enter__(self) -> ProgressDisplay:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.live:
            self.live.stop()
            self.live = None
        self._print_skipped()
        if not self.brief and error is None and len(self.progress.all) > 1:
            self._print(str(self.progress))

    def update(self, event: Event) -> None:
        """Show an event: in the table or the bar, and, if it matters, as a line."""
        run = self.progress.update(event)
        if event.kind == "skipped":
            self._skipped.append(run.label)
            return
        self._print_skipped()
        if event.kind == "warning":
            self._print(f"warning: {run.label}: {event.text}")
        elif event.kind == "retried":
            self._print(f"{run.label}: {event.text}; it goes on from its checkpoint")
        elif event.kind == "locked" and run.label not in self._locked:
            self._locked.add(run.label)
            self._print(f"{run.label}: waits, for {event.text}")
        elif event.kind in ("finished", "failed") and not self.brief and (self.live is None or self._alone):
            self._print(f"{run.label}: {_describe(run)}{'' if self._alone else f' ({self.progress})'}")
        elif self.live is None and self.clock() - self._printed_at > PAUSE:
            self._print(f"{run.label}: {self._describe_speed(run)}" if self._alone else str(self.progress))

    def step(self, job: Job, info: StepInfo) -> None:
        """Show a step of a run that :func:`~tmln.executors.execute.execute` does not execute."""
        self.update(Event("step", job, info=info))

    @property
    def _alone(self) -> bool:
        return len(self.progress.all) == 1

    def _print_skipped(self) -> None:
        """Print one line for all runs that were finished before."""
        found, self._skipped = self._skipped, []
        if found and not self.brief:
            self._print(f"{found[0]}: done before" if len(found) == 1 else f"{len(found)} runs were done before")

    def _describe_speed(self, run: RunProgress) -> str:
        """Return where a run is, its speed, and the time left."""
        info, pace, left = run.info, run.pace, run.seconds_left(self.clock())
        if info is None or not pace or left is None:
            return _describe(run)
        speed = f"step {info.step}/{info.steps}, {info.samples / pace:.0f} samples/s"
        return f"{_describe(run)}, {speed}, {duration(left)} left"

    def render(self) -> RenderableType:
        """Return the bar of a single run, or as many rows of a table as fit."""
        width, height = self.console.size
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        if self._alone:
            (run,) = self.progress.all.values()
            info = run.info
            bar = ProgressBar(info.steps, info.step, width=12) if info else ProgressBar(1, 0, width=12)
            table.show_header = False
            label = _shorten(printable(run.label), max(24, width - DETAIL - 26))
            table.add_row(Text(label), bar, Text(printable(self._describe_speed(run))))
            return table
        for heading in ("run", "state", "", "left"):
            table.add_column(heading, no_wrap=True, max_width=DETAIL if not heading else None)
        ended = self.progress.of("diverged", "finished")
        for run in [*self.progress.of("failed"), *self.progress.of("running"), *ended][: max(3, height - 4)]:
            left = run.seconds_left(self.clock())
            table.add_row(
                Text(_shorten(printable(run.label), max(24, width - DETAIL - 26))),
                Text(run.state, style=STYLES.get(run.state, "")),
                Text(printable(_describe(run))),
                "" if left is None else duration(left),
            )
        return Group(table, Text(str(self.progress), style="bold"))

    def _print(self, text: str) -> None:
        self._printed_at = self.clock()
        if self.live:
            self.live.console.print(Text(printable(text)))
        else:
            print(printable(text), file=self.stream, flush=True)


def _describe(run: RunProgress) -> str:
    info = run.info
    if run.state == "finished" and run.result is not None:
        when = "before" if run.skipped else f"in {duration(run.result.seconds)}"
        return f"ACC {100 * run.result.metrics['acc']:.1f} {when}"
    if run.state == "diverged":
        return f"diverged ({run.note})"
    if info is not None:
        return f"task {info.task + 1}/{info.tasks} epoch {info.epoch + 1}/{info.epochs} loss {info.loss:.3f}"
    if run.state == "running":
        return "starting"
    return f"failed: {run.note}" if run.state == "failed" else run.note or run.state


def _shorten(label: str, width: int) -> str:
    """Shorten a label to ``width``, keeping its end, where the seed is."""
    return label if len(label) <= width else f"{label[: width - 11]}…{label[-10:]}"
