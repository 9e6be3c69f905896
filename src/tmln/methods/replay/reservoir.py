"""A memory of samples: a reservoir, so that every sample seen is kept with equal probability."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from tmln.methods.replay.disk_storage import OnDisk
from tmln.methods.replay.fields import Form, Kind, Pad, check_kinds, kinds_of, put_together, read_fields, take_apart
from tmln.methods.replay.padding import cut, mask_of, padded
from tmln.methods.replay.sampling import permutation_start, reservoir_slots
from tmln.methods.replay.storage import InMemory, Storage, widened


class Reservoir:
    """A uniform sample, of fixed size, of all that was ever added.

    >>> memory = Reservoir(capacity=500, seed=0)
    >>> memory.add(torch.zeros(1000, 3, 32, 32, dtype=torch.uint8), torch.zeros(1000, dtype=torch.long))
    >>> len(memory), memory.seen
    (500, 1000)
    >>> x, y = memory.sample(128)
    >>> x.shape, x.dtype
    (torch.Size([128, 3, 32, 32]), torch.uint8)

    A batch of any form comes back in its form: a tensor, tuples, lists and dicts of tensors, one within the other.

    >>> texts = Reservoir(500, pad={"input_ids": 0, "attention_mask": 0})
    >>> ids = torch.tensor([[7, 8, 9], [7, 0, 0]])
    >>> texts.add({"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": torch.tensor([1, 0])})
    >>> sorted(texts.sample(2))
    ['attention_mask', 'input_ids', 'labels']

    Args:
        pad: fields whose samples differ in length, and the value that fills them up. They are added padded at the end,
            or as a list of tensors, and come back as long as the longest sample of the batch.
        mask: the name of a field that batches get beside those: 1 where a sample of the first field in ``pad`` is, 0
            where padding is.
        path: a folder for memories that do not fit into RAM; this one makes a folder of its own there. The draws are
            the same. A state refers to the files, which have to stay for as long as the state.

    Storage is taken at the first ``add``, in the dtype and on the device of what is added; on disk, on the CPU.
    """

    def __init__(
        self,
        capacity: int,
        seed: int = 0,
        *,
        pad: Pad | None = None,
        mask: str | None = None,
        path: str | PathLike[str] | None = None,
    ) -> None:
        if capacity < 0:
            raise ValueError(f"capacity must be at least 0, got {capacity}")
        if mask is not None and not pad:
            raise ValueError(f"mask={mask!r} is of no use without pad: name the fields whose samples differ in length")
        self.capacity = capacity
        self.seen = 0
        self.generator = torch.Generator().manual_seed(seed)
        self.pad, self.mask = dict(pad or {}), mask
        self._form: Form = None
        self._storage: Storage = InMemory(capacity) if path is None else OnDisk(path, capacity)

    def __len__(self) -> int:
        return min(self.seen, self.capacity)

    def __repr__(self) -> str:
        return f"Reservoir({len(self)} of {self.capacity}, {self.seen} seen)"

    def add(self, x: Any, y: Any = None, **fields: Any) -> None:
        """Offer a batch of samples, along dim 0: ``add(x, y)``, with further fields by name, or ``add(batch)``.

        Offer each sample once: again is as if it were another one. What raises leaves the memory as it was.
        """
        if y is None and fields:
            raise ValueError(f"add(x, y, ...) with {', '.join(fields)}, but without y; put all into one batch")
        if y is not None and not isinstance(y, Mapping) and "y" not in self.pad:
            y = torch.as_tensor(y)
        batch = x if y is None else {"x": x, "y": y, **fields}
        form, parts = take_apart(batch, self.pad)
        if y is not None:
            flat = parts.keys() == batch.keys()
            form = None if flat else form if fields else (form["x"], form["y"])
        rows, count = read_fields(parts, self.pad)
        kinds = kinds_of(rows, self.pad)
        stored = self._storage.kinds
        if stored:
            check_kinds(kinds, rows, stored)
        elif kinds.keys() != rows.keys():
            return  # no sample yet by which to tell what sequences hold
        else:
            form = self._with_mask(form, rows)
        before = self.generator.get_state()
        try:
            if not stored:
                self._storage.begin(kinds, rows)
                self._form = form
            taken, slots = reservoir_slots(self.seen, count, self.capacity, self.generator)
            kept = {
                name: value[taken.to(value.device)] if isinstance(value, Tensor) else [value[i] for i in taken.tolist()]
                for name, value in rows.items()
            }
            self._storage.write(slots, cut(kept, self.pad))
        except BaseException:
            self.generator.set_state(before)
            raise
        self.seen += count

    def sample(self, count: int) -> Any:
        """Up to ``count`` different samples, in the form in which they were added: ``(x, y)``, or the batch's own."""
        return put_together(self._form, self.draw(count))

    def draw(self, count: int) -> dict[str, Tensor]:
        """Up to ``count`` different samples: all fields by name."""
        if count < 0:
            raise ValueError(f"cannot draw {count} samples")
        if not len(self):
            raise ValueError("the memory is empty: add samples before drawing from it")
        return self._read(permutation_start(len(self), min(count, len(self)), self.generator))

    def batches(self, size: int, fields: Sequence[str] | None = None) -> Iterator[Any]:
        """All that is stored, in order, ``size`` at a time and in the form in which it was added; draws nothing.

        Further fields of ``add(x, y, ...)`` come with them, in a dict. With ``fields``: these alone, as a tuple.
        """
        if size < 1:
            raise ValueError(f"batches of {size} samples; ask for at least 1")
        for start in range(0, len(self), size):
            found = self._read(slice(start, min(start + size, len(self))))
            yield put_together(self._form if fields is None else tuple(fields), found)

    def widen(self, field: str, width: int, fill: float) -> None:
        """From now on the last dimension of ``field`` has this size; what is stored is filled up at its end, or cut.

        On disk that is a folder of its own: states from before still find theirs.
        """
        kind = self._storage.kinds.get(field)
        if kind is None or kind.shape[-1] == width:
            return
        self._storage = widened(self._storage, field, width, fill, len(self))

    def state_dict(self) -> dict[str, Any]:
        """Tensors, numbers and names only. On disk, what it refers to stays as it is, whatever is added later."""
        return {
            "capacity": self.capacity,
            "seen": self.seen,
            "generator": self.generator.get_state(),
            **self._storage.state_dict(len(self)),
            **({} if self._form is None else {"form": self._form}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where ``state`` was taken, in memory or on disk, wherever that was."""
        if state["capacity"] != self.capacity:
            raise ValueError(
                f"this memory has capacity {self.capacity}, the saved one {state['capacity']}; make it alike"
            )
        storage = self._storage.loaded(state, min(state["seen"], self.capacity))
        self._check_pad(storage.kinds)
        self._storage, self._form = storage, state.get("form")
        self.seen = state["seen"]
        self.generator.set_state(state["generator"].cpu())

    def _read(self, slots: Tensor | slice) -> dict[str, Tensor]:
        rows = self._storage.read(slots)
        found = {
            name: value if isinstance(value, Tensor) else padded(value, self._storage.kinds[name], self.pad[name])
            for name, value in rows.items()
        }
        if self.mask is not None:
            sequences = rows[next(iter(self.pad))]
            assert isinstance(sequences, list)
            found[self.mask] = mask_of(sequences)
        return found

    def _with_mask(self, form: Form, fields: Mapping[str, Any]) -> Form:
        """The form of batches, the mask included."""
        if self.mask is None or (form is None and self.mask not in fields):
            return form
        if self.mask in fields:
            raise ValueError(f"the batch has a field {self.mask!r} of its own: name it in pad, and leave mask= out")
        if not isinstance(form, Mapping):
            raise ValueError(f"mask={self.mask!r} has no place in a {type(form).__name__}; add dicts")
        return {**form, self.mask: self.mask}

    def _check_pad(self, kinds: Mapping[str, Kind]) -> None:
        ragged = {name for name, kind in kinds.items() if kind.ragged}
        if kinds and ragged != self.pad.keys():
            raise ValueError(
                f"the saved memory has sequences in {', '.join(sorted(ragged)) or 'no field'}, this one pads "
                f"{', '.join(sorted(self.pad)) or 'none'}; make it alike"
            )
