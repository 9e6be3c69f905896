"""Runs at work, as a person sees them: a bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from tmln.fleet.plan import Job
from tmln.lab.run import Moment
from tmln.printable import printable

PAUSE = 15.0  # seconds between plain lines within a run


class Display(AbstractContextManager["Display"]):
    """Give its methods to :func:`tmln.fleet.plan.run_jobs`."""

    def __init__(self, jobs: int, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.jobs, self.number, self.label = jobs, 0, ""
        self.bar = _bar(Console(file=self.stream)) if self.stream.isatty() else None
        self.work = self.bar.add_task("", total=None, detail="") if self.bar else None
        self._begun = self._said = time.monotonic()
        self._first = self._samples = 0

    def __enter__(self) -> Display:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.bar:
            self.bar.stop()

    def begin(self, job: Job, finished: bool) -> None:
        self.number += 1
        why = " (reference for INT)" if job.reference else ""
        self.label = f"[{self.number}/{self.jobs}] {job.label}{why}"
        self._begun = self._said = time.monotonic()
        self._first = self._samples = 0
        if finished:
            self._say(f"{self.label}: done before")
        elif self.bar and self.work is not None:
            self.bar.reset(self.work, total=None, description=printable(self.label), detail="")

    def step(self, moment: Moment) -> None:
        now = time.monotonic()
        if not self._first:  # the time it took to get ready does not count
            self._first, self._begun = moment.step, now
        else:
            self._samples += moment.samples
        seconds = max(now - self._begun, 1e-9)
        rate = (moment.step - self._first) / seconds
        where = f"task {moment.task + 1}/{moment.tasks} epoch {moment.epoch + 1}/{moment.epochs} loss {moment.loss:.3f}"
        if self.bar and self.work is not None:
            detail = f"{where} {self._samples / seconds:.0f} samples/s"
            self.bar.update(self.work, completed=moment.step, total=moment.steps, detail=detail)
        elif now - self._said > PAUSE:
            left = (moment.steps - moment.step) / rate if rate else float("nan")
            speed = f"{self._samples / seconds:.0f} samples/s"
            self._say(f"{self.label}: {where}, step {moment.step}/{moment.steps}, {speed}, {left:.0f} s left")
            self._said = now

    def end(self, job: Job, result: dict[str, Any]) -> None:
        found = result["metrics"]
        if result.get("diverged"):
            self._say(f"{self.label}: diverged ({result['diverged']})")
        else:
            self._say(f"{self.label}: ACC {100 * found['acc']:.1f} in {result['seconds']:.1f} s")

    def _say(self, text: str) -> None:
        text = printable(text)
        if self.bar:
            self.bar.console.print(Text(text))
        else:
            print(text, file=self.stream, flush=True)


def _bar(console: Console) -> Progress:
    plain = [TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[detail]}")]
    columns = (plain[0], BarColumn(bar_width=6), plain[1])
    return Progress(*columns, TimeRemainingColumn(compact=True), console=console, transient=True)
