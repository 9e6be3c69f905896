"""A reservoir of samples: Vitter's algorithm R (1985), so that every sample seen is kept with equal probability."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


def reservoir_slots(seen: int, count: int, capacity: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Algorithm R for ``count`` new samples after ``seen``: which of them are kept (rows), and in which slots.

    Sample number n (from 0) goes to slot n while there is room, else to a slot drawn from {0..n} if that is below
    ``capacity``. Where two of the new samples take one slot, the later one has it, as if they had come one by one.
    """
    number = torch.arange(seen, seen + count)
    drawn = (torch.rand(count, generator=generator, dtype=torch.float64) * (number + 1)).long()
    slots = torch.where(number < capacity, number, torch.minimum(drawn, number))
    rows = torch.nonzero(slots < capacity).flatten()
    ordered, order = torch.sort(slots[rows], stable=True)
    last = torch.ones(len(ordered), dtype=torch.bool)
    last[:-1] = ordered[1:] != ordered[:-1]
    return rows[order[last]], ordered[last]


class Reservoir:
    """A uniform sample, of fixed size, of all that was ever added.

    >>> memory = Reservoir(capacity=500, seed=0)
    >>> memory.add(torch.zeros(1000, 3, 32, 32, dtype=torch.uint8), torch.zeros(1000, dtype=torch.long))
    >>> len(memory), memory.seen
    (500, 1000)
    >>> x, y = memory.sample(128)
    >>> x.shape, x.dtype
    (torch.Size([128, 3, 32, 32]), torch.uint8)

    Storage is taken once, at the first ``add``, in the dtype and on the device of what is added. Further fields of a
    sample are keywords of ``add`` and keys of what ``draw`` returns.
    """

    def __init__(self, capacity: int, seed: int = 0) -> None:
        if capacity < 0:
            raise ValueError(f"capacity must be at least 0, got {capacity}")
        self.capacity = capacity
        self.seen = 0
        self.generator = torch.Generator().manual_seed(seed)
        self._fields: dict[str, Tensor] = {}

    def __len__(self) -> int:
        return min(self.seen, self.capacity)

    def __repr__(self) -> str:
        return f"Reservoir({len(self)} of {self.capacity}, {self.seen} seen)"

    def add(self, x: Tensor, y: Tensor, **fields: Tensor) -> None:
        """Offer a batch of samples, along dim 0. Offer each sample once: again is as if it were another one."""
        batch = {"x": x, "y": torch.as_tensor(y), **fields}
        self._check(batch)
        if not self._fields:
            self._fields = {name: value.new_empty((self.capacity, *value.shape[1:])) for name, value in batch.items()}
        rows, slots = reservoir_slots(self.seen, len(x), self.capacity, self.generator)
        for name, value in batch.items():
            store = self._fields[name]
            store[slots.to(store.device)] = value.detach()[rows.to(value.device)].to(store.device)
        self.seen += len(x)

    def sample(self, count: int) -> tuple[Tensor, Tensor]:
        """Up to ``count`` different samples (x, y)."""
        drawn = self.draw(count)
        return drawn["x"], drawn["y"]

    def draw(self, count: int) -> dict[str, Tensor]:
        """Up to ``count`` different samples with all their fields."""
        if count < 0:
            raise ValueError(f"cannot draw {count} samples")
        if not len(self):
            raise ValueError("the memory is empty: add samples before drawing from it")
        rows = torch.randperm(len(self), generator=self.generator)[:count]
        return {name: store[rows.to(store.device)] for name, store in self._fields.items()}

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All that is stored, in order, ``size`` at a time; draws nothing."""
        for start in range(0, len(self), size):
            rows = slice(start, min(start + size, len(self)))
            yield self._fields["x"][rows], self._fields["y"][rows]

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain numbers only."""
        return {
            "capacity": self.capacity,
            "seen": self.seen,
            "generator": self.generator.get_state(),
            "fields": {name: store[: len(self)].clone() for name, store in self._fields.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["capacity"] != self.capacity:
            raise ValueError(
                f"this memory has capacity {self.capacity}, the saved one {state['capacity']}; make it alike"
            )
        self.seen = state["seen"]
        self.generator.set_state(state["generator"].cpu())
        self._fields = {}
        for name, value in state["fields"].items():
            self._fields[name] = value.new_empty((self.capacity, *value.shape[1:]))
            self._fields[name][: len(value)] = value

    def _check(self, batch: dict[str, Tensor]) -> None:
        count = len(batch["x"])
        for name, value in batch.items():
            if value.dim() == 0 or len(value) != count:
                raise ValueError(f"field {name!r} has shape {tuple(value.shape)}, but there are {count} samples")
        if self._fields and batch.keys() != self._fields.keys():
            raise ValueError(f"samples have the fields {', '.join(self._fields)}; got {', '.join(batch)}")
        for name, store in self._fields.items():
            value = batch[name]
            if value.shape[1:] != store.shape[1:] or value.dtype != store.dtype:
                raise ValueError(
                    f"field {name!r} holds {store.dtype} of shape {tuple(store.shape[1:])}; got {value.dtype} of "
                    f"shape {tuple(value.shape[1:])}. Convert it, or keep a second memory"
                )
