"""Batches of any form as named fields, checked against what is stored, and padding.

A field's name is its place in the batch: the key of a dict, the number in a tuple or list,
``text.ids`` in a dict within a dict, ``x`` where the batch is one tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tmln.suggest import did_you_mean

Pad: TypeAlias = Mapping[str, float]
Rows: TypeAlias = "Tensor | list[Tensor]"  # of a field: samples along dim 0 or, of different lengths, one by one
Form: TypeAlias = Any  # a batch's containers, with names of fields in place of tensors; None: (x, y) and further ones


@dataclass(frozen=True)
class Kind:
    """What all samples of a field have in common; ragged ones have ``shape`` after their length."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    ragged: bool = False

    def __str__(self) -> str:
        shape = ("any", *self.shape) if self.ragged else self.shape
        return f"{self.dtype} of shape ({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def flatten_batch(batch: Any, pad: Pad) -> tuple[Form, dict[str, Any]]:
    """Return the batch's form and its fields by name.

    A list of tensors is a container, unless ``pad`` names it as a field.
    """
    fields: dict[str, Any] = {}

    def node(value: Any, name: str) -> Any:
        bare = not name and not isinstance(value, Mapping) and "x" in pad
        if bare or name in pad or not isinstance(value, (Mapping, list, tuple)):
            name = name or "x"
            if name in fields:
                raise ValueError(f"two fields of the batch are called {name!r}; rename a key")
            fields[name] = value
            return name
        items = value.items() if isinstance(value, Mapping) else list(enumerate(value))
        if odd := [key for key, _ in items if not isinstance(key, (str, int))]:
            raise TypeError(f"a batch cannot have the key {odd[0]!r}; use a string")
        inner = {key: node(item, f"{name}.{key}" if name else str(key)) for key, item in items}
        if isinstance(value, Mapping):
            return inner
        return list(inner.values()) if isinstance(value, list) else tuple(inner.values())

    return node(batch, ""), fields


def pick_fields(batch: Any, names: Sequence[str] | None) -> Any:
    """Return a dict batch with these fields only; all without ``names``, and of other batches.

    >>> pick_fields({"x": 1, "y": 2, "path": "a.png"}, ["x", "y"])
    {'x': 1, 'y': 2}
    """
    if names is None or not isinstance(batch, Mapping):
        return batch
    for name in names:
        if name not in batch:
            raise ValueError(
                f"the field {name!r} is to be kept, and the batch has none{did_you_mean(name, batch)} "
                f"(fields: {', '.join(map(str, batch))})"
            )
    kind: Any = type(batch)  # a tokenizer's batches are dicts of their own
    return kind({name: batch[name] for name in names})


def rebuild_batch(form: Form, fields: Mapping[str, Tensor]) -> Any:
    """Return a batch of this form; without one ``(x, y)``, or a dict if there are other fields."""
    if form is None:
        return (fields["x"], fields["y"]) if fields.keys() == {"x", "y"} else dict(fields)
    if isinstance(form, str):
        return fields[form]
    if isinstance(form, Mapping):
        return {key: rebuild_batch(inner, fields) for key, inner in form.items()}
    return type(form)(rebuild_batch(inner, fields) for inner in form)


def read_fields(fields: Mapping[str, Any], pad: Pad) -> tuple[dict[str, Rows], int]:
    """Return the fields as rows and the number of samples, which must be equal in all fields."""
    for name in pad:
        if name not in fields:
            known = ", ".join(fields)
            raise ValueError(f"pad names {name!r}, no field of the batch{did_you_mean(name, fields)} (fields: {known})")
    rows = {name: _rows(name, value, name in pad) for name, value in fields.items()}
    if not rows:
        raise ValueError("the batch holds no tensor")
    count = len(next(iter(rows.values())))
    for name, value in rows.items():
        if len(value) != count:
            shape = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"{len(value)} sequences"
            raise ValueError(
                f"field {name!r} has {shape}, but there are {count} samples; a list of sequences is named in pad"
            )
    return rows, count


def infer_kinds(rows: Mapping[str, Rows], pad: Pad) -> dict[str, Kind]:
    """Return the kind of every field except empty lists."""
    found = {}
    for name, value in rows.items():
        if isinstance(value, Tensor):
            ragged = name in pad
            found[name] = Kind(value.dtype, tuple(value.shape[2 if ragged else 1 :]), ragged)
        elif value:
            kinds = [Kind(row.dtype, tuple(row.shape[1:]), True) for row in value]
            odd = next((number for number, kind in enumerate(kinds) if kind != kinds[0]), None)
            if odd is not None:
                raise ValueError(f"field {name!r} has a sequence of {kinds[0]}, and one, number {odd}, of {kinds[odd]}")
            found[name] = kinds[0]
    for name, filler in pad.items():
        if name in found and not _fits(filler, found[name].dtype):
            raise ValueError(f"pad {filler!r} of field {name!r} is no {found[name].dtype}; choose another")
    return found


def check_kinds(got: Mapping[str, Kind], names: Iterable[str], stored: Mapping[str, Kind]) -> None:
    """Raise an error that names the field if fields or kinds differ from those stored."""
    given = list(names)
    if set(given) != stored.keys():
        raise ValueError(f"samples have the fields {', '.join(stored)}; got {', '.join(given)}")
    for name, kind in got.items():
        if kind != stored[name]:
            alike = kind.dtype == stored[name].dtype and len(kind.shape) == len(stored[name].shape) > 0
            remedy = "Convert it, or keep a second memory"
            raise ValueError(
                f"field {name!r} holds {stored[name]}; got {kind}. "
                f"{'For sequences of many lengths, make the memory with pad=. ' if alike else ''}{remedy}"
            )


def _rows(name: str, value: Any, ragged: bool) -> Rows:
    if isinstance(value, np.ndarray):
        value = torch.as_tensor(value)
    if isinstance(value, Tensor):
        if value.dim() < 1 + ragged:
            what = "samples and sequences" if ragged else "samples"
            raise ValueError(f"field {name!r} has shape {tuple(value.shape)}: no room for {what} in it")
        return value.detach()
    if not ragged or not isinstance(value, (list, tuple)):
        raise TypeError(f"field {name!r} is a {type(value).__name__}; a memory holds tensors, with samples along dim 0")
    for number, row in enumerate(value):
        if not isinstance(row, Tensor) or row.dim() < 1:
            what = f"a tensor of shape {tuple(row.shape)}" if isinstance(row, Tensor) else f"a {type(row).__name__}"
            raise TypeError(f"field {name!r} is a list of sequences, but number {number} is {what}")
    return [row.detach() for row in value]


def _fits(value: float, dtype: torch.dtype) -> bool:
    """Return whether the padding value is exact in this dtype."""
    if dtype.is_floating_point or dtype.is_complex:
        return True
    return bool(torch.tensor(value).to(dtype).item() == value)


def find_lengths(padded: Mapping[str, Tensor], pad: Pad) -> Tensor:
    """Return the length of each sample of fields ``[n, length, ...]`` without end padding."""
    first = next(iter(padded.values()))
    held = torch.zeros(first.shape[:2], dtype=torch.bool, device=first.device)
    for name, value in padded.items():
        held |= (value != pad[name]).flatten(2).any(2) if value.dim() > 2 else value != pad[name]
    places = torch.arange(1, held.shape[1] + 1, device=held.device)
    return (held * places).amax(1) if held.numel() else torch.zeros(len(held), dtype=torch.long)


def trim_padding(rows: Mapping[str, Rows], pad: Pad) -> dict[str, Rows]:
    """Return the rows, with padded fields as lists of sequences without padding.

    Fields of one length are cut at the same places.
    """
    found = dict(rows)
    alike: dict[int, dict[str, Tensor]] = {}
    for name in pad:
        value = rows[name]
        if isinstance(value, Tensor):
            alike.setdefault(value.shape[1], {})[name] = value
    for together in alike.values():
        lengths = find_lengths(together, pad).tolist()
        for name, value in together.items():
            found[name] = [row[:length] for row, length in zip(value, lengths, strict=True)]
    return found


def pad_rows(rows: list[Tensor], kind: Kind, value: float) -> Tensor:
    """Return the sequences padded to ``[n, longest, ...]``."""
    if not rows:
        return torch.empty((0, 0, *kind.shape), dtype=kind.dtype)
    return pad_sequence(rows, batch_first=True, padding_value=value)


def make_mask(rows: list[Tensor]) -> Tensor:
    """Return 1 for samples and 0 for padding: ``[n, longest]``."""
    device = rows[0].device if rows else None
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.long, device=device)
    return (torch.arange(int(lengths.max()) if rows else 0, device=device) < lengths[:, None]).long()
