"""Sample storage: numbered slots that are written and read, in RAM. Files are in ``disk_storage.py``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from tmln.methods.replay.fields import Kind, Rows


class Storage(Protocol):
    """``capacity`` slots, of which the first ones are in use; ``kinds`` is empty until there is something to keep."""

    kinds: dict[str, Kind]

    def begin(self, kinds: dict[str, Kind], rows: Mapping[str, Rows]) -> None:
        """Fields of these kinds are to come, the like of ``rows``."""

    def write(self, slots: Tensor, rows: Mapping[str, Rows]) -> None:
        """Row after row into these slots, no slot twice; all or, with an error, none."""

    def read(self, slots: Tensor | slice) -> dict[str, Rows]:
        """What these slots hold."""
        ...

    def state_dict(self, count: int) -> dict[str, Any]:
        """What :meth:`loaded` needs to find the first ``count`` slots as they are now."""
        ...

    def loaded(self, state: Mapping[str, Any], count: int) -> Storage:
        """Another one of this sort, with the slots of the state; this one stays as it is."""
        ...

    def empty(self) -> Storage:
        """Another one of this sort, in the same place, with nothing in it."""
        ...


class InMemory:
    """Tensors on the device of what is added; sequences one by one."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.kinds: dict[str, Kind] = {}
        self._even: dict[str, Tensor] = {}
        self._ragged: dict[str, dict[int, Tensor]] = {}

    def empty(self) -> InMemory:
        """As large, with nothing in it."""
        return InMemory(self.capacity)

    def begin(self, kinds: dict[str, Kind], rows: Mapping[str, Rows]) -> None:
        """Room for ``capacity`` rows of each field, on the device of the first ones."""
        self._even, self._ragged, self.kinds = {}, {}, kinds
        for name, kind in kinds.items():
            value = rows[name]
            if kind.ragged:
                self._ragged[name] = {}
            elif isinstance(value, Tensor):
                self._even[name] = value.new_empty((self.capacity, *kind.shape))

    def write(self, slots: Tensor, rows: Mapping[str, Rows]) -> None:
        """Rows into slots, over what was there."""
        for name, store in self._even.items():
            value = rows[name]
            assert isinstance(value, Tensor)
            store[slots.to(store.device)] = value.to(store.device)
        for name, sequences in self._ragged.items():
            for slot, row in zip(slots.tolist(), rows[name], strict=True):
                sequences[slot] = row.clone()  # not a view, which would keep the whole batch

    def read(self, slots: Tensor | slice) -> dict[str, Rows]:
        """Rows by slot; sequences of several lengths as a list."""
        numbers = range(self.capacity)[slots] if isinstance(slots, slice) else slots.tolist() if self._ragged else ()
        return {
            name: [self._ragged[name][slot] for slot in numbers] if kind.ragged else picked(self._even[name], slots)
            for name, kind in self.kinds.items()
        }

    def state_dict(self, count: int) -> dict[str, Any]:
        """The first ``count`` rows, sequences end to end with their lengths."""
        fields = {name: flat(value, self.kinds[name]) for name, value in self.read(slice(0, count)).items()}
        lengths = {
            name: torch.tensor([len(sequences[slot]) for slot in range(count)], dtype=torch.long)
            for name, sequences in self._ragged.items()
        }
        return {"fields": fields, **({"lengths": lengths} if lengths else {})}

    def loaded(self, state: Mapping[str, Any], count: int) -> InMemory:
        """Another one with the rows of a state, be they in it or in files that it names."""
        from tmln.methods.replay.disk_storage import OnDisk

        if "files" in state:
            saved = OnDisk(Path(state["files"]["path"]).parent, self.capacity).loaded(state, count)
            kinds, rows = saved.kinds, saved.read(slice(0, count))
        else:
            kinds, rows = saved_rows(state)
        made = InMemory(self.capacity)
        made.begin(kinds, rows)
        made.write(torch.arange(count), rows)
        return made


AT_A_TIME = 1024  # rows that are copied at once


def widened(storage: Storage, field: str, width: int, fill: float, count: int) -> Storage:
    """A copy of the first ``count`` slots in which the last dimension of ``field`` has another size."""
    made, kind = storage.empty(), storage.kinds[field]
    kinds = {**storage.kinds, field: replace(kind, shape=(*kind.shape[:-1], width))}
    for slots in torch.arange(count).split(AT_A_TIME):
        rows = storage.read(slots)
        value = rows[field]
        assert isinstance(value, Tensor)
        rows[field] = torch.nn.functional.pad(value, (0, width - kind.shape[-1]), value=fill)
        if not made.kinds:
            made.begin(kinds, rows)
        made.write(slots, rows)
    return made


def picked(store: Tensor, slots: Tensor | slice) -> Tensor:
    """``store[slots]``: for 128 images of bytes a tenth of the time that indexing takes."""
    return store[slots] if isinstance(slots, slice) else store.index_select(0, slots.to(store.device))


def flat(value: Rows, kind: Kind) -> Tensor:
    """A field's rows as one tensor that is a copy; sequences one behind the other."""
    if isinstance(value, Tensor):
        return value.clone()
    return torch.cat(value) if value else torch.empty((0, *kind.shape), dtype=kind.dtype)


def saved_rows(state: Mapping[str, Any]) -> tuple[dict[str, Kind], dict[str, Rows]]:
    """Kinds and rows of a state that holds its fields, those of a memory that had no sequences included."""
    kinds, rows, lengths = {}, {}, state.get("lengths", {})
    for name, value in state["fields"].items():
        ragged = name in lengths
        kinds[name] = Kind(value.dtype, tuple(value.shape[1:]), ragged)
        rows[name] = list(value.split(lengths[name].tolist())) if ragged else value
    return kinds, rows
