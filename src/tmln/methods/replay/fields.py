"""A batch of any form as named fields: taken apart, checked against what is stored, and put together again.

A field's name is its place in the batch: the key of a dict, the number in a tuple or list, ``text.ids`` in a dict
within a dict, ``x`` where the batch is one tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from tmln.suggest import did_you_mean

Pad: TypeAlias = Mapping[str, float]
Rows: TypeAlias = "Tensor | list[Tensor]"  # of a field: samples along dim 0 or, of different lengths, one by one
Form: TypeAlias = Any  # a batch's containers, with names of fields in place of tensors; None: (x, y) and further ones


@dataclass(frozen=True)
class Kind:
    """What every sample of a field has in common; a ragged one has ``shape`` behind a length of its own."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    ragged: bool = False

    def __str__(self) -> str:
        shape = ("any", *self.shape) if self.ragged else self.shape
        return f"{self.dtype} of shape ({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def take_apart(batch: Any, pad: Pad) -> tuple[Form, dict[str, Any]]:
    """The batch's form and its fields by name. A list of tensors is a container, unless ``pad`` names it as a field."""
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


def put_together(form: Form, fields: Mapping[str, Tensor]) -> Any:
    """A batch of this form; without one, ``(x, y)``, or all fields as a dict where there are others."""
    if form is None:
        return (fields["x"], fields["y"]) if fields.keys() == {"x", "y"} else dict(fields)
    if isinstance(form, str):
        return fields[form]
    if isinstance(form, Mapping):
        return {key: put_together(inner, fields) for key, inner in form.items()}
    return type(form)(put_together(inner, fields) for inner in form)


def read_fields(fields: Mapping[str, Any], pad: Pad) -> tuple[dict[str, Rows], int]:
    """The fields as rows, and how many samples there are: as many in each, or an error that names the field."""
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


def kinds_of(rows: Mapping[str, Rows], pad: Pad) -> dict[str, Kind]:
    """The kind of every field that can be told: not of an empty list."""
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
    """An error that names the field, if these are other fields than those stored, or of other kinds."""
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
    """Whether padding can be told from its neighbours: whole numbers must be kept exactly."""
    if dtype.is_floating_point or dtype.is_complex:
        return True
    return bool(torch.tensor(value).to(dtype).item() == value)
