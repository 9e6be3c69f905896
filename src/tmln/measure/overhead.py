"""What a method costs beside naive training (the paper's Table 4): time of a step, of a boundary, and memory.

All learners live in one process and take turns, in an order that rotates, so that a machine that slows down or heats
up slows them all; each round gives one ratio to naive, and the rounds together an interval. A second naive learner
takes part as a control: its ratio is 1 but for noise.
"""

from __future__ import annotations

import math
import os
import platform
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import torch

import tmln
from tmln.analysis.statistics import Summary, summarise, summarise_ratios
from tmln.experiments.build import build, steps_of
from tmln.experiments.config import RunConfig
from tmln.experiments.machine import machine
from tmln.experiments.process_memory import keep_memory
from tmln.experiments.reference_runs import SHARED
from tmln.learner import Learner
from tmln.measure.memory_cost import as_text, bytes_of, saved_bytes, units_of
from tmln.measure.peak import peak_memory
from tmln.measure.timed_turn import Turn, take_turn
from tmln.metrics import POSITIVE
from tmln.optim.precision import is_half
from tmln.progress import track
from tmln.streams import Stream, Task

BASE, CONTROL = "naive", "naive again"


def measure_overhead(
    configs: Sequence[RunConfig], rounds: int = 10, steps: int = 50, *, peak: bool = True, show: bool | None = None
) -> dict[str, Any]:
    """Plain values, to be saved and shown; one configuration a method, naive added if it is not among them.

    After a turn on the first task that does not count, every round is a turn of ``steps`` steps on the next task, and
    its boundary. Of what follows, S is ``{"mean", "low", "high", "n"}``: the mean over rounds and its 95% t-interval,
    null where there is none; of ratios to naive the geometric mean, and the interval of their logarithms::

        benchmark, rounds, steps, epochs, tasks, batch_size, model, parameters
        units: bytes of N (a sum for every weight), W, K, model, samples, logits (see tmln.measure.memory_cost)
        machine: processor, cores, threads, system, load (as the measurement began)
        versions: tmln, torch, python
        control: S of the second naive learner's ratio
        methods: name ->
            step:      seconds S, ratio S to naive, ratios (one a round)
            training:  ratio S to naive of a whole run: its steps and its boundaries
            boundary:  seconds S of the parts' end, epochs S: the same in epochs of naive
            auxiliary: formula (text) and formula_bytes, null where a part has none; held_bytes, held (name -> bytes),
                       derived (names of what is held but in no checkpoint), saved_bytes (of a
                       checkpoint between tasks)
            peak_bytes: of a process that does nothing else, null if it was not measured
            diverged:  why the method stopped taking part, or null
    """
    named = _by_method(configs)
    if rounds < 1 or steps < 1:
        raise ValueError(f"rounds and steps are at least 1, got {rounds} and {steps}")
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None  # before the work, which is load itself
    keep_memory()  # as every run does
    stream, first = build(named[BASE])
    learners = {BASE: first, CONTROL: build(named[BASE])[1]}
    learners |= {name: build(config)[1] for name, config in named.items() if name != BASE}
    turns, diverged = take_turns(stream, learners, rounds, steps, show)
    full = named[BASE].resolved()
    units = units_of(first.model, stream[0].train, len({c for task in stream for c in task.classes}))
    peaks = _peaks({name: config for name, config in named.items() if peak and name not in diverged}, show)
    methods = {
        name: {
            **_times(turns[name], turns[BASE], stream, learners[name], full["epochs"]),
            "auxiliary": _memory(learners[name], turns[name], units),
            "peak_bytes": peaks.get(name),
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
        "control": _ratio(again.step / once.step for again, once in zip(turns[CONTROL], turns[BASE], strict=True)),
        "methods": methods,
    }


def take_turns(
    stream: Stream, learners: dict[str, Learner], rounds: int, steps: int, show: bool | None = None
) -> tuple[dict[str, list[Turn]], dict[str, str]]:
    """Every learner's turns, one a round, and why some stopped early; each round begins with another learner."""
    turns: dict[str, list[Turn]] = {name: [] for name in learners}
    diverged: dict[str, str] = {}
    names = list(learners)
    order = [(number, names[(number + k) % len(names)]) for number in range(rounds + 1) for k in range(len(names))]
    for number, name in track(order, "overhead", show):
        if name in diverged:
            continue
        try:
            turn = take_turn(learners[name], _task(stream, number), steps)
        except FloatingPointError as error:
            if name == BASE:
                raise FloatingPointError(f"naive diverged, so there is nothing to compare with: {error}") from None
            diverged[name] = f"after {len(turns[name])} rounds: {error}"
            continue
        if number:  # the first task fills the memories and warms the machine up
            turns[name].append(turn)
    return turns, diverged


def _peaks(configs: dict[str, RunConfig], show: bool | None) -> dict[str, int]:
    """Those that could be measured; the others are said, and do not cost the rest."""
    found = {}
    for name in track(list(configs), "peak memory", show):
        try:
            found[name] = peak_memory(configs[name], torch.get_num_threads())
        except RuntimeError as error:
            warnings.warn(str(error), stacklevel=2)
    return found


def _task(stream: Stream, number: int) -> Task:
    """The first task, then the others over and over."""
    return stream[0 if number == 0 or len(stream) == 1 else 1 + (number - 1) % (len(stream) - 1)]


def _by_method(configs: Sequence[RunConfig]) -> dict[str, RunConfig]:
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
    first = configs[0]
    shared = {key: getattr(first, key) for key in (*SHARED, "lr")}
    base = named.pop(BASE, None) or RunConfig.of({**shared, "method": BASE})
    return {BASE: base, **named}


def _times(own: list[Turn], naive: list[Turn], stream: Stream, learner: Learner, epochs: int) -> dict[str, Any]:
    steps, ends = sum(steps_of(stream, learner, epochs)), len(stream)
    pairs = list(zip(own, naive, strict=False))  # one that diverged has fewer
    per_epoch = [-(-len(_task(stream, number).train) // learner.batch_size) for number in range(1, len(pairs) + 1)]
    ratios = [mine.step / base.step for mine, base in pairs]
    whole = [
        (steps * mine.step + ends * mine.boundary) / (steps * base.step + ends * base.boundary) for mine, base in pairs
    ]
    return {
        "step": {"seconds": _summary(turn.step for turn in own), "ratio": _ratio(ratios), "ratios": ratios},
        "training": {"ratio": _ratio(whole)},
        "boundary": {
            "seconds": _summary(turn.boundary for turn in own),
            "epochs": _summary(m.boundary / (b.step * n) for (m, b), n in zip(pairs, per_epoch, strict=True)),
        },
    }


def _memory(learner: Learner, turns: list[Turn], units: dict[str, int]) -> dict[str, Any]:
    terms = learner.recipe.memory_terms(half=any(map(is_half, learner.model.parameters())))
    found = turns[-1].held if turns else None
    return {
        "formula": None if terms is None else as_text(terms),
        "formula_bytes": bytes_of(terms, units),
        "held_bytes": None if found is None else sum(found.values()),
        "held": found,
        "derived": [term.name for term in terms or [] if term.derived and term.name in (found or {})],
        "saved_bytes": None if found is None else saved_bytes(learner),
    }


def _summary(values: Iterable[float]) -> dict[str, float | int | None]:
    return _plain(summarise(values, within=POSITIVE))


def _ratio(values: Iterable[float]) -> dict[str, float | int | None]:
    return _plain(summarise_ratios(values))


def _plain(found: Summary) -> dict[str, float | int | None]:
    numbers = {"mean": found.mean, "low": found.low, "high": found.high}
    return {**{key: None if math.isnan(value) else value for key, value in numbers.items()}, "n": found.n}
