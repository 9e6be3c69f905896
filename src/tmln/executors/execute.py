"""Many runs, whoever does them: in this process, in others of this machine, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from tmln.executors.config import ExecutorConfig, threads_of
from tmln.executors.distributed_run import TogetherPool
from tmln.executors.interfaces import Executor, RunRequest
from tmln.executors.plan import Job
from tmln.executors.processes import LocalPool
from tmln.executors.schedule import Event, Failure, Schedule
from tmln.executors.serial import SerialPool
from tmln.experiments.config import run_id
from tmln.experiments.files import make_folder
from tmln.experiments.memory_estimate import LEFT
from tmln.experiments.process_memory import free_bytes
from tmln.experiments.reference_runs import reference_config
from tmln.experiments.run_options import RunOptions
from tmln.experiments.shared_disk import check
from tmln.experiments.store import Store
from tmln.signals import asked_to_stop

__all__ = ["Event", "Failure", "execute"]


def execute(
    store: Store,
    jobs: Sequence[Job],
    terms: RunOptions | None = None,
    executor: ExecutorConfig | None = None,
    *,
    pool: Executor | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
) -> list[Failure]:
    """Do what is not done yet, references before the runs that need them; what failed, and why, is returned.

    A run whose worker is lost goes on from its checkpoint, as often as ``executor.retries``. A signal to stop saves
    every run that has begun and raises :class:`~tmln.signals.Interrupted`. ``pool``: workers that are there already.
    """
    terms = terms or RunOptions()
    executor = replace(executor or ExecutorConfig(), threads=terms.threads)
    failures, open_jobs = _open_jobs(store, jobs, on_event)
    if not open_jobs:
        return failures
    make_folder(Path(store.root))
    if doubt := check(Path(store.root)):
        on_event(Event("said", next(iter(open_jobs.values())), text=doubt))
    root = str(Path(store.root).resolve())
    references = {name: reference_config(job.config, terms.oracle) for name, job in open_jobs.items()}
    needs = {name: run_id(wanted) for name, wanted in references.items() if wanted is not None}
    with nullcontext(pool) if pool is not None else executor.pool(len(open_jobs)) as there:
        terms = replace(terms, memory=terms.memory or _share(there, len(open_jobs)))
        tasks = {
            name: RunRequest(_anywhere(job), root, terms, terms.threads or threads_of(job.config, there.cores))
            for name, job in open_jobs.items()
        }
        with asked_to_stop() as stop:  # after the workers are there: while they start there is nothing to save
            if isinstance(there, SerialPool):
                there.asked = stop
            return failures + Schedule(tasks, needs, on_event, executor.retries).work(there, stop)


def _share(pool: Executor, jobs: int) -> str:
    """Of the memory of this machine, for each of those that work at one time on it; in this process it is counted."""
    many = pool.processes if isinstance(pool, TogetherPool) else min(pool.capacity, jobs)
    return str(int(LEFT * free_bytes()) // many) if isinstance(pool, (LocalPool, TogetherPool)) else ""


def _open_jobs(
    store: Store, jobs: Sequence[Job], on_event: Callable[[Event], None]
) -> tuple[list[Failure], dict[str, Job]]:
    failures, open_jobs = [], {}
    for job in jobs:
        try:
            run = store.find(job.config)
            result = None if run is None else run.result
        except (OSError, ValueError) as error:  # such as a result of a newer version
            failures.append(Failure(job, str(error)))
            on_event(Event("failed", job, text=str(error)))
            continue
        if result is None:
            open_jobs[run_id(job.config)] = job
        else:
            on_event(Event("before", job, result=result))
    return failures, open_jobs


def _anywhere(job: Job) -> Job:
    """The same run, whatever folder its worker is in."""
    name, _, path = job.config.benchmark.partition(":")
    if not path:
        return job
    benchmark = f"{name}:{Path(path).expanduser().resolve()}"
    return Job(job.config.model_copy(update={"benchmark": benchmark}), job.reference)
