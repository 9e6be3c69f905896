"""Per-sample gradients of one parameter, not yet made: what they are the product or the sum of, a tile at a time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor


class Piece(Protocol):
    """What one use of a parameter adds to its gradient, for each of some samples."""

    @property
    def by_rows(self) -> bool:
        """Whether a few rows of the parameter cost less than all of them."""

    def floats(self) -> int:
        """One sample's room on the way, where all rows are made at once."""

    def part(self, samples: slice, rows: slice) -> Tensor:
        """The gradients [samples, rows, ...] of this use alone."""

    def add_to(self, total: Tensor, samples: slice, rows: slice) -> Tensor:
        """``total``, which has that shape, with this use added."""


@dataclass(frozen=True)
class Made:
    """Gradients that a function makes whole, for some samples: ``make(samples)`` -> [n, *shape]."""

    make: Callable[[slice], Tensor]
    room: int
    by_rows: bool = field(default=False, init=False)

    def floats(self) -> int:
        return self.room

    def part(self, samples: slice, rows: slice) -> Tensor:
        return self.make(samples)[:, rows] if rows.start else self.make(samples)

    def add_to(self, total: Tensor, samples: slice, rows: slice) -> Tensor:
        return total + self.part(samples, rows)


@dataclass(frozen=True)
class Product:
    """sum_t left_nt right_nt^T in the rows from ``start`` on: left [n, T, rows], right [n, T, columns]."""

    left: Tensor
    right: Tensor
    start: int = 0
    counts: tuple[int, ...] | None = (
        None  # of positions that count: the first ones; no sample has more than one before it
    )
    by_rows: bool = field(default=True, init=False)

    def floats(self) -> int:
        return self.left.shape[2] * self.right.shape[2]

    @property
    def turned(self) -> Product:
        """The product of the transposed parameter."""
        return Product(self.right, self.left, 0, self.counts)

    def turns(self, shape: Sequence[int]) -> bool:
        """Whether this is all of a parameter of that shape, which has more columns than rows."""
        rows, columns = self.left.shape[2], self.right.shape[2]
        return rows < columns and tuple(shape) == (rows, columns)

    def part(self, samples: slice, rows: slice, room: Tensor | None = None) -> Tensor:
        """As for all pieces; made in ``room`` [at least so many samples, at least so many rows, columns], if given."""
        out = None if room is None else room[: samples.stop - samples.start, : rows.stop - rows.start]
        used = slice(0, None if self.counts is None else self.counts[samples.start])
        return torch.bmm(self.left[samples, used, rows].transpose(1, 2), self.right[samples, used], out=out)

    def room(self, samples: int, rows: slice) -> Tensor:
        """For :meth:`part`, time and again: fresh memory for every tile would cost as much as its squares."""
        return self.left.new_empty(samples, rows.stop - rows.start, self.right.shape[2])

    def add_to(self, total: Tensor, samples: slice, rows: slice) -> Tensor:
        first, last = max(rows.start, self.start), min(rows.stop, self.start + self.left.shape[2])
        if first < last:
            own = self.part(samples, slice(first - self.start, last - self.start))
            total[:, first - rows.start : last - rows.start].add_(own)
        return total


@dataclass(frozen=True)
class Lookup:
    """Whole rows: ``values[i]`` is added to row ``row[i]`` of sample ``sample[i]``; no pair of the two comes twice."""

    sample: Tensor
    row: Tensor  # sorted, so that the rows of a tile stand together
    values: Tensor
    by_rows: bool = field(default=True, init=False)

    @classmethod
    def of(cls, indices: Tensor, g: Tensor, ignored: int | None = None) -> Lookup:
        """From indices [n, ...] and the gradient [n, ..., columns] of what was looked up."""
        sample = torch.arange(len(indices), device=indices.device).repeat_interleave(indices[0].numel())
        keys, place = torch.unique(indices.flatten() * len(indices) + sample, return_inverse=True)
        values = g.new_zeros(len(keys), g.shape[-1]).index_add_(0, place, g.reshape(-1, g.shape[-1]))
        row = keys // len(indices)
        if ignored is not None:
            values.masked_fill_((row == ignored)[:, None], 0.0)
        return cls(keys % len(indices), row, values)

    def floats(self) -> int:
        return int(self.values.shape[1])

    def part(self, samples: slice, rows: slice) -> Tensor:
        shape = (samples.stop - samples.start, rows.stop - rows.start, self.values.shape[1])
        return self.add_to(self.values.new_zeros(shape), samples, rows)

    def add_to(self, total: Tensor, samples: slice, rows: slice) -> Tensor:
        first, last = bisect_left(self._rows, rows.start), bisect_left(self._rows, rows.stop)
        here = [i for i in range(first, last) if samples.start <= self._samples[i] < samples.stop]
        if not here:
            return total
        index = torch.tensor(here, device=self.row.device)
        places = (self.sample[index] - samples.start, self.row[index] - rows.start)
        return total.index_put_(places, self.values[index].to(total.dtype), accumulate=True)

    @cached_property
    def _rows(self) -> list[int]:
        found: list[int] = self.row.tolist()
        return found

    @cached_property
    def _samples(self) -> list[int]:
        found: list[int] = self.sample.tolist()
        return found


def merged(pieces: Sequence[Piece]) -> list[Piece]:
    """Products of the same rows as one, with all their positions: a layer that was called more than once."""
    products: dict[tuple[int, int], list[Product]] = {}
    for piece in pieces:
        if isinstance(piece, Product):
            products.setdefault((piece.start, piece.left.shape[2]), []).append(piece)
    found: list[Piece] = [piece for piece in pieces if not isinstance(piece, Product)]
    for (start, _), alike in products.items():
        whole = alike[0]
        if len(alike) > 1:
            whole = Product(torch.cat([p.left for p in alike], 1), torch.cat([p.right for p in alike], 1), start)
        found.insert(0, whole)
    return found


def gradients(pieces: Sequence[Piece], height: int, samples: slice, rows: slice, room: Tensor | None = None) -> Tensor:
    """What all uses add up to, [samples, rows, ...]; ``pieces`` as :func:`merged` leaves them.

    ``room``: the :meth:`Product.room` of the first, which may be used for it.
    """
    first = pieces[0]
    whole = not isinstance(first, Product) or first.left.shape[2] == height
    if whole:
        made = first.part(samples, rows, room) if isinstance(first, Product) else first.part(samples, rows)
        total, others = made, pieces[1:]
    else:
        assert isinstance(first, Product)
        shape = (samples.stop - samples.start, rows.stop - rows.start, first.right.shape[2])
        total, others = first.left.new_zeros(shape), pieces
    for piece in others:
        total = piece.add_to(total, samples, rows)
    return total
