"""A validation split: training samples that nobody trains on, to choose settings by without a look at the tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from tmln.data.image_files import count_held_out
from tmln.seeds import seed_of
from tmln.streams.samples import Samples
from tmln.streams.stream import Task


def with_validation(tasks: Iterable[Task], fraction: float, seed: int, videos: Tensor | None) -> tuple[Task, ...]:
    """Each task with ``fraction`` of each class's training samples set aside; ``videos`` is the one of every row.

    Drawn with a generator of the class's own: a sample that is in several domains is set aside in all or in none.
    """
    if not fraction:
        return tuple(tasks)
    found = []
    for task in tasks:
        mine = None if videos is None else videos[task.train.rows]
        chosen = set_aside(task.train.y, fraction, seed, mine)
        if not chosen.any():
            raise ValueError(
                f"task {task.name!r} has no class with two training samples, so none to validate on; "
                "leave benchmark.validation out or raise benchmark.per_class"
            )
        train, aside = (_where(task.train, role) for role in (~chosen, chosen))
        found.append(replace(task, train=train, validation=aside))
    return tuple(found)


def set_aside(labels: Tensor, fraction: float, seed: int, videos: Tensor | None = None) -> Tensor:
    """Which samples validate: of n of a class, n * fraction rounded (halves to even), but 1 at least and n - 1 at most.

    They are drawn at random; or, where samples are frames of ``videos``, they are the last of each video, rounded
    likewise but possibly none, and the last of the class where all its videos are too short: a frame's neighbours are
    nearly the frame itself.
    """
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    for label in torch.unique(labels).tolist():
        rows = (labels == label).nonzero().squeeze(1)
        if videos is None:
            generator = torch.Generator().manual_seed(seed_of(seed, f"validation of class {label}"))
            drawn = torch.randperm(len(rows), generator=generator)[: count_held_out(len(rows), fraction)]
            chosen[rows[drawn]] = True
            continue
        for video in torch.unique(videos[rows]).tolist():
            frames = rows[videos[rows] == video]
            chosen[_tail(frames, min(round(fraction * len(frames)), len(frames) - 1))] = True
        if not chosen[rows].any():
            chosen[_tail(rows, count_held_out(len(rows), fraction))] = True
    return chosen


def _tail(rows: Tensor, count: int) -> Tensor:
    return rows[len(rows) - count :]


def _where(samples: Samples, role: Tensor) -> Samples:
    return samples.subset(role.nonzero().squeeze(1))
