"""A reservoir as printed in the paper: a Python list, a sample at a time, from the same random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


class ListReservoir:
    """Algorithm R (Vitter 1985) on a list of anything."""

    def __init__(self, capacity: int, seed: int = 0) -> None:
        self.capacity, self.seen, self.kept = capacity, 0, list[Any]()
        self.generator = torch.Generator().manual_seed(seed)

    def add(self, samples: Sequence[Any]) -> None:
        chances = torch.rand(len(samples), generator=self.generator, dtype=torch.float64).tolist()
        for sample, u in zip(samples, chances, strict=True):
            slot = int(u * (self.seen + 1))
            if self.seen < self.capacity:
                self.kept.append(sample)
            elif slot < self.capacity:
                self.kept[slot] = sample
            self.seen += 1

    def sample(self, count: int) -> list[Any]:
        order = torch.randperm(len(self.kept), generator=self.generator).tolist()
        return [self.kept[slot] for slot in order[:count]]


def one_by_one(sizes: Sequence[int], capacity: int, seed: int) -> list[int]:
    """The numbers of the samples kept of batches of these sizes."""
    memory = ListReservoir(capacity, seed)
    for size in sizes:
        memory.add(range(memory.seen, memory.seen + size))
    return memory.kept
