"""Doing the runs that items declare, each once, and saying beforehand what that will take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tmln.analysis.tables import label_methods
from tmln.fleet.display import Display
from tmln.fleet.execute import execute
from tmln.fleet.livetable import LiveTable
from tmln.fleet.plan import Job, plan, run_jobs
from tmln.lab.config import RunConfig, run_id
from tmln.lab.store import Store
from tmln.paper.item import Item
from tmln.paper.scales import Scale, missing_data

SERIAL = "serial"
FAILURES = (ArithmeticError, LookupError, OSError, RuntimeError, TypeError, ValueError)


def jobs_of(items: Iterable[Item], scale: Scale) -> list[Job]:
    """Every run once, the joint ones, which are the reference of INT, first; only those whose data are at hand."""
    jobs = plan([config for item in items for config in item.runs(scale)], "none")
    at_hand = {name: missing_data(name) is None for name in {job.config.benchmark for job in jobs}}
    return [job for job in jobs if at_hand[job.config.benchmark]]


def run_all(store: Store, jobs: Sequence[Job], executor: str = "local", workers: int | None = None) -> dict[str, str]:
    """Do what is not done yet; why a run has no result is returned by its name, and stops no other."""
    if executor == SERIAL:
        return _serial(store, jobs)
    labels = {run_id(job.config): (job, label) for job, label in zip(jobs, _labels(jobs), strict=True)}
    with LiveTable(labels) as table:
        failures = execute(store, jobs, "prefix", executor=executor, workers=workers, on_event=table.note)
    return {run_id(failure.job.config): failure.error for failure in failures}


def _serial(store: Store, jobs: Sequence[Job]) -> dict[str, str]:
    failed = {}
    with Display(len(jobs)) as display:
        for job in jobs:
            try:
                run_jobs(store, [job], "prefix", on_begin=display.begin, on_step=display.step, on_end=display.end)
            except FAILURES as error:
                failed[run_id(job.config)] = str(error)
    return failed


def _labels(jobs: Sequence[Job]) -> list[str]:
    """``split-digits, er replay.capacity=100, seed 0``."""
    full = [job.config.resolved() for job in jobs]
    names = label_methods([{**config, "config": config} for config in full])
    return [f"{config['benchmark']}, {name}, seed {config['seed']}" for config, name in zip(full, names, strict=True)]


def waiting(items: Iterable[Item], scale: Scale) -> dict[str, list[RunConfig]]:
    """By the data set that is not at hand: the runs that wait for it."""
    found: dict[str, list[RunConfig]] = {}
    for job in plan([config for item in items for config in item.runs(scale)], "none"):
        missing = missing_data(job.config.benchmark)
        if missing is not None:
            found.setdefault(missing, []).append(job.config)
    return found
