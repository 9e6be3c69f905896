"""Domain-incremental streams: the same classes in every task, in ever new guises."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tmln.streams.options import Options
from tmln.streams.pool import Pool, assemble
from tmln.streams.samples import of_classes
from tmln.streams.stream import Stream, Task


def rotate(x: Tensor, degrees: float) -> Tensor:
    """Images [B, C, H, W], uint8 or float, turned counter-clockwise; an angle of 0 changes nothing."""
    if degrees % 360.0 == 0.0:
        return x
    height, width = x.shape[-2:]
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    # Output to input coordinates, in units of half an image: hence the aspect ratios off the diagonal.
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
    name: str, pool: Pool, options: Options, domains: Mapping[str, Callable[[Tensor], Tensor]]
) -> Stream:
    """One task a domain; inputs are transformed as they are read, so domains share memory."""
    classes = tuple(range(len(pool.class_names)))
    train = of_classes(pool.train, classes, options.per_class)
    test = of_classes(pool.test, classes, options.per_class_test)
    tasks = [
        Task(f"task {index + 1}", train.map(function), test.map(function), classes, domain)
        for index, (domain, function) in enumerate(domains.items())
    ]
    metadata = {"scenario": "domain-incremental", "domains": list(domains)}
    return assemble(name, pool, options, tasks, metadata)
