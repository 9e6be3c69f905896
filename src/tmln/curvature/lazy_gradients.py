"""Per-sample gradients of one parameter, kept as factors and computed a tile at a time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor


def at_least_single(values: Tensor) -> Tensor:
    """Return half precision as float32: sums need the digits, squares the range."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def to_dense(gradient: Tensor) -> Tensor:
    """Return a sparse gradient (of an embedding) as a dense one, others as they are."""
    return gradient.to_dense() if gradient.is_sparse else gradient


class Piece(Protocol):
    """The gradient of one use of a parameter, for each of some samples."""

    @property
    def by_rows(self) -> bool:
        """Return whether computing a few rows of the parameter costs less than computing all."""

    def floats(self) -> int:
        """Return the floats that one sample takes while all rows are computed at once."""

    def part(self, samples: slice, rows: slice) -> Tensor:
        """Compute the gradients [samples, rows, ...] of this use alone."""

    def add_to(self, total: Tensor, samples: slice, rows: slice) -> Tensor:
        """Return ``total``, which has that shape, with this use added."""


@dataclass(frozen=True)
class Computed:
    """Gradients that a function computes whole: ``make(samples)`` -> [n, *shape]."""

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
    """The sum over t of left_nt right_nt^T, in the rows from ``start`` on.

    ``left`` is [n, T, rows], ``right`` [n, T, columns].
    """

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
    def transposed(self) -> Product:
        """Return the product of the transposed parameter."""
        return Product(self.right, self.left, 0, self.counts)

    def is_wide(self, shape: Sequence[int]) -> bool:
        """Return whether this is all of a parameter of that shape, with more columns than rows."""
        rows, columns = self.left.shape[2], self.right.shape[2]
        return rows < columns and tuple(shape) == (rows, columns)

    def part(self, samples: slice, rows: slice, room: Tensor | None = None) -> Tensor:
        """Compute as for all pieces, in ``room`` [samples, rows, columns] or more, if given."""
        out = None if room is None else room[: samples.stop - samples.start, : rows.stop - rows.start]
        used = slice(0, None if self.counts is None else self.counts[samples.start])
        return torch.bmm(self.left[samples, used, rows].transpose(1, 2), self.right[samples, used], out=out)

    def room(self, samples: int, rows: slice) -> Tensor:
        """Allocate memory for :meth:`part`; new memory for every tile would cost too much."""
        return self.left.new_empty(samples, rows.stop - rows.start, self.right.shape[2])

    def add_to(self, total: Tensor, samples: slice, rows: slice) -> Tensor:
        first, last = max(rows.start, self.start), min(rows.stop, self.start + self.left.shape[2])
        if first < last:
            own = self.part(samples, slice(first - self.start, last - self.start))
            total[:, first - rows.start : last - rows.start].add_(own)
        return total


@dataclass(frozen=True)
class Lookup:
    """Looked-up rows: ``values[i]`` is added to row ``row[i]`` of sample ``sample[i]``.

    No pair of row and sample comes twice.
    """

    sample: Tensor
    row: Tensor  # sorted, so that the rows of a tile stand together
    values: Tensor
    by_rows: bool = field(default=True, init=False)

    @classmethod
    def of(cls, indices: Tensor, g: Tensor, ignored: int | None = None) -> Lookup:
        """Create from indices [n, ...] and the gradient [n, ..., columns] of the output."""
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


def merge_products(pieces: Sequence[Piece]) -> list[Piece]:
    """Concatenate products of the same rows: a layer that was called more than once."""
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


def sum_pieces(pieces: Sequence[Piece], height: int, samples: slice, rows: slice, room: Tensor | None = None) -> Tensor:
    """Compute the sum of all uses, [samples, rows, ...], of pieces from :func:`merge_products`.

    ``room`` is the :meth:`Product.room` of the first, and may be used for it.
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


# -- positions that add nothing ------------------------------------------------------------------


LOOK = 8  # columns that tell of most positions that they are something


def drop_empty_positions(pieces: Sequence[Piece]) -> list[Piece]:
    """Return pieces with the same sum over samples from fewer positions; samples may be reordered.

    A classifier's last block has a gradient at one position of each text, padding has none.
    """
    products = [piece for piece in pieces if isinstance(piece, Product)]
    lookups = [piece for piece in pieces if isinstance(piece, Lookup)]
    if len(products) != 1 or len(lookups) != len(pieces) - 1:
        return list(pieces)
    (whole,) = products
    something = find_occupied(whole)
    if something is None:
        return list(pieces)
    counts = something.sum(1)
    order = counts.argsort(descending=True, stable=True)
    most = max(1, int(counts.max()))
    place = something[order].logical_not().to(torch.uint8).argsort(dim=1, stable=True)[:, :most]
    at = (order[:, None], place)
    rank = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    product = Product(whole.left[at], whole.right[at], whole.start, tuple(counts[order].tolist()))
    return [product, *(Lookup(rank[piece.sample], piece.row, piece.values) for piece in lookups)]


def find_occupied(product: Product) -> Tensor | None:
    """Return [n, T], where the product is not zero, or ``None`` if nowhere; 0 * inf is not zero."""
    sides = (product.left, product.right)
    found = torch.stack([side[..., :LOOK].ne(0).any(-1) for side in sides]).all(0)
    if bool(found.all()):
        return None
    unsure = found.logical_not()
    found[unsure] = torch.stack([side[unsure].abs().sum(-1) for side in sides]).prod(0).ne(0)
    return None if bool(found.all()) else found
