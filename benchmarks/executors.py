"""Measure many runs with the default executor against one run after another on all cores, in turns."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.timing import Line, best_times
from tmln.data.reading import DataError
from tmln.executors.config import ExecutorConfig, cores, threads_of
from tmln.executors.execute import execute
from tmln.executors.interfaces import Executor
from tmln.executors.plan import Job
from tmln.experiments.build import stream_of
from tmln.experiments.config import RunConfig
from tmln.experiments.launch import RunOptions
from tmln.experiments.store import Store

# Width of the reduced ResNet18, epochs, and the goal: 0.9 of the measured speed of two workers of one thread
# each over that of one process with two threads, on two cores.
GOALS = ((8, 4, 0.9 * 1.65), (20, 1, 0.9 * 1.11))


def configs(width: int, epochs: int) -> list[RunConfig]:
    few = {"benchmark.per_class": 128, "benchmark.per_class_test": 10, "benchmark.tasks": 2, "epochs": epochs}
    base = RunConfig(benchmark="split-cifar10", method="er", model="resnet18", model_options={"width": width})
    return [base.with_settings({**few, "seed": seed}) for seed in range(4)]


def make_task(wanted: list[RunConfig], options: RunOptions, pool: Executor) -> Callable[[], None]:
    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            failures = execute(Store(Path(folder)), [Job(config) for config in wanted], options, pool=pool)
            assert not failures, failures

    return run


def lines() -> Iterator[Line]:
    try:
        stream_of(configs(8, 1)[0])
    except DataError:
        return
    for width, epochs, goal in GOALS:
        wanted = configs(width, epochs)
        with ExecutorConfig().open_pool(jobs=len(wanted)) as many, ExecutorConfig("serial").open_pool() as one:
            best = best_times(
                {
                    "ours": make_task(wanted, RunOptions(), many),
                    "serial": make_task(wanted, RunOptions(threads=cores()), one),
                },
                rounds=3,
            )
        threads = threads_of(wanted[0], cores())
        what = f"runs of width {width}, {cores() // threads} at a time on {threads} thread(s) / one on {cores()}"
        yield Line(f"{what}: throughput", best["serial"] / best["ours"], goal if cores() == 2 else None, True)
