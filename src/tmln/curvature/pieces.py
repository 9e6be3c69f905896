"""Per-sample gradients of one parameter, not yet made: what they are the product or the sum of, a tile at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
    by_rows: bool = field(default=True, init=False)

    def floats(self) -> int:
        return self.left.shape[2] * self.right.shape[2]

    def part(self, samples: slice, rows: slice) -> Tensor:
        return torch.bmm(self.left[samples, :, rows].transpose(1, 2), self.right[samples])

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
        first, last = torch.searchsorted(
            self.row, torch.tensor([rows.start, rows.stop], device=self.row.device)
        ).tolist()
        if first == last:
            return total
        sample, row, values = self.sample[first:last], self.row[first:last], self.values[first:last]
        if samples.start > 0 or samples.stop <= int(sample.max()):
            here = ((sample >= samples.start) & (sample < samples.stop)).nonzero().flatten()
            sample, row, values = sample[here], row[here], values[here]
        return total.index_put_((sample - samples.start, row - rows.start), values.to(total.dtype), accumulate=True)


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


def gradients(pieces: Sequence[Piece], height: int, samples: slice, rows: slice) -> Tensor:
    """What all uses add up to, [samples, rows, ...]; ``pieces`` as :func:`merged` leaves them."""
    first = pieces[0]
    whole = not isinstance(first, Product) or first.left.shape[2] == height
    if whole:
        total, others = first.part(samples, rows), pieces[1:]
    else:
        assert isinstance(first, Product)
        shape = (samples.stop - samples.start, rows.stop - rows.start, first.right.shape[2])
        total, others = first.left.new_zeros(shape), pieces
    for piece in others:
        total = piece.add_to(total, samples, rows)
    return total
