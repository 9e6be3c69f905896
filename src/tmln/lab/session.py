"""Many runs, one after another: what is to be done, what it will cost, and doing it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tmln.lab.config import RunConfig, run_id
from tmln.lab.footprint import fit
from tmln.lab.memory import keep_memory, peak_bytes, reset_peak
from tmln.lab.oracle import REFERENCES, Oracle, reference_config, reference_of
from tmln.lab.run import Execution, Moment, Watch, build, steps_of
from tmln.lab.store import Store
from tmln.stopping import asked_to_stop


@dataclass(frozen=True)
class Job:
    """A run to be done; ``reference`` marks those that are there for intransigence only."""

    config: RunConfig
    reference: bool = False

    @property
    def label(self) -> str:
        return f"{self.config.method}, seed {self.config.seed}"


def plan(configs: Sequence[RunConfig], oracle: Oracle) -> list[Job]:
    """Every run once, the references first: what needs them comes after."""
    asked = {run_id(config): Job(config) for config in configs}
    needed = {}
    for config in configs:
        wanted = reference_config(config, oracle)
        if wanted is not None and run_id(wanted) not in asked:
            needed[run_id(wanted)] = Job(wanted, reference=True)
    oracles = [name for name in asked if asked[name].config.method in REFERENCES]
    return [*needed.values(), *(asked[name] for name in oracles), *(asked[n] for n in asked if n not in oracles)]


@dataclass(frozen=True)
class Cost:
    """What a run takes; seconds a step and memory are those of a few steps that were tried, ``planned`` is counted."""

    steps: int
    parameters: int
    seconds_per_step: float
    peak_bytes: int
    planned: int = 0
    pieces: int | None = None  # samples that go through the model at a time, if not all

    @property
    def seconds(self) -> float:
        return self.steps * self.seconds_per_step


def cost(config: RunConfig, tries: int = 3) -> Cost:
    """Counted, and measured: the best of ``tries`` steps of a second task, when replay has begun."""
    reset_peak()
    stream, learner = build(config)
    need = fit(learner, stream)  # before anything is tried: what does not fit is refused
    epochs = int(config.resolved()["epochs"])
    steps = sum(steps_of(stream, learner, epochs, merged=config.merged))
    parameters = sum(p.numel() for p in learner.model.parameters())
    few = stream[0].train.subset(torch.arange(min(len(stream[0].train), tries * learner.batch_size)))
    learner.learn(few, atomic=False)
    at = [time.perf_counter()]
    learner.learn(few, atomic=False, on_step=lambda *step: at.append(time.perf_counter()))
    return Cost(steps, parameters, min(b - a for a, b in itertools.pairwise(at)), peak_bytes(), need.total, need.pieces)


def run_jobs(
    store: Store,
    jobs: Sequence[Job],
    oracle: Oracle,
    *,
    on_begin: Callable[[Job, bool], None] = lambda job, finished: None,
    on_step: Callable[[Moment], None] = lambda moment: None,
    on_end: Callable[[Job, dict[str, Any]], None] = lambda job, result: None,
    checkpoint_seconds: float = 300.0,
    checkpoint_steps: int | None = None,
    logger: str = "none",
) -> None:
    """Do what is not done yet. A signal to stop saves the run and raises :class:`~tmln.stopping.Interrupted`."""
    keep_memory()
    with asked_to_stop() as stop:
        for job in jobs:
            run = store.open(job.config)
            result = run.result
            on_begin(job, result is not None)
            if result is None:
                watch = Watch(checkpoint_seconds, checkpoint_steps, on_step, stop, logger)
                with run.lock:
                    result = run.result  # another process may have finished it in between
                    if result is None:
                        reference = reference_of(store, job.config, oracle)
                        result = Execution(run, watch, reference, oracle)()
            on_end(job, result)
