"""One pass over a task in an order of its own, from any place on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from tmln.streams.arrays import DatasetSource
from tmln.streams.readahead import prefetch
from tmln.streams.samples import Samples

READ_AHEAD = 2**20  # values in a batch from which on it is read ahead by a thread


@dataclass
class Place:
    """Where in a task: epoch and step to come, the order generator as the epoch began, the classes known before."""

    known: tuple[int, ...]
    order: Tensor
    epoch: int = 0
    step: int = 0


def rest_of_epoch(
    samples: Samples, place: Place, order: torch.Generator, batch_size: int
) -> Iterator[tuple[int, tuple[Tensor, Tensor]]]:
    """The epoch's batches with their numbers, from the place on; the order is that of the epoch's beginning."""
    if place.step:
        order.set_state(place.order)
    else:
        place.order = order.get_state()
    batches = torch.randperm(len(samples), generator=order).split(batch_size)
    rest = ((n, samples.gather(rows)) for n, rows in enumerate(batches) if n >= place.step)
    # reading draws no random numbers, so a thread may do it ahead; for small batches in memory that costs more
    slow = isinstance(samples.source, DatasetSource) or batch_size * prod(samples.shape) >= READ_AHEAD
    return prefetch(rest, 2 if slow else 0)
