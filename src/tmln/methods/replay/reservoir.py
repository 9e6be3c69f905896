"""A replay memory: a reservoir, in which every sample seen has the same probability to be kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from tmln.methods.replay.disk_storage import OnDisk
from tmln.methods.replay.fields import (
    Form,
    Kind,
    Pad,
    Rows,
    check_kinds,
    flatten_batch,
    infer_kinds,
    make_mask,
    pad_rows,
    pick_fields,
    read_fields,
    rebuild_batch,
    trim_padding,
)
from tmln.methods.replay.storage import AT_A_TIME, InMemory, Storage, copy_relabelled, copy_widened

# Sizes at which swaps are left out: a draw of 128 from 10M took 83 ms instead of 1.1 s, from 1M 11
# instead of 67. Below, torch.randperm is faster; above, it draws differently.
LARGE = range(2**18, 2**27)
FEW = 64  # times fewer are drawn


def assign_slots(seen: int, count: int, capacity: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return which of ``count`` new samples are kept (rows), and in which slots: algorithm R.

    Sample number n (from 0) goes to slot n while there is room, else to a slot drawn from {0..n} if
    that is below ``capacity``. If two new samples get the same slot, the later one is kept.
    """
    number = torch.arange(seen, seen + count)
    drawn = (torch.rand(count, generator=generator, dtype=torch.float64) * (number + 1)).long()
    slots = torch.where(number < capacity, number, torch.minimum(drawn, number))
    rows = torch.nonzero(slots < capacity).flatten()
    ordered, order = torch.sort(slots[rows], stable=True)
    last = torch.ones(len(ordered), dtype=torch.bool)
    last[:-1] = ordered[1:] != ordered[:-1]
    return rows[order[last]], ordered[last]


def draw_permutation(total: int, count: int, generator: torch.Generator) -> Tensor:
    """Return ``torch.randperm(total)[:count]``, with the generator advanced as by randperm.

    randperm swaps place after place with a random later one. For a large total, swaps after the
    first ``count`` are left out, while their random numbers are still drawn.
    """
    if total not in LARGE or total < FEW * count:
        return torch.randperm(total, generator=generator)[:count]
    moved: dict[int, int] = {}
    found = []
    for place in range(count):
        other = place + int(torch.randint(total - place, (1,), generator=generator))
        found.append(moved.get(other, other))
        moved[other] = moved.get(place, place)
    unused = torch.empty(min(total, 2**18), dtype=torch.int32)
    for left in range(total - 1 - count, 0, -len(unused)):
        unused[:left].random_(generator=generator)
    return torch.tensor(found, dtype=torch.long)


class Reservoir:
    """A uniform sample, of fixed size, of all that was ever added.

    >>> memory = Reservoir(capacity=500, seed=0)
    >>> images = torch.zeros(1000, 3, 32, 32, dtype=torch.uint8)
    >>> memory.add(images, torch.zeros(1000, dtype=torch.long))
    >>> len(memory), memory.seen
    (500, 1000)
    >>> x, y = memory.sample(128)
    >>> x.shape, x.dtype
    (torch.Size([128, 3, 32, 32]), torch.uint8)

    A batch of any form comes back in its form: a tensor, tuples, lists and dicts of tensors, one
    within the other.

    >>> texts = Reservoir(500, pad={"input_ids": 0, "attention_mask": 0})
    >>> ids = torch.tensor([[7, 8, 9], [7, 0, 0]])
    >>> mask = (ids > 0).long()
    >>> texts.add({"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([1, 0])})
    >>> sorted(texts.sample(2))
    ['attention_mask', 'input_ids', 'labels']

    Args:
        pad: fields whose samples differ in length, and the value that fills them up. They are added
            padded at the end, or as a list of tensors, and come back as long as the longest sample
            of the batch.
        mask: the name of a field that batches get beside those: 1 where a sample of the first field
            in ``pad`` is, 0 where padding is.
        keep: the fields of dict batches that are stored, where others are not wanted, or are no
            tensors.
        path: a folder for memories that do not fit into RAM; this one makes a folder of its own
            there. The draws are the same. A state refers to the files, which have to stay for as
            long as the state.

    Storage is taken at the first ``add``, in the dtype and on the device of what is added; on disk,
    on the CPU.
    """

    def __init__(
        self,
        capacity: int,
        seed: int = 0,
        *,
        pad: Pad | None = None,
        mask: str | None = None,
        keep: Sequence[str] | None = None,
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
        self.keep = None if keep is None else tuple(keep)
        self._form: Form = None
        self._storage: Storage = InMemory(capacity) if path is None else OnDisk(path, capacity)

    def __len__(self) -> int:
        return min(self.seen, self.capacity)

    @property
    def field_names(self) -> set[str]:
        """The names of what is stored of each sample; none before the first."""
        return set(self._storage.kinds)

    def __repr__(self) -> str:
        return f"Reservoir({len(self)} of {self.capacity}, {self.seen} seen)"

    def add(self, x: Any, y: Any = None, **fields: Any) -> None:
        """Offer a batch of samples, along dim 0.

        ``add(x, y)``, with further fields by name, or ``add(batch)``. Offer each sample once. If an
        error is raised, the memory is unchanged.
        """
        if y is None and fields:
            raise ValueError(f"add(x, y, ...) with {', '.join(fields)}, but without y; put all into one batch")
        if y is not None and not isinstance(y, Mapping) and "y" not in self.pad:
            y = torch.as_tensor(y)
        batch = pick_fields(x, self.keep) if y is None else {"x": x, "y": y, **fields}
        form, parts = flatten_batch(batch, self.pad)
        if y is not None:
            flat = parts.keys() == batch.keys()
            form = None if flat else form if fields else (form["x"], form["y"])
        rows, count = read_fields(parts, self.pad)
        kinds = infer_kinds(rows, self.pad)
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
            taken, slots = self._assign_slots(rows, count)
            kept = {
                name: value[taken.to(value.device)] if isinstance(value, Tensor) else [value[i] for i in taken.tolist()]
                for name, value in rows.items()
            }
            self._storage.write(slots, trim_padding(kept, self.pad))
        except BaseException:
            self.generator.set_state(before)
            raise
        self.seen += count

    def sample(self, count: int) -> Any:
        """Return up to ``count`` different samples, in the form in which they were added."""
        return rebuild_batch(self._form, self.draw(count))

    def draw(self, count: int) -> dict[str, Tensor]:
        """Return up to ``count`` different samples: all fields by name."""
        if count < 0:
            raise ValueError(f"cannot draw {count} samples")
        if not len(self):
            raise ValueError("the memory is empty: add samples before drawing from it")
        return self._read(draw_permutation(len(self), min(count, len(self)), self.generator))

    def batches(self, size: int, fields: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield all stored samples in order, ``size`` at a time, in the form of what was added.

        Further fields of ``add(x, y, ...)`` make it a dict. With ``fields``: these, as a tuple.
        """
        if size < 1:
            raise ValueError(f"batches of {size} samples; ask for at least 1")
        for start in range(0, len(self), size):
            found = self._read(slice(start, min(start + size, len(self))))
            yield rebuild_batch(self._form if fields is None else tuple(fields), found)

    def widen(self, field: str, width: int, fill: float) -> None:
        """Change the size of the last dimension of ``field``, filling or cutting stored samples.

        On disk this makes a new folder: earlier states still find theirs.
        """
        kind = self._storage.kinds.get(field)
        if kind is None or kind.shape[-1] == width:
            return
        self._storage = copy_widened(self._storage, field, width, fill, len(self))

    def update_field(self, field: str, size: int, compute: Callable[[Mapping[str, Any]], Tensor]) -> None:
        """Replace a field of all samples by what ``compute`` returns for ``size`` of them."""
        for slots in torch.arange(len(self)).split(size):
            rows = self._storage.read(slots)
            self._storage.write(slots, {**rows, field: compute(rows)})

    def relabel(self, into: Mapping[int, int | None]) -> None:
        """Give stored samples other labels ``y``, and drop those of classes that become None.

        A full memory stays full: samples that are left are there twice, so that new ones do not
        replace more of the old ones than of a stream without the removed classes. On disk this
        makes a new folder: earlier states still find theirs.
        """
        count = len(self)
        if not count:
            return
        labels = torch.cat([y for (y,) in self.batches(AT_A_TIME, ("y",))]).cpu()
        found = [into.get(label, label) for label in labels.tolist()]
        if found == labels.tolist():
            return
        kept = [slot for slot, label in enumerate(found) if label is not None]
        was_full, share = self.seen >= self.capacity, len(kept) / count
        self.seen = max(len(kept), round(share * self.seen)) if was_full and kept else len(kept)
        places = kept * (1 + len(self) // max(1, len(kept)))
        self._storage = copy_relabelled(self._storage, places[: len(self)], found)

    def state_dict(self) -> dict[str, Any]:
        """Return tensors, numbers and names; on disk, a reference to files that stay unchanged."""
        return {
            "capacity": self.capacity,
            "seen": self.seen,
            "generator": self.generator.get_state(),
            **self._storage.state_dict(len(self)),
            **({} if self._form is None else {"form": self._form}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly from ``state``, in memory or on disk."""
        if (saved := state["capacity"]) != self.capacity:
            other = f"{saved:,}" if type(saved) is int else f"no number but a {type(saved).__name__}"
            raise ValueError(f"this memory has capacity {self.capacity:,}, the saved one {other}; make it alike")
        storage = self._storage.load(state, min(state["seen"], self.capacity))
        self._check_pad(storage.kinds)
        self._storage, self._form = storage, state.get("form")
        self.seen = state["seen"]
        self.generator.set_state(state["generator"].cpu())

    def _assign_slots(self, rows: Mapping[str, Rows], count: int) -> tuple[Tensor, Tensor]:
        """Return which of the new samples are kept (rows), and in which slots."""
        return assign_slots(self.seen, count, self.capacity, self.generator)

    def _read(self, slots: Tensor | slice) -> dict[str, Tensor]:
        rows = self._storage.read(slots)
        found = {
            name: value if isinstance(value, Tensor) else pad_rows(value, self._storage.kinds[name], self.pad[name])
            for name, value in rows.items()
        }
        if self.mask is not None:
            sequences = rows[next(iter(self.pad))]
            assert isinstance(sequences, list)
            found[self.mask] = make_mask(sequences)
        return found

    def _with_mask(self, form: Form, fields: Mapping[str, Any]) -> Form:
        """Return the form of batches, including the mask."""
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
