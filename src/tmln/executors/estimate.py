"""Estimate what runs will take before any has begun: time, disk and memory (``--dry-run``).

A few steps are timed on this machine in its present state, of those kinds of runs that have the
most work and for a bounded time in all; the others follow from the multiply-adds of their networks.
Steps, tests and sizes are counted.
"""

from __future__ import annotations

import itertools
import math
import os
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tmln.executors.config import ExecutorConfig, cores, threads_of, work_of
from tmln.executors.progress_display import duration
from tmln.experiments.build import learner_of, steps_in, stream_of
from tmln.experiments.config import RunConfig, canonical
from tmln.experiments.launch import RunOptions
from tmln.experiments.memory_estimate import MemoryEstimate, fit_to_memory, format_size, memory_limit
from tmln.learner.checkpoint import KEEP
from tmln.methods.recipes import FAMILIES
from tmln.progress import track
from tmln.streams import Stream

BUDGET = 10.0  # seconds in which timings may begin; with loading and the last of them half a minute
LONGEST = 2.0  # seconds in which the steps of one timing may begin
TASK = 0.3  # seconds, about, for the steps of one task of a timing
TASKS = 5  # tasks of a timing, at most
STEPS = 3  # whole batches in a task, at most
EXTRA = 0.8  # speed that each thread after the first adds; measured at width 20 on two cores
FORWARD = 1 / 3  # time of a forward pass over that of a training step, about
SMALL = 10_000  # bytes of a run's configuration, result and log, about


@dataclass(frozen=True)
class StepTiming:
    """Seconds a sample, samples of a step over the batch size, bytes of state; the memory."""

    seconds: float
    samples: float
    state: int
    memory: MemoryEstimate


@dataclass(frozen=True)
class RunEstimate:
    """What one run takes; ``seconds`` include tests after every task and reading the data."""

    seconds: float
    threads: int
    steps: int
    tasks: int
    model_bytes: int
    disk: int
    memory: int


class Estimator:
    """Estimates for these runs, and for any that are like them."""

    def __init__(self, configs: Sequence[RunConfig], options: RunOptions | None = None) -> None:
        self.threads, self.most = (options or RunOptions()).threads, cores()
        self.load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
        self._streams: dict[str, tuple[Stream, float]] = {}
        self._found: dict[str, RunEstimate] = {}
        self._models: dict[str, int] = {}
        weights: dict[str, float] = {}
        first: dict[str, RunConfig] = {}
        for config in configs:
            key = self._kind(config)
            first.setdefault(key, config)
            weights[key] = weights.get(key, 0.0) + steps_in(self._stream(config), config) * work_of(config)
        self.kinds = len(first)
        self.timings: dict[str, StepTiming] = {}
        begin = time.monotonic()
        for key in track(sorted(weights, key=lambda key: -weights[key]), "timing a few steps"):
            if not self.timings or time.monotonic() - begin < BUDGET:
                self.timings[key] = time_steps(first[key], self._stream(first[key]))
        self._rates = {key: timing.seconds / max(work_of(first[key]), 1.0) for key, timing in self.timings.items()}

    def estimate(self, config: RunConfig) -> RunEstimate:
        """Return what a run takes; seeds take the same, so each configuration is estimated once."""
        name = canonical({**config.resolved(), "seed": 0})
        if name not in self._found:
            self._found[name] = self._estimate(config)
        return self._found[name]

    def _estimate(self, config: RunConfig) -> RunEstimate:
        full, (stream, reading), timing = config.resolved(), self._read_stream(config), self._time_steps(config)
        steps = steps_in(stream, config)
        replayed = full["settings"].get("replay.batch")
        samples = full["batch_size"] * timing.samples if replayed is None else full["batch_size"] + replayed
        tests, passes = len(stream) * sum(len(task.test) for task in stream), steps * samples
        if not steps:  # nothing is trained: each image passes through the network once in a run
            passes, tests = sum(len(task.train) + len(task.test) for task in stream), 0
        model = self._model_bytes(config)
        stored = full["settings"].get("replay.capacity", 0) * math.prod(stream.shape)
        threads = self._threads(config)
        return RunEstimate(
            reading + timing.seconds * (passes + FORWARD * tests) / (1 + EXTRA * (threads - 1)),
            threads,
            steps,
            len(stream),
            model,
            SMALL + KEEP * (max(timing.state, model) + stored),
            timing.memory.peak,
        )

    def _time_steps(self, config: RunConfig) -> StepTiming:
        """Return the timing of a run's kind, or that of the kind with the nearest work, scaled."""
        key = self._kind(config)
        if key in self.timings:
            return self.timings[key]
        work = max(work_of(config), 1.0)
        near = min(
            self.timings, key=lambda other: abs(math.log(self.timings[other].seconds / self._rates[other] / work))
        )
        found = self.timings[near]
        return StepTiming(self._rates[near] * work, found.samples, found.state, found.memory)

    def _model_bytes(self, config: RunConfig) -> int:
        full, stream = config.resolved(), self._stream(config)
        key = canonical([full["model"], full["model_options"], list(stream.shape), stream.classes])
        if key not in self._models:
            self._models[key] = _bytes(learner_of(config, stream).model.state_dict())
        return self._models[key]

    def _threads(self, config: RunConfig) -> int:
        return self.threads or threads_of(config, self.most)

    def _stream(self, config: RunConfig) -> Stream:
        return self._read_stream(config)[0]

    def _read_stream(self, config: RunConfig) -> tuple[Stream, float]:
        """Return the run's stream, and the seconds that making it took."""
        full = config.resolved()
        key = canonical([full["benchmark"], full["benchmark_options"]])
        if key not in self._streams:
            begin = time.monotonic()
            self._streams[key] = stream_of(config), time.monotonic() - begin
        return self._streams[key]

    def _kind(self, config: RunConfig) -> str:
        """Return what runs have in common whose steps take the same time."""
        full = config.resolved()
        names = {key: value for key, value in full["settings"].items() if not isinstance(value, float)}
        parts = [full.get(key) for key in ("model", "model_options", *FAMILIES, "batch_size", "compile")]
        return canonical([*parts, names, list(self._stream(config).shape)])


def time_steps(config: RunConfig, stream: Stream) -> StepTiming:
    """Time a few steps, in tasks that grow to whole batches or until they take long enough.

    The first task warms up. The time of a step is the median over steps of the most samples; the
    first step of a task, which includes other work, counts only if there is no other. One thread is
    used: on busy cores several wait for each other, so that their time says little. Where nothing
    is trained, a task is one pass.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        learner, data = learner_of(config, stream), stream[0].train
        planned = fit_to_memory(learner, stream)  # before any step: a model that does not fit is refused
        size, ratio, found = 2, 1.0, dict[int, list[float]]()
        goes_on = learner.step.trains_at(learner.step.settings, 1)
        for number in range(TASKS):
            if number and not goes_on:
                learner = learner_of(config, stream)  # which trains in the first task, or not at all
            at = [(time.perf_counter(), 0)]
            few = data.subset(torch.arange(size))
            note = lambda *step: at.append((time.perf_counter(), learner.last_batch))  # noqa: B023, E731
            learner.learn(few, atomic=False, on_step=note)
            if len(at) == 1:
                at.append((time.perf_counter(), size))
            steps = [(samples, (end - begin) / samples) for (begin, _), (end, samples) in itertools.pairwise(at)]
            most, first = steps[0]
            if number == 0:
                start = at[-1][0]
                continue
            for samples, seconds in [step for step in steps[1:] if step[0] >= most] or steps[:1]:
                found.setdefault(samples, []).append(seconds)
            if not learner.recipe.joint:  # whose tasks hold all the samples so far
                ratio = max(ratio, most / min(size, learner.batch_size))
            if number > 1 and at[-1][0] - start > LONGEST:
                break
            size = max(2, min(len(data), STEPS * learner.batch_size, int(TASK / first)))
        return StepTiming(statistics.median(found[max(found)]), ratio, _bytes(learner.state_dict()), planned)
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class Estimate:
    """What several runs take: ``seconds`` one after another, ``wall`` on the executor."""

    seconds: float
    wall: float
    workers: int
    disk: int
    memory: int
    estimator: Estimator

    def lines(self) -> list[str]:
        """Return the lines for ``--dry-run``; the only duration in them is that of all runs."""
        timed, kinds = len(self.estimator.timings), self.estimator.kinds
        how = f"a few steps of {timed} of {kinds} kinds timed, the rest by the size of their networks"
        how = how if timed < kinds else "a few steps of each kind timed"
        busy = self.estimator.load > 0.5
        load = f"; it is busy with other work, load {self.estimator.load:.1f} on {cores()} cores" if busy else ""
        return [
            f"about {duration(self.wall)} on this machine in its present state, {self.workers} at a time ({how}{load})",
            f"at most {format_size(self.memory)} of memory for each run (calculated), of {format_size(memory_limit())}"
            f"{self._pieces}; up to {format_size(self.disk)} of disk for checkpoints",
        ]

    @property
    def _pieces(self) -> str:
        found = [timing.memory.pieces for timing in self.estimator.timings.values() if timing.memory.pieces]
        return f", {min(found)} samples at a time" if found else ""


def estimate_runs(
    configs: Sequence[RunConfig], options: RunOptions, executor: ExecutorConfig, more: Sequence[RunConfig] = ()
) -> Estimate:
    """Estimate these runs; the estimator of the result knows the kinds of ``more``, too."""
    estimator = Estimator([*configs, *more], options)
    found = [estimator.estimate(config) for config in configs]
    seconds = math.fsum(one.seconds for one in found)
    longest = max((one.seconds for one in found), default=0.0)
    if executor.executor == "serial":
        workers, wall = 1, seconds
    elif executor.workers is not None:
        workers, wall = min(executor.workers, len(found)), max(longest, seconds / executor.workers)
    else:
        busy = math.fsum(one.seconds * one.threads for one in found)
        wall = max(longest, busy / cores())
        workers = min(len(found), max(1, round(cores() * seconds / busy))) if busy else 1
    disk, memory = sum(one.disk for one in found), max((one.memory for one in found), default=0)
    return Estimate(seconds, wall, workers, disk, memory, estimator)


def _bytes(value: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(value))


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from itertools.chain.from_iterable(map(_tensors, value.values()))
    elif isinstance(value, (list, tuple)):
        yield from itertools.chain.from_iterable(map(_tensors, value))
