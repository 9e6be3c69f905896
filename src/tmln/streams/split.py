"""Class-incremental streams: a labelled pool split into tasks of classes that follow a stated order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tmln.data.bad import BadData
from tmln.streams.boundaries import blur, repeat
from tmln.streams.complete import complete
from tmln.streams.normalise import Normalise
from tmln.streams.options import Options, SplitOptions
from tmln.streams.samples import Samples, of_classes
from tmln.streams.stream import Augment, Prepare, Stream, Task

RUN_SEED = "run-seed"  # an order that whoever has a run's seed replaces by ``seed:N``


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
