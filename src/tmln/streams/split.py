"""Class-incremental streams: a labelled pool split into tasks of classes that follow a stated order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tmln.streams.bad import BadData
from tmln.streams.boundaries import blur, repeat
from tmln.streams.complete import complete
from tmln.streams.normalise import Normalise
from tmln.streams.options import Options, SplitOptions
from tmln.streams.samples import Samples, of_classes
from tmln.streams.stream import Augment, Prepare, Stream, Task


@dataclass(frozen=True, eq=False)
class Pool:
    """Training and test samples of one data set, before they become tasks."""

    train: Samples
    test: Samples
    class_names: tuple[str, ...]
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)


def class_order(spec: str | Sequence[int], classes: int, seed: int) -> tuple[int, ...]:
    """The classes 0..classes-1 in the order ``spec`` asks for.

    ``icarl1993`` is numpy's legacy permutation for seed 1993 (iCaRL, PyCIL): 68, 56, 78 ... of 100.
    """
    if spec == "ascending":
        return tuple(range(classes))
    if spec in ("seeded", "icarl1993"):
        legacy = np.random.RandomState(1993 if spec == "icarl1993" else seed)
        return tuple(int(value) for value in legacy.permutation(classes))
    try:
        order = tuple(int(value) for value in (spec.split(",") if isinstance(spec, str) else spec))
    except ValueError:
        raise ValueError(
            f"unknown class order {spec!r}; use ascending, seeded, icarl1993 or a list like 3,1,0,2"
        ) from None
    if sorted(order) != list(range(classes)):
        raise ValueError(f"a class order names each of the classes 0..{classes - 1} once, not {list(order)}")
    return order


def split_sizes(classes: int, tasks: int) -> tuple[int, ...]:
    """Equal parts; where they cannot be equal the first ones hold one class more."""
    if not 1 <= tasks <= classes:
        raise ValueError(f"{classes} classes make 1 to {classes} tasks, not {tasks}")
    small, larger = divmod(classes, tasks)
    return tuple(small + (index < larger) for index in range(tasks))


def irregular(tasks: Sequence[Task], options: Options) -> tuple[Task, ...]:
    """Tasks with the repeated and blurry boundaries the options ask for."""
    return blur(repeat(tasks, options.repeats), options.blurry, options.seed)


def class_incremental(
    name: str,
    pool: Pool,
    options: SplitOptions,
    *,
    tasks: int,
    augment: Augment | None = None,
    prepare: Prepare | None = None,
    shape: tuple[int, ...] | None = None,
    metadata: Mapping[str, object] | None = None,
) -> Stream:
    """A stream of ``options.tasks`` (else ``tasks``) tasks, each with its own classes of the pool."""
    order = class_order(options.class_order, len(pool.class_names), options.seed)
    parts: list[Task] = []
    start = 0
    for index, size in enumerate(split_sizes(len(order), options.tasks or tasks)):
        classes = order[start : start + size]
        start += size
        train = of_classes(pool.train, classes, options.per_class)
        test = of_classes(pool.test, classes, options.per_class_test)
        parts.append(Task(f"task {index + 1}", train, test, tuple(sorted(classes))))
    with BadData(name, options.skip_bad) as bad:
        sound = complete(parts, pool.class_names, bad)
    plain = Normalise(pool.mean, pool.std)
    return Stream(
        name=name,
        tasks=irregular(sound, options),
        class_names=pool.class_names,
        shape=shape or pool.train.shape,
        augment=augment or plain,
        prepare=prepare or plain,
        mean=pool.mean,
        std=pool.std,
        metadata={"scenario": "class-incremental", "class_order": list(order), **(metadata or {})},
    )
