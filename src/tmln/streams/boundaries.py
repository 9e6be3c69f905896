"""Boundaries that are not clean: samples that stray into other tasks, and tasks that come back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from tmln.streams.samples import concat
from tmln.streams.stream import Task


def blur(tasks: Sequence[Task], fraction: float, seed: int) -> tuple[Task, ...]:
    """Deal ``fraction`` of each task's training samples, drawn at random, to the other tasks in turn.

    Every sample still appears exactly once in the stream; test sets and ``classes`` stay as they were.
    """
    if fraction == 0.0 or len(tasks) == 1:
        return tuple(tasks)
    generator = torch.Generator().manual_seed(seed)
    parts = [[task.train] for task in tasks]
    for index, task in enumerate(tasks):
        shuffled = torch.randperm(len(task.train), generator=generator)
        straying = round(fraction * len(task.train))
        parts[index][0] = task.train.subset(shuffled[straying:].sort().values)
        others = [(index + away) % len(tasks) for away in range(1, len(tasks))]
        for place, other in enumerate(others):
            parts[other].append(task.train.subset(shuffled[:straying][place :: len(others)].sort().values))
    return tuple(replace(task, train=concat(part)) for task, part in zip(tasks, parts, strict=True))


def repeat(tasks: Sequence[Task], times: int) -> tuple[Task, ...]:
    """The whole sequence ``times`` over; each visit brings its own 1/times of every class's samples."""
    if times == 1:
        return tuple(tasks)
    visits = []
    for visit in range(times):
        for task in tasks:
            by_class = task.train.y.argsort(stable=True)
            mine = by_class[visit::times].sort().values
            if len(mine) == 0:
                raise ValueError(f"task {task.name!r} has {len(task.train)} samples: too few for {times} visits")
            visits.append(replace(task, name=f"{task.name} visit {visit + 1}", train=task.train.subset(mine)))
    return tuple(visits)
