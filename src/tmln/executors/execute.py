"""Execute many runs: references first, lost runs again, failed ones set aside, on any executor."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tmln.executors.config import ExecutorConfig, threads_of
from tmln.executors.interfaces import Executor, Outcome, RunRequest
from tmln.executors.plan import Job
from tmln.experiments.config import run_id
from tmln.experiments.files import make_folder
from tmln.experiments.launch import RunOptions
from tmln.experiments.lock import check_file_system
from tmln.experiments.memory_estimate import LEFT, free_bytes
from tmln.experiments.reference_runs import reference_config
from tmln.experiments.result import Result
from tmln.experiments.run import StepInfo
from tmln.experiments.store import Store
from tmln.signals import Interrupted, asked_to_stop, saving
from tmln.streams.benchmarks import split_name
from tmln.streams.options import is_own_file

if TYPE_CHECKING:
    from tmln.executors.interfaces import Message

TICK = 0.2  # seconds between two looks at the workers
LOCKED_PAUSE = 5.0  # seconds until a run that another process works on is tried again


@dataclass(frozen=True)
class Event:
    """A change in the state of a job.

    ``skipped``: it was finished before; ``retried``: its worker was lost, and it goes on from its
    checkpoint; ``locked``: another process works on it, and it is waited for.
    """

    kind: Literal["skipped", "started", "step", "finished", "retried", "locked", "failed", "warning"]
    job: Job
    info: StepInfo | None = None
    result: Result | None = None
    text: str = ""


@dataclass(frozen=True)
class Failure:
    """A job without a result, and the reason."""

    job: Job
    error: str
    cause: BaseException | None = field(default=None, compare=False)  # if it was in this process


class DiskFull(OSError):
    """A run could not write because the disk is full."""


def execute(
    store: Store,
    jobs: Sequence[Job],
    options: RunOptions | None = None,
    executor: ExecutorConfig | None = None,
    *,
    pool: Executor | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
) -> list[Failure]:
    """Execute the jobs that are not finished, references before the runs that need them.

    A run whose worker is lost goes on from its checkpoint, at most ``executor.retries`` times.

    Args:
        store: the folder of runs.
        jobs: what :func:`tmln.executors.plan.plan` returned.
        options: how each run is executed.
        executor: where runs are executed.
        pool: workers that are open already, in place of those of ``executor``.
        on_event: called with every change in the state of a job.

    Returns:
        The jobs that failed, with the reasons.

    Raises:
        Interrupted: after a signal to stop, when all runs are saved.
    """
    options = options or RunOptions()
    executor = replace(executor or ExecutorConfig(), threads=options.threads)
    failures, open_jobs = _find_open(store, jobs, on_event)
    if not open_jobs:
        return failures
    make_folder(Path(store.root))
    if problem := check_file_system(Path(store.root)):
        on_event(Event("warning", next(iter(open_jobs.values())), text=problem))
    root = str(Path(store.root).resolve())
    references = {name: reference_config(job.config, options.oracle) for name, job in open_jobs.items()}
    needs = {name: run_id(wanted) for name, wanted in references.items() if wanted is not None}
    with nullcontext(pool) if pool is not None else executor.open_pool(len(open_jobs)) as workers:
        neighbours = workers.count_neighbours(len(open_jobs))
        share = str(int(LEFT * free_bytes()) // neighbours) if neighbours else ""
        options = replace(options, memory=options.memory or share)
        requests = {
            name: RunRequest(
                _resolve_folder(job), root, options, options.threads or threads_of(job.config, workers.cores)
            )
            for name, job in open_jobs.items()
        }
        with asked_to_stop() as stop:  # once the workers are there: before that there is nothing to save
            return failures + Scheduler(requests, needs, on_event, executor.retries).run(workers, stop)


def _find_open(
    store: Store, jobs: Sequence[Job], on_event: Callable[[Event], None]
) -> tuple[list[Failure], dict[str, Job]]:
    failures, open_jobs = [], {}
    for job in jobs:
        try:
            result = store.find_result(job.config)
        except (OSError, ValueError) as error:  # such as a result of a newer version
            failures.append(Failure(job, str(error)))
            on_event(Event("failed", job, text=str(error)))
            continue
        if result is None:
            open_jobs[run_id(job.config)] = job
        else:
            on_event(Event("skipped", job, result=result))
    return failures, open_jobs


def _resolve_folder(job: Job) -> Job:
    """Return the job with an absolute path in ``folder:PATH``, as workers need it."""
    name, path = split_name(job.config.benchmark)
    if not path or (name == "own" and not is_own_file(path)):
        return job
    benchmark = f"{name}:{Path(path).expanduser().resolve()}"
    return Job(job.config.model_copy(update={"benchmark": benchmark}), job.reference)


class Scheduler:
    """Decides which run is next, and what follows from each outcome."""

    def __init__(
        self,
        requests: Mapping[str, RunRequest],
        needs: Mapping[str, str],
        on_event: Callable[[Event], None],
        retries: int,
    ) -> None:
        """Take runs and, for those that need a reference run, its name."""
        self.requests, self.needs, self.on_event, self.retries = requests, needs, on_event, retries
        self.waiting = dict.fromkeys(requests, 0.0)  # name -> time from which it may be tried
        self.running: set[str] = set()
        self.losses: Counter[str] = Counter()
        self.failures: list[Failure] = []
        self.finished = 0
        self.disk_full = ""
        self._warned: set[tuple[str, str]] = set()
        self._stop: Callable[[], bool] = lambda: False

    def run(self, pool: Executor, stop: Callable[[], bool]) -> list[Failure]:
        """Execute all runs and return the failures.

        Raises:
            Interrupted: if ``stop`` becomes true; all runs that have begun are saved.
        """
        self._stop = stop
        while self.waiting or self.running:
            if stop():
                self._stop_all(pool)
                left, total = len(self.requests) - self.finished - len(self.failures), len(self.requests)
                raise Interrupted(f"stopped with {left} of {total} runs to go; the same command goes on from there")
            for name in self._select(pool):
                del self.waiting[name]
                self.running.add(name)
                pool.submit(name, self.requests[name])
            pool.wait(TICK, self._handle)
            if self.disk_full:  # the others would fail the same way
                self._stop_all(pool)
                raise DiskFull(self.disk_full)
        return self.failures

    def _select(self, pool: Executor) -> list[str]:
        """Return the runs to begin: those whose reference run is finished or failed.

        Where cores are shared, a run waits until as many are free as it has threads; a run with
        more threads than there are cores is executed alone.
        """
        now = time.monotonic()
        open_names = self.waiting.keys() | self.running
        free = [n for n, since in self.waiting.items() if since <= now and self.needs.get(n) not in open_names]
        busy, found = sum(self.requests[name].threads for name in self.running), list[str]()
        for name in free[: max(pool.capacity - len(self.running), 0)]:
            busy += self.requests[name].threads
            if pool.shared and busy > max(pool.cores, self.requests[name].threads):
                break
            found.append(name)
        return found

    def _handle(self, name: str, message: Message) -> None:
        job = self.requests[name].job
        if isinstance(message, StepInfo):
            self.on_event(Event("step", job, info=message))
        elif isinstance(message, Outcome):
            self.running.remove(name)
            self._handle_outcome(name, job, message)
        else:
            self.on_event(Event("started", job))

    def _handle_outcome(self, name: str, job: Job, outcome: Outcome) -> None:
        for text in outcome.warnings:
            if (job.config.method, text) not in self._warned:
                self._warned.add((job.config.method, text))
                self.on_event(Event("warning", job, text=text))
        if outcome.state == "finished":
            self.finished += 1
            self.on_event(Event("finished", job, result=outcome.result))
        elif outcome.state == "failed":
            self._fail(job, outcome)
        elif outcome.state == "disk_full":
            self.disk_full = outcome.error
        elif outcome.state == "stopped" and self._stop():
            self.waiting[name] = 0.0
        elif outcome.state == "locked":
            self.waiting[name] = time.monotonic() + LOCKED_PAUSE
            self.on_event(Event("locked", job, text=outcome.error))
        else:
            self.losses[name] += 1
            reason = outcome.error or "its worker was stopped"
            if self.losses[name] > self.retries:
                self._fail(job, replace(outcome, error=f"{reason}, {self.losses[name]} times"))
            else:
                self.waiting = {name: 0.0, **self.waiting}
                self.on_event(Event("retried", job, text=reason))

    def _fail(self, job: Job, outcome: Outcome) -> None:
        self.failures.append(Failure(job, outcome.error, outcome.cause))
        self.on_event(Event("failed", job, text=outcome.error))

    def _stop_all(self, pool: Executor) -> None:
        """Stop all workers, and wait until their runs are saved."""

        def on_message(name: str, message: Message) -> None:
            if isinstance(message, Outcome):
                self.running.discard(name)
                if message.state in ("finished", "failed"):
                    self._handle_outcome(name, self.requests[name].job, message)

        pool.stop()
        with saving():  # workers have two seconds, as this process has, and begin later
            while self.running:
                pool.wait(TICK, on_message)
