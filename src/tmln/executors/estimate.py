"""What runs will take, said before any is begun: time, disk and memory.

A few steps are tried on this machine as it is now, of the kinds of runs that have the most to do and for a bounded time
in all; the rest is by the multiply-adds of their networks. Steps, tests and sizes are counted.
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
from tmln.executors.progress_state import duration
from tmln.experiments.build import learner_of, steps_in, stream_of
from tmln.experiments.config import RunConfig, canonical
from tmln.experiments.memory_estimate import Footprint, fit, limit, shown
from tmln.experiments.run_options import RunOptions
from tmln.learner.checkpoint import KEEP
from tmln.methods.recipes import FAMILIES
from tmln.progress import track
from tmln.streams import Stream

BUDGET = 10.0  # seconds in which trials may begin: with what is loaded before, and the last of them, half a minute
TRIAL = 2.0  # seconds in which steps of a trial may begin
STEP = 0.3  # seconds that the steps of a try may take, about
TRIES = 5
STEPS = 3  # whole batches in a trial, at most
EXTRA = 0.8  # what each thread after the first adds; measured at width 20 on two cores
FORWARD = 1 / 3  # of a training step's time, about
SMALL = 10_000  # bytes of a run's configuration, result and log, about


@dataclass(frozen=True)
class Trial:
    """What a few steps told: seconds a sample, samples of a step over the batch size, bytes of state; the memory."""

    seconds: float
    samples: float
    state: int
    memory: Footprint


@dataclass(frozen=True)
class Need:
    """What one run takes; ``seconds`` are its steps, its tests after every task, and the reading of its data."""

    seconds: float
    threads: int
    steps: int
    tasks: int
    model_bytes: int
    disk: int
    memory: int


class Outlook:
    """The needs of these runs, and of any that are like them."""

    def __init__(self, configs: Sequence[RunConfig], terms: RunOptions | None = None, most: int | None = None) -> None:
        self.threads, self.most = (terms or RunOptions()).threads, most or cores()
        self.load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
        self._streams: dict[str, tuple[Stream, float]] = {}
        self._needs: dict[str, Need] = {}
        self._models: dict[str, int] = {}
        weights: dict[str, float] = {}
        first: dict[str, RunConfig] = {}
        for config in configs:
            key = self._kind(config)
            first.setdefault(key, config)
            weights[key] = weights.get(key, 0.0) + steps_in(self._stream(config), config) * work_of(config)
        self.kinds = len(first)
        self.trials: dict[str, Trial] = {}
        begin = time.monotonic()
        for key in track(sorted(weights, key=lambda key: -weights[key]), "trying a few steps"):
            if not self.trials or time.monotonic() - begin < BUDGET:
                self.trials[key] = try_steps(first[key], self._stream(first[key]))
        self._rates = {key: trial.seconds / max(work_of(first[key]), 1.0) for key, trial in self.trials.items()}

    def of(self, config: RunConfig) -> Need:
        """What a run takes; seeds take the same, so that each configuration is measured once."""
        name = canonical({**config.resolved(), "seed": 0})
        if name not in self._needs:
            self._needs[name] = self._need(config)
        return self._needs[name]

    def _need(self, config: RunConfig) -> Need:
        full, (stream, reading), trial = config.resolved(), self._read(config), self._trial(config)
        steps = steps_in(stream, config)
        replayed = full["settings"].get("replay.batch")
        samples = full["batch_size"] * trial.samples if replayed is None else full["batch_size"] + replayed
        tests = len(stream) * sum(len(task.test) for task in stream)
        model = self._model_bytes(config)
        stored = full["settings"].get("replay.capacity", 0) * math.prod(stream.shape)
        threads = self._threads(config)
        return Need(
            reading + trial.seconds * (steps * samples + FORWARD * tests) / (1 + EXTRA * (threads - 1)),
            threads,
            steps,
            len(stream),
            model,
            SMALL + KEEP * (max(trial.state, model) + stored),
            trial.memory.peak,
        )

    def _trial(self, config: RunConfig) -> Trial:
        """Its kind's, or that of the kind whose network does nearly as much, at that one's speed."""
        key = self._kind(config)
        if key in self.trials:
            return self.trials[key]
        work = max(work_of(config), 1.0)
        near = min(self.trials, key=lambda other: abs(math.log(self.trials[other].seconds / self._rates[other] / work)))
        found = self.trials[near]
        return Trial(self._rates[near] * work, found.samples, found.state, found.memory)

    def _model_bytes(self, config: RunConfig) -> int:
        full, stream = config.resolved(), self._stream(config)
        key = canonical([full["model"], full["model_options"], list(stream.shape), stream.classes])
        if key not in self._models:
            self._models[key] = _bytes(learner_of(config, stream).model.state_dict())
        return self._models[key]

    def _threads(self, config: RunConfig) -> int:
        return self.threads or threads_of(config, self.most)

    def _stream(self, config: RunConfig) -> Stream:
        return self._read(config)[0]

    def _read(self, config: RunConfig) -> tuple[Stream, float]:
        """The run's stream, and the seconds that it took to make."""
        full = config.resolved()
        key = canonical([full["benchmark"], full["benchmark_options"]])
        if key not in self._streams:
            begin = time.monotonic()
            self._streams[key] = stream_of(config), time.monotonic() - begin
        return self._streams[key]

    def _kind(self, config: RunConfig) -> str:
        """What runs share whose steps take the same time."""
        full = config.resolved()
        names = {key: value for key, value in full["settings"].items() if not isinstance(value, float)}
        parts = [full.get(key) for key in ("model", "model_options", *FAMILIES, "batch_size", "compile")]
        return canonical([*parts, names, list(self._stream(config).shape)])


def try_steps(config: RunConfig, stream: Stream) -> Trial:
    """A few steps, in tasks that grow till they are whole batches or long enough; the first is to warm up.

    What a step takes is the median of those of the most samples; the first of a task, which has other work in it,
    counts where there is no other. On one thread: where cores are busy, several wait for each other, and say nothing of
    how they work.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        learner, data = learner_of(config, stream), stream[0].train
        planned = fit(learner, stream)  # before anything is tried: what does not fit is refused
        size, ratio, found = 2, 1.0, dict[int, list[float]]()
        for number in range(TRIES):
            at = [(time.perf_counter(), 0)]
            few = data.subset(torch.arange(size))
            note = lambda *step: at.append((time.perf_counter(), learner.last_batch))  # noqa: B023, E731
            learner.learn(few, atomic=False, on_step=note)
            steps = [(samples, (end - begin) / samples) for (begin, _), (end, samples) in itertools.pairwise(at)]
            most, first = steps[0]
            if number == 0:
                start = at[-1][0]
                continue
            for samples, seconds in [step for step in steps[1:] if step[0] >= most] or steps[:1]:
                found.setdefault(samples, []).append(seconds)
            if not learner.recipe.joint:  # whose tasks hold all the samples so far
                ratio = max(ratio, most / min(size, learner.batch_size))
            if number > 1 and at[-1][0] - start > TRIAL:
                break
            size = max(2, min(len(data), STEPS * learner.batch_size, int(STEP / first)))
        return Trial(statistics.median(found[max(found)]), ratio, _bytes(learner.state_dict()), planned)
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class Forecast:
    """Of a number of runs: ``seconds`` one after another, ``wall`` as the executor does them."""

    seconds: float
    wall: float
    workers: int
    disk: int
    memory: int
    outlook: Outlook

    def lines(self) -> list[str]:
        """Sentences for ``--dry-run``; the one duration they have is that of the whole."""
        tried, kinds = len(self.outlook.trials), self.outlook.kinds
        how = f"a few steps of {tried} of {kinds} kinds tried, the rest by the size of their networks"
        how = how if tried < kinds else "a few steps of each kind tried"
        busy = self.outlook.load > 0.5
        load = f"; it was busy with other work, load {self.outlook.load:.1f} on {cores()} cores" if busy else ""
        return [
            f"about {duration(self.wall)} on this machine as it is now, {self.workers} at a time ({how}{load})",
            f"at most {shown(self.memory)} of memory each (counted), of {shown(limit())}{self._pieces}; "
            f"up to {shown(self.disk)} of disk for checkpoints",
        ]

    @property
    def _pieces(self) -> str:
        found = [trial.memory.pieces for trial in self.outlook.trials.values() if trial.memory.pieces]
        return f", {min(found)} samples at a time" if found else ""


def forecast(
    configs: Sequence[RunConfig], terms: RunOptions, executor: ExecutorConfig, more: Sequence[RunConfig] = ()
) -> Forecast:
    """What it takes to do these runs; ``more`` are looked at as well, for whoever asks the outlook about them."""
    outlook = Outlook([*configs, *more], terms)
    needs = [outlook.of(config) for config in configs]
    seconds = math.fsum(need.seconds for need in needs)
    longest = max((need.seconds for need in needs), default=0.0)
    if executor.executor == "serial":
        workers, wall = 1, seconds
    elif executor.workers is not None:
        workers, wall = min(executor.workers, len(needs)), max(longest, seconds / executor.workers)
    else:
        busy = math.fsum(need.seconds * need.threads for need in needs)
        wall = max(longest, busy / cores())
        workers = min(len(needs), max(1, round(cores() * seconds / busy))) if busy else 1
    disk, memory = sum(need.disk for need in needs), max((need.memory for need in needs), default=0)
    return Forecast(seconds, wall, workers, disk, memory, outlook)


def _bytes(value: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(value))


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from itertools.chain.from_iterable(map(_tensors, value.values()))
    elif isinstance(value, (list, tuple)):
        yield from itertools.chain.from_iterable(map(_tensors, value))
