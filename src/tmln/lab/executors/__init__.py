"""Many runs at once: on the cores of this machine, or on a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tmln.lab.config import run_id
from tmln.lab.executors.schedule import Event, Failure, Pool, Schedule
from tmln.lab.executors.work import Work
from tmln.lab.footprint import LEFT, VARIABLE
from tmln.lab.memory import free_bytes
from tmln.lab.oracle import Oracle, reference_config
from tmln.lab.session import Job
from tmln.lab.store import Store
from tmln.stopping import asked_to_stop
from tmln.suggest import did_you_mean

__all__ = ["EXECUTORS", "Crew", "Event", "Failure", "cores", "crew", "execute"]


def cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Crew:
    """Workers that are there, and the threads that each has."""

    pool: Pool
    threads: int
    memory: int | None = None  # bytes for each, where they share a machine


def _local(jobs: int, workers: int | None, cpus: int | None, gpus: float, address: str | None) -> Crew:
    from tmln.lab.executors.local import LocalPool

    if address is not None:
        raise ValueError(f"the local executor has no address ({address!r} was given); use --executor ray")
    many = workers or max(1, min(jobs, cores() // (cpus or 1)))
    threads = cpus or max(1, cores() // many)
    return Crew(LocalPool(many, threads), threads, int(LEFT * free_bytes()) // many)


def _ray(jobs: int, workers: int | None, cpus: int | None, gpus: float, address: str | None) -> Crew:
    from tmln.lab.executors.cluster import RayPool

    return Crew(RayPool(workers, cpus or 1, gpus, address), cpus or 1)


EXECUTORS: dict[str, Callable[[int, int | None, int | None, float, str | None], Crew]] = {"local": _local, "ray": _ray}


@contextmanager
def crew(
    executor: str = "local",
    *,
    jobs: int,
    workers: int | None = None,
    cpus: int | None = None,
    gpus: float = 0.0,
    address: str | None = None,
) -> Iterator[Crew]:
    """Workers for several calls of :func:`execute`: ``workers``, or as many as suit ``jobs`` at a time."""
    if executor not in EXECUTORS:
        raise ValueError(f"unknown executor {executor!r}{did_you_mean(executor, EXECUTORS)} ({', '.join(EXECUTORS)})")
    found = EXECUTORS[executor](jobs, workers, cpus, gpus, address)
    try:
        yield found
    finally:
        found.pool.close()


def execute(
    store: Store,
    jobs: Sequence[Job],
    oracle: Oracle,
    *,
    executor: str | Crew = "local",
    workers: int | None = None,
    address: str | None = None,
    cpus: int | None = None,
    gpus: float = 0.0,
    retries: int = 2,
    on_event: Callable[[Event], None] = lambda event: None,
    checkpoint_seconds: float = 300.0,
    checkpoint_steps: int | None = None,
    logger: str = "none",
) -> list[Failure]:
    """Do what is not done yet, references before the runs that need them; what failed, and why, is returned.

    A run whose worker is lost goes on from its checkpoint, up to ``retries`` times. A signal to stop saves every run
    that has begun and raises :class:`~tmln.stopping.Interrupted`. ``workers`` bounds the runs at one time, ``cpus`` are
    the threads of each (locally, the cores are shared out), ``gpus`` are asked of Ray.
    """
    failures, open_jobs = _open_jobs(store, jobs, on_event)
    if not open_jobs:
        return failures
    if isinstance(executor, str):
        options: dict[str, Any] = {"workers": workers, "cpus": cpus, "gpus": gpus, "address": address}
        hands: AbstractContextManager[Crew] = crew(executor, jobs=len(open_jobs), **options)
    else:
        hands = nullcontext(executor)
    root = str(Path(store.root).resolve())
    references = {name: reference_config(job.config, oracle) for name, job in open_jobs.items()}
    needs = {name: run_id(wanted) for name, wanted in references.items() if wanted is not None}
    with hands as there:
        given = (oracle, there.threads, checkpoint_seconds, checkpoint_steps, logger)
        memory = os.environ.get(VARIABLE) or str(there.memory or "")
        works = {name: Work(_anywhere(job), root, *given, memory=memory) for name, job in open_jobs.items()}
        with asked_to_stop() as stop:  # after the workers are there: Ray takes signals for itself when it starts
            return failures + Schedule(works, needs, on_event, retries).work(there.pool, stop)


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
