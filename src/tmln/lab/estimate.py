"""What a number of runs will take before any is begun: time, tried on a few steps, and disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tmln.lab.config import RunConfig, canonical
from tmln.lab.run import build
from tmln.lab.session import Job, cost
from tmln.learner.checkpoint import KEEP
from tmln.progress import track

FEW = 8  # samples: enough for every part to have its state


@dataclass(frozen=True)
class Estimate:
    """``seconds`` are those of one worker; ``disk`` is for the checkpoints that each run keeps."""

    seconds: float
    disk: int
    memory: int
    planned: int = 0


def estimate(jobs: Sequence[Job]) -> Estimate:
    """Of runs that are alike apart from their seeds and numbers, one is tried."""
    kinds: dict[str, list[Job]] = {}
    for job in jobs:
        kinds.setdefault(_kind(job.config), []).append(job)
    seconds, disk, memory, planned = 0.0, 0, 0, 0
    for alike in track(list(kinds.values()), "trying a few steps of each kind"):
        need = cost(alike[0].config)
        seconds += len(alike) * need.seconds
        disk += len(alike) * KEEP * state_bytes(alike[0].config)
        memory, planned = max(memory, need.peak_bytes), max(planned, need.planned)
    return Estimate(seconds, disk, memory, planned)


def state_bytes(config: RunConfig) -> int:
    """A checkpoint's size after a second task of a few samples, when all parts have their state."""
    stream, learner = build(config)
    few = stream[0].train.subset(torch.arange(min(len(stream[0].train), FEW)))
    learner.learn(few, atomic=False)
    learner.learn(few, atomic=False)
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(learner.state_dict()))


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _kind(config: RunConfig) -> str:
    full = config.resolved()
    names = {key: value for key, value in full["settings"].items() if not isinstance(value, float)}
    return canonical({**full, "settings": names, "seed": 0, "lr": 0.0})
