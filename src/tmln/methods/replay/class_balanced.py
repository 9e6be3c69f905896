"""Memories with equally many samples of each class, whatever the stream's class frequencies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tmln.methods.replay.fields import Rows
from tmln.methods.replay.reservoir import Reservoir


class ClassBalancedReservoir(Reservoir):
    """Class-balancing reservoir sampling (Chrysakis and Moens 2020, algorithm 1).

    While there is room, every sample is stored. Then a sample of a class that was never the largest
    one replaces a random sample of the largest class; of any other class, each sample seen is kept
    with the same probability, as in a reservoir of that class alone.

    >>> memory = ClassBalancedReservoir(capacity=4)
    >>> memory.add(torch.zeros(9, 2), torch.tensor([0, 0, 0, 0, 0, 0, 0, 0, 1]))
    >>> sorted(memory.sample(4)[1].tolist())
    [0, 0, 0, 1]
    """

    def __init__(self, capacity: int, seed: int = 0, *, path: str | PathLike[str] | None = None) -> None:
        super().__init__(capacity, seed, path=path)
        self.offered: Counter[int] = Counter()  # samples of each class seen so far
        self.full: set[int] = set()  # classes that are, or were, the largest one of the full memory
        self._labels = np.full(capacity, -1)

    def add(self, x: Any, y: Any = None, **fields: Any) -> None:
        """Offer a batch of samples with integer labels ``y``; see :meth:`Reservoir.add`."""
        before = self.offered.copy(), set(self.full), self._labels.copy()
        try:
            super().add(x, y, **fields)
        except BaseException:
            self.offered, self.full, self._labels = before
            raise

    def _assign_slots(self, rows: Mapping[str, Rows], count: int) -> tuple[Tensor, Tensor]:
        labels = rows.get("y")
        if not isinstance(labels, Tensor) or labels.shape != (count,) or labels.is_floating_point():
            raise ValueError(
                "a memory that is balanced by class needs integer labels: add(x, y) with one label a sample"
            )
        chances = torch.rand(count, 2, generator=self.generator, dtype=torch.float64).tolist()
        placed: dict[int, int] = {}  # slot -> row: a later sample may replace an earlier one of the batch
        for row, (label, (keep, place)) in enumerate(zip(labels.tolist(), chances, strict=True)):
            self.offered[label] += 1
            if self.seen + row < self.capacity:
                slot = self.seen + row
            else:
                slots = self._choose_slots(label, keep)
                if not len(slots):
                    continue
                slot = int(slots[int(place * len(slots))])
            self._labels[slot], placed[slot] = label, row
        return torch.tensor(list(placed.values()), dtype=torch.long), torch.tensor(list(placed), dtype=torch.long)

    def _choose_slots(self, label: int, chance: float) -> Any:
        """Return the slots of a full memory of which one is for a sample of this class."""
        largest = self._find_largest()
        self.full |= set(largest)
        if label not in self.full:
            return np.flatnonzero(np.isin(self._labels, largest))
        own = np.flatnonzero(self._labels == label)
        return own if chance * self.offered[label] < len(own) else own[:0]

    def _find_largest(self) -> list[int]:
        stored = Counter(self._labels.tolist())
        most = max(stored.values(), default=0)
        return [label for label, count in stored.items() if count == most]

    def relabel(self, into: Mapping[int, int | None]) -> None:
        """Give stored samples other labels, or drop them; see :meth:`Reservoir.relabel`."""
        super().relabel(into)
        offered: Counter[int] = Counter()
        for label, count in self.offered.items():
            if (other := into.get(label, label)) is not None:
                offered[other] += count
        self.offered = offered
        self.full = {other for label in self.full if (other := into.get(label, label)) is not None}
        self._read_labels()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of a reservoir, and what is known of the classes."""
        return {**super().state_dict(), "offered": dict(sorted(self.offered.items())), "full": sorted(self.full)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly from ``state``."""
        super().load_state_dict(state)
        self.offered = Counter({int(label): int(count) for label, count in state["offered"].items()})
        self.full = set(state["full"])
        self._read_labels()

    def _read_labels(self) -> None:
        self._labels[:] = -1
        if len(self):
            self._labels[: len(self)] = self._read(slice(0, len(self)))["y"].cpu().numpy()


class GreedyReservoir(ClassBalancedReservoir):
    """The greedy sampler of GDumb (Prabhu et al. 2020): a class keeps its first samples.

    A sample of a class that has less than its share, capacity / classes seen, replaces a random
    sample of the largest class; others are dropped. While there is room, every sample is stored.
    """

    def _choose_slots(self, label: int, chance: float) -> Any:
        if np.count_nonzero(self._labels == label) >= self.capacity / len(self.offered):
            return self._labels[:0]
        return np.flatnonzero(np.isin(self._labels, self._find_largest()))
