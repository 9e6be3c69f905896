"""Overhead of methods over naive training (Table 4): time of a step and a boundary, memory.

All learners live in one process and take turns in rotating order, so that a machine that slows down
slows all of them; each round gives one ratio to naive, the rounds together an interval. A second
naive learner is the control: its ratio is 1 except for noise.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

import tmln
from tmln.analysis.statistics import Summary, summarise, summarise_ratios
from tmln.experiments.build import build, steps_of
from tmln.experiments.config import RunConfig
from tmln.experiments.machine import machine
from tmln.experiments.memory_estimate import keep_memory
from tmln.experiments.reference_runs import SHARED
from tmln.learner import Learner
from tmln.measure.memory_cost import (
    count_bytes,
    count_saved_bytes,
    find_held_bytes,
    format_terms,
    measure_units,
    measure_width,
)
from tmln.methods import Step
from tmln.metrics import POSITIVE
from tmln.optim.state import is_half
from tmln.progress import track
from tmln.streams import Stream, Task


@dataclass(frozen=True)
class TimedTask:
    """Seconds per step, seconds of the components' ``end``, and the bytes held before it."""

    step: float
    boundary: float
    held: dict[str, int]


class _Pause(Exception):
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch


def time_task(learner: Learner, task: Task, steps: int) -> TimedTask:
    """Time ``steps`` steps on the task's samples, after one untimed step, and its boundary.

    The learner is stopped in the middle of the task, like a killed run; when it goes on, all epochs
    are over and only the boundary remains.
    """
    count = min(len(task.train), steps * learner.batch_size)  # few enough that the last step is in a second epoch
    few = task.train.subset(torch.arange(count) * len(task.train) // count)
    at: list[float] = []

    def note(epoch: int, number: int, loss: float) -> None:
        at.append(time.perf_counter())
        if len(at) > steps:
            raise _Pause(epoch)

    try:
        learner.learn(few, steps + 1, classes=task.classes, atomic=False, on_step=note)
        raise AssertionError("a learner cannot run out of epochs before it has made its steps")
    except _Pause as pause:
        epochs = pause.epoch
    found = find_held_bytes(learner)
    begin = time.perf_counter()
    learner.learn(task.train, epochs, classes=task.classes, atomic=False)
    learner.answer.prepare()
    return TimedTask((at[-1] - at[0]) / steps, time.perf_counter() - begin, found)


STEPS = 10  # OCAR's factors are renewed once in them


class PeakMemory(NamedTuple):
    """The peak of a process in the host's memory, and of its tensors on a GPU; None on a CPU."""

    host: int
    device: int | None = None


def measure_peak_memory(config: RunConfig, threads: int) -> PeakMemory:
    """Return the peak memory of a process that trains a second task and passes its boundary."""
    given = json.dumps({"config": config.model_dump(mode="json"), "threads": threads})
    child = subprocess.run([sys.executable, "-m", __name__], input=given, capture_output=True, text=True, check=False)
    if child.returncode:
        last = (child.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"measuring the peak memory of {config.method} failed: {last}")
    return PeakMemory(*json.loads(child.stdout.splitlines()[-1])["peak_bytes"])


def _measure(config: RunConfig, threads: int) -> PeakMemory:
    import torch

    from tmln.experiments.build import build
    from tmln.experiments.machine import run_device
    from tmln.experiments.memory_estimate import keep_memory, peak_bytes, reset_peak
    from tmln.measure.overhead import time_task

    torch.set_num_threads(threads)
    keep_memory()  # like every run
    stream, learner = build(config)
    time_task(learner, stream[0], STEPS)
    reset_peak()
    device = run_device()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    time_task(learner, stream[min(1, len(stream) - 1)], STEPS)
    return PeakMemory(peak_bytes(), torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None)


def main() -> None:
    """Read a configuration from stdin, print the bytes as JSON: the process of one measurement."""
    given: dict[str, Any] = json.load(sys.stdin)
    print(json.dumps({"peak_bytes": _measure(RunConfig.of(given["config"]), given["threads"])}))


if __name__ == "__main__":
    main()


BASE, CONTROL = "naive", "naive again"


def measure_overhead(
    configs: Sequence[RunConfig], rounds: int = 10, steps: int = 50, *, peak: bool = True
) -> dict[str, Any]:
    """Measure the overhead of methods, one configuration each; naive is added if it is missing.

    After a turn on the first task that does not count, every round is a turn of ``steps`` steps on
    the next task, and its boundary. S is ``{"mean", "low", "high", "n"}``: the mean over rounds and
    its 95% t-interval, null if there is none; for ratios the geometric mean and the interval of
    their logarithms::

        benchmark, rounds, steps, epochs, tasks, batch_size, model, parameters
        units: bytes of N, W, K, model, samples, logits (see tmln.measure.memory_cost)
        machine: processor, cores, threads, system, load (before the measurement)
        versions: tmln, torch, python
        control: S of the second naive learner's ratio
        methods: name ->
            step:      seconds S, ratio S to naive, ratios (one per round)
            training:  ratio S to naive of a whole run: its steps and boundaries
            boundary:  seconds S of the components' end, epochs S: in epochs of naive
            auxiliary: formula (text) and formula_bytes, null if a component has none;
                       held_bytes, held (name -> bytes), derived (names that are held but
                       not saved), saved_bytes (of a checkpoint between tasks)
            peak_bytes: of a process that does nothing else, null if not measured
            device_peak_bytes: of its tensors on a GPU, null on a CPU
            diverged:  why the method stopped, or null
    """
    named = _name_configs(configs)
    if rounds < 1 or steps < 1:
        raise ValueError(f"rounds and steps are at least 1, got {rounds} and {steps}")
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None  # before the work, which is load itself
    keep_memory()  # like every run
    stream, first = build(named[BASE])
    learners = {BASE: first, CONTROL: build(named[BASE])[1]}
    learners |= {name: build(config)[1] for name, config in named.items() if name != BASE}
    turns, diverged = time_rounds(stream, learners, rounds, steps)
    full = named[BASE].resolved()
    samples, classes = stream[0].train, len({c for task in stream for c in task.classes})
    units = measure_units(first.model, samples, classes)
    own = {
        name: measure_units(one.model, samples, classes, width) if (width := measure_width(one, samples)) else units
        for name, one in learners.items()
    }
    peaks = _measure_peaks({name: config for name, config in named.items() if peak and name not in diverged})
    methods = {
        name: {
            **_summarise_times(turns[name], turns[BASE], stream, learners[name], full["epochs"]),
            "auxiliary": _summarise_memory(learners[name], turns[name], own[name]),
            "peak_bytes": peaks[name].host if name in peaks else None,
            "device_peak_bytes": peaks[name].device if name in peaks else None,
            "diverged": diverged.get(name),
        }
        for name in named
    }
    return {
        "benchmark": named[BASE].benchmark,
        **{key: full[key] for key in ("epochs", "batch_size", "model")},
        "rounds": rounds,
        "steps": steps,
        "tasks": len(stream),
        "parameters": sum(p.numel() for p in first.model.parameters()),
        "units": units,
        "machine": {**machine(), "load": load},
        "versions": {"tmln": tmln.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "control": _summarise_ratio(
            again.step / once.step for again, once in zip(turns[CONTROL], turns[BASE], strict=True)
        ),
        "methods": methods,
    }


def time_rounds(
    stream: Stream, learners: dict[str, Learner], rounds: int, steps: int
) -> tuple[dict[str, list[TimedTask]], dict[str, str]]:
    """Return every learner's turns, one per round, and why some stopped early.

    Each round begins with another learner.
    """
    turns: dict[str, list[TimedTask]] = {name: [] for name in learners}
    diverged: dict[str, str] = {}
    names = list(learners)
    order = [(number, names[(number + k) % len(names)]) for number in range(rounds + 1) for k in range(len(names))]
    for number, name in track(order, "overhead"):
        if name in diverged:
            continue
        try:
            turn = time_task(learners[name], _get_task(stream, number), steps)
        except FloatingPointError as error:
            if name == BASE:
                raise FloatingPointError(f"naive diverged, so there is nothing to compare with: {error}") from None
            diverged[name] = f"after {len(turns[name])} rounds: {error}"
            continue
        if number:  # the first task fills the memories and warms the machine up
            turns[name].append(turn)
    return turns, diverged


def _measure_peaks(configs: dict[str, RunConfig]) -> dict[str, PeakMemory]:
    """Return the peaks that could be measured; warn of the others."""
    found = {}
    for name in track(list(configs), "peak memory"):
        try:
            found[name] = measure_peak_memory(configs[name], torch.get_num_threads())
        except RuntimeError as error:
            warnings.warn(str(error), stacklevel=2)
    return found


def _get_task(stream: Stream, number: int) -> Task:
    """Return the first task in round 0, then the others in turn."""
    return stream[0 if number == 0 or len(stream) == 1 else 1 + (number - 1) % (len(stream) - 1)]


def _name_configs(configs: Sequence[RunConfig]) -> dict[str, RunConfig]:
    if not configs:
        raise ValueError("no methods to measure; name some, e.g. --methods er,tmln")
    named = {config.method: config for config in configs}
    twice = [config.method for config in configs if config != named[config.method]]
    if twice:
        raise ValueError(f"{twice[0]} is given twice with different settings; measure them one after another")
    for name, config in named.items():
        if config.recipe().joint:
            raise ValueError(
                f"{name} takes naive's steps, only more of them, on all tasks so far: leave it out of --methods"
            )
        step, settings = config.recipe().resolve("step")
        if issubclass(step, Step) and not step.trains_at(settings, 1):
            raise ValueError(
                f"{name} takes no steps after the first task, so that there is nothing to measure: leave it out of "
                "--methods (what it costs: python -m benchmarks pretrained)"
            )
    first = configs[0]
    shared = {key: getattr(first, key) for key in (*SHARED, "lr")}
    base = named.pop(BASE, None) or RunConfig.of({**shared, "method": BASE})
    return {BASE: base, **named}


def _summarise_times(
    own: list[TimedTask], naive: list[TimedTask], stream: Stream, learner: Learner, epochs: int
) -> dict[str, Any]:
    steps, ends = sum(steps_of(stream, learner, epochs)), len(stream)
    pairs = list(zip(own, naive, strict=False))  # one that diverged has fewer
    per_epoch = [-(-len(_get_task(stream, number).train) // learner.batch_size) for number in range(1, len(pairs) + 1)]
    ratios = [mine.step / base.step for mine, base in pairs]
    whole = [
        (steps * mine.step + ends * mine.boundary) / (steps * base.step + ends * base.boundary) for mine, base in pairs
    ]
    return {
        "step": {"seconds": _summarise(turn.step for turn in own), "ratio": _summarise_ratio(ratios), "ratios": ratios},
        "training": {"ratio": _summarise_ratio(whole)},
        "boundary": {
            "seconds": _summarise(turn.boundary for turn in own),
            "epochs": _summarise(m.boundary / (b.step * n) for (m, b), n in zip(pairs, per_epoch, strict=True)),
        },
    }


def _summarise_memory(learner: Learner, turns: list[TimedTask], units: dict[str, int]) -> dict[str, Any]:
    terms = learner.recipe.memory_terms(half=any(map(is_half, learner.model.parameters())))
    found = turns[-1].held if turns else None
    return {
        "formula": None if terms is None else format_terms(terms),
        "formula_bytes": count_bytes(terms, units),
        "held_bytes": None if found is None else sum(found.values()),
        "held": found,
        "derived": [term.name for term in terms or [] if term.derived and term.name in (found or {})],
        "saved_bytes": None if found is None else count_saved_bytes(learner),
    }


def _summarise(values: Iterable[float]) -> dict[str, float | int | None]:
    return _to_dict(summarise(values, within=POSITIVE))


def _summarise_ratio(values: Iterable[float]) -> dict[str, float | int | None]:
    return _to_dict(summarise_ratios(values))


def _to_dict(found: Summary) -> dict[str, float | int | None]:
    numbers = {"mean": found.mean, "low": found.low, "high": found.high}
    return {**{key: None if math.isnan(value) else value for key, value in numbers.items()}, "n": found.n}
