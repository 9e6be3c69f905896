"""Which run is next: references before those that need them, lost ones again, failed ones put aside."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from tmln.executors.interfaces import Executor, Outcome, RunRequest
from tmln.executors.plan import Job
from tmln.experiments.result import Result
from tmln.experiments.run import Moment
from tmln.signals import Interrupted, saving

if TYPE_CHECKING:
    from tmln.executors.interfaces import Message

TICK = 0.2  # seconds between two looks at the workers
LOCKED_PAUSE = 5.0  # seconds until a run that others work on is looked at again


@dataclass(frozen=True)
class Event:
    """What becomes of a job. ``before``: it was done already; ``again``: its worker was lost; ``elsewhere``: others
    work on it, and it is waited for; ``said``: a warning."""

    kind: Literal["before", "begun", "step", "finished", "again", "elsewhere", "failed", "said"]
    job: Job
    moment: Moment | None = None
    result: Result | None = None
    text: str = ""


class Unwritable(OSError):
    """There is no room on the disk, as a worker found: its words."""


@dataclass(frozen=True)
class Failure:
    """A job without a result, and why."""

    job: Job
    error: str
    cause: BaseException | None = field(default=None, compare=False)  # where it was in this process


class Schedule:
    """The jobs that are open, and what is known of each."""

    def __init__(
        self,
        tasks: Mapping[str, RunRequest],
        needs: Mapping[str, str],
        on_event: Callable[[Event], None],
        retries: int,
    ) -> None:
        self.tasks, self.needs, self.tell, self.retries = tasks, needs, on_event, retries
        self.waiting = dict.fromkeys(tasks, 0.0)  # name -> when it may be tried
        self.running: set[str] = set()
        self.losses: Counter[str] = Counter()
        self.failures: list[Failure] = []
        self.done = 0
        self.unwritable = ""  # what a run said that found no room on the disk
        self._said: set[tuple[str, str]] = set()
        self._stop: Callable[[], bool] = lambda: False

    def work(self, pool: Executor, stop: Callable[[], bool]) -> list[Failure]:
        """Until all is done; :class:`~tmln.signals.Interrupted` when asked to stop, with all that was begun saved."""
        self._stop = stop
        while self.waiting or self.running:
            if stop():
                self._end_all(pool)
                left, all_of = len(self.tasks) - self.done - len(self.failures), len(self.tasks)
                raise Interrupted(f"stopped with {left} of {all_of} runs to go; the same command goes on from there")
            for name in self._ready(pool):
                del self.waiting[name]
                self.running.add(name)
                pool.submit(name, self.tasks[name])
            pool.wait(TICK, self._take)
            if self.unwritable:  # the others would meet the same, one after the other
                self._end_all(pool)
                raise Unwritable(self.unwritable)
        return self.failures

    def _ready(self, pool: Executor) -> list[str]:
        """The next ones: what a run needs must not be open any more, whether it was finished or failed.

        Where cores are shared, a run waits till there are as many as it has threads; the largest has all to itself.
        """
        now = time.monotonic()
        open_names = self.waiting.keys() | self.running
        free = [n for n, since in self.waiting.items() if since <= now and self.needs.get(n) not in open_names]
        busy, found = sum(self.tasks[name].threads for name in self.running), list[str]()
        for name in free[: max(pool.capacity - len(self.running), 0)]:
            busy += self.tasks[name].threads
            if pool.shared and busy > max(pool.cores, self.tasks[name].threads):
                break
            found.append(name)
        return found

    def _take(self, name: str, message: Message) -> None:
        job = self.tasks[name].job
        if message == "begun":
            self.tell(Event("begun", job))
        elif isinstance(message, Moment):
            self.tell(Event("step", job, moment=message))
        elif isinstance(message, Outcome):
            self.running.remove(name)
            self._end(name, job, message)

    def _end(self, name: str, job: Job, outcome: Outcome) -> None:
        for text in outcome.warnings:
            if (job.config.method, text) not in self._said:
                self._said.add((job.config.method, text))
                self.tell(Event("said", job, text=text))
        if outcome.state == "finished":
            self.done += 1
            self.tell(Event("finished", job, result=outcome.result))
        elif outcome.state == "failed":
            self._fail(job, outcome)
        elif outcome.state == "unwritable":
            self.unwritable = outcome.error
        elif outcome.state == "stopped" and self._stop():
            self.waiting[name] = 0.0
        elif outcome.state == "locked":
            self.waiting[name] = time.monotonic() + LOCKED_PAUSE
            self.tell(Event("elsewhere", job, text=outcome.error))
        elif outcome.state == "away":  # no fault of the run's, however often
            self.waiting = {name: 0.0, **self.waiting}
            self.tell(Event("again", job, text=outcome.error))
        else:
            self.losses[name] += 1
            why = outcome.error or "its worker was stopped"
            if self.losses[name] > self.retries:
                self._fail(job, replace(outcome, error=f"{why}, {self.losses[name]} times"))
            else:
                self.waiting = {name: 0.0, **self.waiting}
                self.tell(Event("again", job, text=why))

    def _fail(self, job: Job, outcome: Outcome) -> None:
        self.failures.append(Failure(job, outcome.error, outcome.cause))
        self.tell(Event("failed", job, text=outcome.error))

    def _end_all(self, pool: Executor) -> None:
        def take(name: str, message: Message) -> None:
            if isinstance(message, Outcome):
                self.running.discard(name)
                if message.state in ("finished", "failed"):
                    self._end(name, self.tasks[name].job, message)

        pool.stop()
        with saving():  # they have two seconds, as we do, and began later
            while self.running:
                pool.wait(TICK, take)
