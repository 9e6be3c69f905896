"""Class-incremental and domain-incremental streams from one data set."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tmln.streams.assemble import assemble
from tmln.streams.options import RUN_SEED, Options, SplitOptions
from tmln.streams.samples import select_classes
from tmln.streams.stream import Augment, Prepare, Stream, Task
from tmln.streams.train_test import TrainTestData
from tmln.suggest import did_you_mean


def resolve_class_order(spec: str | Sequence[int], classes: int, seed: int) -> tuple[int, ...]:
    """Return the classes 0..classes-1 in the order ``spec``.

    ``seed:N`` is numpy's legacy permutation for seed N, ``seeded`` that for ``seed``, and
    ``icarl1993`` that for 1993 (iCaRL, PyCIL): 68, 56, 78 ... of 100.
    """
    if spec == "ascending":
        return tuple(range(classes))
    if isinstance(spec, str) and (drawn := _parse_seed(spec, seed)) is not None:
        return tuple(int(value) for value in np.random.RandomState(drawn).permutation(classes))
    try:
        order = tuple(int(value) for value in (spec.split(",") if isinstance(spec, str) else spec))
    except ValueError:
        raise ValueError(
            f"unknown class order {spec!r}; use ascending, seeded, seed:7, icarl1993 or a list like 3,1,0,2"
        ) from None
    if sorted(order) != list(range(classes)):
        raise ValueError(f"a class order names each of the classes 0..{classes - 1} once, not {list(order)}")
    return order


def _parse_seed(spec: str, seed: int) -> int | None:
    """Return the seed that an order is drawn with; None if it is not drawn."""
    if spec == RUN_SEED:
        raise ValueError(f"{RUN_SEED!r} is an order for runs, each of which has a seed; without one write seed:7, say")
    name, colon, number = spec.partition(":")
    if name == "seed" and colon:
        if not number.isdecimal() or int(number) >= 2**32:
            raise ValueError(f"an order is drawn with seed:N, N a whole number below 2**32, not {spec!r}")
        return int(number)
    return {"seeded": seed, "icarl1993": 1993}.get(spec)


def compute_task_sizes(classes: int, tasks: int, first: int | None = None) -> tuple[int, ...]:
    """Return equal numbers of classes; if they cannot be equal, the first tasks have one more.

    With ``first`` that many are in the first task, and the others must be equal.

    >>> compute_task_sizes(100, 6, first=50)
    (50, 10, 10, 10, 10, 10)
    """
    if not 1 <= tasks <= classes:
        raise ValueError(f"{classes} classes make 1 to {classes} tasks, not {tasks}")
    if first is not None:
        rest = classes - first
        if rest < 0 or (rest > 0) != (tasks > 1) or rest % max(1, tasks - 1):
            if rest < 0:
                raise ValueError(f"there are {classes} classes, so that first={first} is too many")
            counts = ", ".join(str(1 + count) for count in range(1, rest + 1) if rest % count == 0) or "1"
            raise ValueError(
                f"first={first} of {classes} classes leaves {rest}, which make no equal tasks if tasks={tasks}; "
                f"numbers of tasks that do: {counts}"
            )
        return (first, *[rest // max(1, tasks - 1)] * (tasks - 1))
    small, larger = divmod(classes, tasks)
    return tuple(small + (index < larger) for index in range(tasks))


def list_task_classes(names: Sequence[str], options: SplitOptions, tasks: int) -> list[tuple[int, ...]]:
    """Return the classes of each task, in the order in which they arrive."""
    if options.task_classes is None:
        order = iter(resolve_class_order(options.class_order, len(names), options.seed))
        sizes = compute_task_sizes(len(names), options.tasks or tasks, options.first)
        return [tuple(itertools.islice(order, size)) for size in sizes]
    groups = [tuple(find_class(word, names) for word in task) for task in options.task_classes]
    counts = Counter(label for classes in groups for label in classes)
    twice = next((label for label, count in counts.items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"task_classes names the class {names[twice]!r} ({twice}) twice; a class is in one task")
    return groups


def find_class(word: int | str, names: Sequence[str]) -> int:
    """Return the number of a class that is given by its name or its number."""
    if isinstance(word, str) and word in names:
        return names.index(word)
    if str(word) in names:  # classes of folders may be called 2023, 2024
        return names.index(str(word))
    if isinstance(word, int) and 0 <= word < len(names):
        return word
    known = f"numbers from 0 to {len(names) - 1}, or names"
    raise ValueError(f"task_classes: there is no class {word!r}{did_you_mean(str(word), names)} ({known})")


def split_by_class(
    name: str,
    pool: TrainTestData,
    options: SplitOptions,
    *,
    tasks: int,
    augment: Augment | None = None,
    prepare: Prepare | None = None,
) -> Stream:
    """Make ``options.tasks`` (else ``tasks``) tasks, each with its own classes."""
    parts: list[Task] = []
    groups = list_task_classes(pool.class_names, options, tasks)
    for index, classes in enumerate(groups):
        train = select_classes(pool.train, classes, options.per_class)
        test = select_classes(pool.test, classes, options.per_class_test)
        parts.append(Task(f"task {index + 1}", train, test, tuple(sorted(classes))))
    metadata = {"scenario": "class-incremental", "class_order": [label for classes in groups for label in classes]}
    return assemble(name, pool, options, parts, metadata, augment=augment, prepare=prepare)


def rotate(x: Tensor, degrees: float) -> Tensor:
    """Rotate images [B, C, H, W], uint8 or float, counter-clockwise; angle 0 changes nothing."""
    if degrees % 360.0 == 0.0:
        return x
    height, width = x.shape[-2:]
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    # Output to input coordinates, in units of half an image: hence the aspect ratios.
    matrix = torch.tensor([[cos, -sin * height / width, 0.0], [sin * width / height, cos, 0.0]], device=x.device)
    grid = F.affine_grid(matrix.expand(len(x), 2, 3), list(x.shape), align_corners=False)
    turned = F.grid_sample(x.float(), grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return turned.round().to(torch.uint8) if x.dtype == torch.uint8 else turned.to(x.dtype)


@dataclass(frozen=True)
class Rotation:
    """``rotate`` by one angle, as a function of a batch."""

    degrees: float

    def __call__(self, x: Tensor) -> Tensor:
        return rotate(x, self.degrees)


@dataclass(frozen=True, eq=False)
class Permutation:
    """One fixed permutation of every image's pixels (Goodfellow et al. 2013)."""

    order: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return x.flatten(1).index_select(1, self.order.to(x.device)).view(x.shape)


def make_rotations(tasks: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """Return rotations by k * 180 / tasks degrees (Lopez-Paz and Ranzato 2017, in equal steps)."""
    angles = [180.0 * index / tasks for index in range(tasks)]
    return {f"{angle:g} degrees": Rotation(angle) for angle in angles}


def make_permutations(tasks: int, pixels: int, seed: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """Return the identity, then ``tasks - 1`` random permutations of the pixels."""
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.arange(pixels), *(torch.randperm(pixels, generator=generator) for _ in range(tasks - 1))]
    return {f"permutation {index}": Permutation(order) for index, order in enumerate(orders)}


def split_by_domain(
    name: str,
    pool: TrainTestData,
    options: Options,
    domains: Mapping[str, Callable[[Tensor], Tensor]],
    *,
    augment: Augment | None = None,
) -> Stream:
    """Make one task per domain; inputs are transformed when read, so domains share memory."""
    classes = tuple(range(len(pool.class_names)))
    train = select_classes(pool.train, classes, options.per_class)
    test = select_classes(pool.test, classes, options.per_class_test)
    tasks = [
        Task(f"task {index + 1}", train.map(function), test.map(function), classes, domain)
        for index, (domain, function) in enumerate(domains.items())
    ]
    metadata = {"scenario": "domain-incremental", "domains": list(domains)}
    return assemble(name, pool, options, tasks, metadata, augment=augment)
