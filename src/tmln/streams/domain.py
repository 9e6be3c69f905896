"""Domain-incremental streams: the same classes in every task, in ever new guises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tmln.data.bad import BadData
from tmln.streams.complete import complete
from tmln.streams.normalise import Normalise
from tmln.streams.options import Options
from tmln.streams.rotate import Rotation
from tmln.streams.samples import of_classes
from tmln.streams.split import Pool, irregular
from tmln.streams.stream import Stream, Task


@dataclass(frozen=True, eq=False)
class Permutation:
    """The same shuffle of every image's pixels (Goodfellow et al. 2013)."""

    order: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return x.flatten(1).index_select(1, self.order.to(x.device)).view(x.shape)


def rotations(tasks: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """Angles k * 180 / tasks: the half turn of Lopez-Paz and Ranzato (2017) in equal steps."""
    angles = [180.0 * index / tasks for index in range(tasks)]
    return {f"{angle:g} degrees": Rotation(angle) for angle in angles}


def permutations(tasks: int, pixels: int, seed: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """The images as they are, then ``tasks - 1`` permutations of their pixels."""
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.arange(pixels), *(torch.randperm(pixels, generator=generator) for _ in range(tasks - 1))]
    return {f"permutation {index}": Permutation(order) for index, order in enumerate(orders)}


def domain_incremental(
    name: str,
    pool: Pool,
    options: Options,
    domains: Mapping[str, Callable[[Tensor], Tensor]],
    *,
    metadata: Mapping[str, object] | None = None,
) -> Stream:
    """One task a domain; inputs are transformed as they are read, so domains share memory."""
    classes = tuple(range(len(pool.class_names)))
    train = of_classes(pool.train, classes, options.per_class)
    test = of_classes(pool.test, classes, options.per_class_test)
    tasks = [
        Task(f"task {index + 1}", train.map(function), test.map(function), classes, domain)
        for index, (domain, function) in enumerate(domains.items())
    ]
    with BadData(name, options.skip_bad) as bad:
        sound = complete(tasks, pool.class_names, bad)
    plain = Normalise(pool.mean, pool.std)
    return Stream(
        name=name,
        tasks=irregular(sound, options),
        class_names=pool.class_names,
        shape=pool.train.shape,
        augment=plain,
        prepare=plain,
        mean=pool.mean,
        std=pool.std,
        metadata={"scenario": "domain-incremental", "domains": list(domains), **(metadata or {})},
    )
