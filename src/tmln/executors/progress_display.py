"""Runs at work, as a person sees them: a bar for one, a live table for many, plain lines where there is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tmln.executors.plan import Job
from tmln.executors.progress_state import ProgressState, RunProgress, duration
from tmln.executors.schedule import Event
from tmln.experiments.run import Moment
from tmln.printable import printable

PAUSE = 15.0  # seconds between plain lines while nothing ends
DETAIL = 38  # columns for what a run is at, or came to
STYLES = {"failed": "red", "diverged": "yellow", "finished": "green"}


class Display(AbstractContextManager["Display"]):
    """Give its :meth:`note` to :func:`tmln.executors.execute.execute`."""

    def __init__(
        self,
        labels: Mapping[str, tuple[Job, str]],
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        brief: bool = False,
    ) -> None:
        """``labels``: by the name of its run, each job and what it is called. ``brief``: nothing of what ends well."""
        self.stream, self.clock, self.brief = stream or sys.stderr, clock, brief
        self.standings = ProgressState(labels, clock)
        self.console = Console(file=self.stream)
        self.live = (
            Live(console=self.console, get_renderable=self.render, transient=True) if self.stream.isatty() else None
        )
        self._said = clock()
        self._elsewhere: set[str] = set()
        self._before: list[str] = []

    def __enter__(self) -> Display:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.live:
            self.live.stop()
            self.live = None
        self._say_before()
        if not self.brief and error is None and len(self.standings.all) > 1:
            self._say(str(self.standings))

    def note(self, event: Event) -> None:
        """Show what happened: a line where it is worth one, the table or the bar in any case."""
        standing = self.standings.note(event)
        if event.kind == "before":
            self._before.append(standing.label)
            return
        self._say_before()
        if event.kind == "said":
            self._say(f"warning: {standing.label}: {event.text}")
        elif event.kind == "again":
            self._say(f"{standing.label}: {event.text}; it goes on from its checkpoint")
        elif event.kind == "elsewhere" and standing.label not in self._elsewhere:
            self._elsewhere.add(standing.label)
            self._say(f"{standing.label}: waits, for {event.text}")
        elif event.kind in ("finished", "failed") and not self.brief and (self.live is None or self._alone):
            self._say(f"{standing.label}: {_outcome(standing)}{'' if self._alone else f' ({self.standings})'}")
        elif self.live is None and self.clock() - self._said > PAUSE:
            self._say(f"{standing.label}: {self._at(standing)}" if self._alone else str(self.standings))

    def step(self, job: Job, moment: Moment) -> None:
        """For whoever trains without :func:`~tmln.executors.execute.execute`."""
        self.note(Event("step", job, moment=moment))

    @property
    def _alone(self) -> bool:
        return len(self.standings.all) == 1

    def _say_before(self) -> None:
        """Once for all that was done before, however many they are."""
        found, self._before = self._before, []
        if found and not self.brief:
            self._say(f"{found[0]}: done before" if len(found) == 1 else f"{len(found)} runs were done before")

    def _at(self, standing: RunProgress) -> str:
        """Where the one run is, how fast, and how long it will be."""
        moment, pace, left = standing.moment, standing.pace, standing.seconds_left(self.clock())
        if moment is None or not pace or left is None:
            return _outcome(standing)
        speed = f"step {moment.step}/{moment.steps}, {moment.samples / pace:.0f} samples/s"
        return f"{_outcome(standing)}, {speed}, {duration(left)} left"

    def render(self) -> RenderableType:
        """The one run's bar; or as many rows as fit: what failed, what is at work, then what ended last."""
        width, height = self.console.size
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        if self._alone:
            (standing,) = self.standings.all.values()
            moment = standing.moment
            bar = ProgressBar(moment.steps, moment.step, width=12) if moment else ProgressBar(1, 0, width=12)
            table.show_header = False
            label = _fitted(printable(standing.label), max(24, width - DETAIL - 26))
            table.add_row(Text(label), bar, Text(printable(self._at(standing))))
            return table
        for heading in ("run", "state", "", "left"):
            table.add_column(heading, no_wrap=True, max_width=DETAIL if not heading else None)
        ended = self.standings.of("diverged", "finished")
        for standing in [*self.standings.of("failed"), *self.standings.of("running"), *ended][: max(3, height - 4)]:
            left = standing.seconds_left(self.clock())
            table.add_row(
                Text(_fitted(printable(standing.label), max(24, width - DETAIL - 26))),
                Text(standing.state, style=STYLES.get(standing.state, "")),
                Text(printable(_outcome(standing))),
                "" if left is None else duration(left),
            )
        return Group(table, Text(str(self.standings), style="bold"))

    def _say(self, text: str) -> None:
        self._said = self.clock()
        if self.live:
            self.live.console.print(Text(printable(text)))
        else:
            print(printable(text), file=self.stream, flush=True)


def _outcome(standing: RunProgress) -> str:
    moment = standing.moment
    if standing.state == "finished" and standing.result is not None:
        when = "before" if standing.before else f"in {duration(standing.result.seconds)}"
        return f"ACC {100 * standing.result.metrics['acc']:.1f} {when}"
    if standing.state == "diverged":
        return f"diverged ({standing.note})"
    if moment is not None:
        return f"task {moment.task + 1}/{moment.tasks} epoch {moment.epoch + 1}/{moment.epochs} loss {moment.loss:.3f}"
    if standing.state == "running":
        return "starting"
    return f"failed: {standing.note}" if standing.state == "failed" else standing.note or standing.state


def _fitted(label: str, room: int) -> str:
    """Short enough, with its end, where the seed is."""
    return label if len(label) <= room else f"{label[: room - 11]}…{label[-10:]}"
