"""Class-incremental streams: a labelled pool split into tasks of classes that follow a stated order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tmln.streams.options import RUN_SEED, SplitOptions
from tmln.streams.pool import Pool, assemble
from tmln.streams.samples import of_classes
from tmln.streams.stream import Augment, Prepare, Stream, Task


def class_order(spec: str | Sequence[int], classes: int, seed: int) -> tuple[int, ...]:
    """The classes 0..classes-1 in the order ``spec`` asks for.

    ``seed:N`` is numpy's legacy permutation for seed N; ``seeded`` that for ``seed``, and ``icarl1993`` that for 1993
    (iCaRL, PyCIL): 68, 56, 78 ... of 100.
    """
    if spec == "ascending":
        return tuple(range(classes))
    if isinstance(spec, str) and (drawn := _seed_in(spec, seed)) is not None:
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


def _seed_in(spec: str, seed: int) -> int | None:
    """The seed that an order is drawn with; None if it is not drawn."""
    if spec == RUN_SEED:
        raise ValueError(f"{RUN_SEED!r} is an order for runs, each of which has a seed; without one write seed:7, say")
    name, colon, number = spec.partition(":")
    if name == "seed" and colon:
        if not number.isdecimal() or int(number) >= 2**32:
            raise ValueError(f"an order is drawn with seed:N, N a whole number below 2**32, not {spec!r}")
        return int(number)
    return {"seeded": seed, "icarl1993": 1993}.get(spec)


def split_sizes(classes: int, tasks: int) -> tuple[int, ...]:
    """Equal parts; where they cannot be equal the first ones hold one class more."""
    if not 1 <= tasks <= classes:
        raise ValueError(f"{classes} classes make 1 to {classes} tasks, not {tasks}")
    small, larger = divmod(classes, tasks)
    return tuple(small + (index < larger) for index in range(tasks))


def class_incremental(
    name: str,
    pool: Pool,
    options: SplitOptions,
    *,
    tasks: int,
    augment: Augment | None = None,
    prepare: Prepare | None = None,
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
    metadata = {"scenario": "class-incremental", "class_order": list(order)}
    return assemble(name, pool, options, parts, metadata, augment=augment, prepare=prepare)
