"""Measure small runs with two workers against one, and the time that Ray adds to a run, without start-up."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from benchmarks.executors import make_task
from benchmarks.timing import Line, best_times
from tmln.executors.config import ExecutorConfig, cores
from tmln.executors.processes import ProcessExecutor
from tmln.experiments.config import RunConfig
from tmln.experiments.launch import RunOptions

RUNS = 16
GOAL, OVERHEAD = 1.7, 1.0  # times the throughput; seconds a run


def configs(many: int = RUNS) -> list[RunConfig]:
    base = RunConfig(benchmark="split-digits", method="er", epochs=5)
    return [base.with_setting("seed", seed) for seed in range(many)]


def lines() -> Iterator[Line]:
    wanted, options = configs(), RunOptions(threads=1)
    one, two = ProcessExecutor(1, cores(), shared=False), ProcessExecutor(2, cores(), shared=False)
    try:
        best = best_times({"one": make_task(wanted, options, one), "two": make_task(wanted, options, two)}, rounds=3)
    finally:
        one.close()
        two.close()
    yield Line(f"{RUNS} small runs, two workers / one: throughput", best["one"] / best["two"], GOAL, True)
    if find_spec("ray") is None:
        return
    few = wanted[:4]
    with ExecutorConfig("ray", workers=1, threads=1).open_pool() as ray, ExecutorConfig("serial").open_pool() as serial:
        best = best_times({"ray": make_task(few, options, ray), "serial": make_task(few, options, serial)}, rounds=3)
    yield Line("time that Ray adds to a run, in seconds", (best["ray"] - best["serial"]) / len(few), OVERHEAD)
