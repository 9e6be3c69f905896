"""Many runs at work, as a person sees them: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tmln.fleet.execute import Event
from tmln.fleet.plan import Job
from tmln.fleet.standings import Standing, Tally, duration
from tmln.printable import printable

PAUSE = 15.0  # seconds between plain lines while nothing ends
DETAIL = 38  # columns for what a run is at, or came to
STYLES = {"failed": "red", "diverged": "yellow", "finished": "green"}


class LiveTable(AbstractContextManager["LiveTable"]):
    """Give its :meth:`note` to :func:`tmln.fleet.execute.execute`."""

    def __init__(
        self,
        labels: Mapping[str, tuple[Job, str]],
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        brief: bool = False,
    ) -> None:
        """``brief``: no line of its own for what ends well."""
        self.stream, self.clock, self.brief = stream or sys.stderr, clock, brief
        self.tally = Tally(labels, clock)
        self.console = Console(file=self.stream)
        self.live = (
            Live(console=self.console, get_renderable=self.render, transient=True) if self.stream.isatty() else None
        )
        self._said = clock()
        self._elsewhere: set[str] = set()

    def __enter__(self) -> LiveTable:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.live:
            self.live.stop()
            self.live = None
        if not self.brief and error is None:
            self._say(str(self.tally))

    def note(self, event: Event) -> None:
        standing = self.tally.note(event)
        if event.kind == "said":
            self._say(f"warning: {standing.label}: {event.text}")
        elif event.kind == "again":
            self._say(f"{standing.label}: {event.text}; it goes on from its checkpoint")
        elif event.kind == "elsewhere" and standing.label not in self._elsewhere:
            self._elsewhere.add(standing.label)
            self._say(f"{standing.label}: waits, for {event.text}")
        elif self.live is None and event.kind in ("finished", "failed") and not self.brief:
            self._say(f"{standing.label}: {_outcome(standing)} ({self.tally})")
        elif self.live is None and self.clock() - self._said > PAUSE:
            self._say(str(self.tally))

    def render(self) -> Group:
        """As many rows as fit: what failed, what is at work, then what ended last."""
        width, height = self.console.size
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for heading in ("run", "state", "", "left"):
            table.add_column(heading, no_wrap=True, max_width=DETAIL if not heading else None)
        ended = self.tally.of("diverged", "finished")
        for standing in [*self.tally.of("failed"), *self.tally.of("running"), *ended][: max(3, height - 4)]:
            left = standing.seconds_left(self.clock())
            table.add_row(
                Text(_fitted(printable(standing.label), max(24, width - DETAIL - 26))),
                Text(standing.state, style=STYLES.get(standing.state, "")),
                Text(printable(_outcome(standing))),
                "" if left is None else duration(left),
            )
        return Group(table, Text(str(self.tally), style="bold"))

    def _say(self, text: str) -> None:
        self._said = self.clock()
        if self.live:
            self.live.console.print(Text(printable(text)))
        else:
            print(printable(text), file=self.stream, flush=True)


def _outcome(standing: Standing) -> str:
    moment = standing.moment
    if standing.state == "finished" and standing.result is not None:
        when = "before" if standing.before else f"in {duration(standing.result['seconds'])}"
        return f"ACC {100 * standing.result['metrics']['acc']:.1f} {when}"
    if standing.state == "diverged":
        return f"diverged ({standing.note})"
    if moment is not None:
        return f"task {moment.task + 1}/{moment.tasks} epoch {moment.epoch + 1}/{moment.epochs} loss {moment.loss:.3f}"
    if standing.state == "running":
        return "starting"
    return f"failed: {standing.note}" if standing.state == "failed" else standing.note


def _fitted(label: str, room: int) -> str:
    """Short enough, with its end, where the seed is."""
    return label if len(label) <= room else f"{label[: room - 11]}…{label[-10:]}"
