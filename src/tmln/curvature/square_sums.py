"""Sums over samples of squared (or absolute) per-sample gradients, in tiles that fit the cache."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from threading import Barrier, local
from typing import TypeVar

import torch
from torch import Tensor

from tmln.curvature.lazy_gradients import (
    Lookup,
    Piece,
    Product,
    at_least_single,
    drop_empty_positions,
    merge_products,
    sum_pieces,
)


@dataclass(frozen=True)
class Magnitude:
    """The elementwise |g|^power; it ignores the signs that checks turn."""

    of: Callable[[Tensor], Tensor]
    into_: Callable[[Tensor], Tensor]  # the same in place
    power: int

    def add_(self, total: Tensor, gradient: Tensor) -> Tensor:
        """Add the magnitude of the gradient to ``total``."""
        return total.addcmul_(gradient, gradient) if self.power == 2 else total.add_(self.of(gradient))


SQUARE = Magnitude(torch.square, torch.square_, 2)
ABSOLUTE_VALUE = Magnitude(torch.abs, torch.abs_, 1)


Item = TypeVar("Item")


def run_in_threads(do: Callable[[Item], None], items: Sequence[Item]) -> None:
    """Call ``do`` with every item, on as many threads as torch has, each item on one, in any order.

    Items must not change what others use. Exceptions are raised here. Torch's own threads would
    synchronise at every small operation.
    """
    threads = torch.get_num_threads()
    if threads == 1 or len(items) < 2:
        for item in items:
            do(item)
        return
    for _ in _thread_pool(threads, os.getpid()).map(do, items):
        pass


@cache
def _thread_pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Return threads in which torch uses no others; resetting the number costs torch milliseconds.

    They do not survive in a forked process, which needs its own.
    """
    ready = Barrier(threads)

    def begin() -> None:
        torch.set_num_threads(1)
        torch.get_num_threads()  # asked for the first time, a thread begins with the last number that anybody has set
        ready.wait()

    pool = ThreadPoolExecutor(threads, "tmln-curvature", begin)
    for _ in pool.map(int, range(threads)):
        pass
    torch.set_num_threads(threads)  # threads to come begin with it
    return pool


# Floats in flight at a time: per-sample gradients and unfolded inputs of one block stay in the
# cache. Over the convolutions of the reduced ResNet18 at widths 20 and 64 (2-core Zen 4) blocks of
# 1 and 2 MB took about the same time, 8 MB 1.2x of it.
BLOCK = 2**19
# Floats of one sample in a tile of rows, and of all samples that go together, from layers of one
# tile on. Squares of layers of 768x768 and 3072x768, 16 samples of 16 positions, took 1.65 to 1.9
# times a plain weight gradient in tiles of 256 rows, four samples at a time, each added by itself;
# 1.9 to 2.4 in 85 rows and 16 samples, squared together (one Zen 4 core, busy). A tile of fewer
# than 96 rows is slower, however wide.
TILE = 3 * 2**16
TILES = 4 * TILE
ROWS = 96
# Floats of all samples of a smaller parameter that go together.
SMALL = 2**20
# Above this many elements, adding squares sample by sample beats squaring a block and summing it,
LARGE = 2**14
# unless it is less than a tile, holds so many samples (8: 1.1x, 16: 0.8x the time), and may be
# overwritten.
MANY = 8
# Floats of all samples from which on tiles are dealt out to threads, which takes a fraction of a
# millisecond.
THREADS_FROM = 2**22
# What squaring one sample's gradient costs, in positions of the product that makes it (as above: 28
# instead of 16).
SQUARING = 12


# A parameter and a sum of its -> what of it stays here: the part of this process, of a parameter in
# shards.
Keep = Callable[[Tensor, Tensor], Tensor]


class GradientSums:
    """Sums by parameter of each sample's gradient magnitude, in the layout of the pieces.

    Where only a part is kept (``keep``), each parameter is summed whole, and cut.
    """

    def __init__(self, size: Magnitude = SQUARE, keep: Keep | None = None) -> None:
        self.size, self.keep = size, keep
        self.values: dict[Tensor, Tensor] = {}

    def add(self, p: Tensor, pieces: Sequence[Piece], size: int) -> None:
        """Add the parameter ``p``, whose per-sample gradient is the sum of ``pieces``."""
        if self.keep is not None:
            entire = GradientSums(self.size)
            entire.add(p, pieces, size)
            return self.add_sums(entire.values)
        pieces = merge_products(pieces)
        if p.device.type == "cpu" and p.numel() >= TILE:  # elsewhere to look at values means to wait for them
            pieces = drop_empty_positions(pieces)
        if len(pieces) == 1:
            only = pieces[0]
            if isinstance(only, Lookup):  # no row of a sample comes twice, so each is a gradient's own
                values = at_least_single(only.values)
                if p not in self.values:
                    self.values[p] = values.new_zeros(p.shape)
                self.values[p].index_add_(0, only.row, self.size.of(values))
                return None
            if isinstance(only, Product) and only.left.shape[2] == len(p):
                positions = only.left.shape[1]
                if positions == 1:  # the size of a product is the product of sizes, whichever they are
                    left, right = at_least_single(only.left[:, 0]), at_least_single(only.right[:, 0])
                    return self._put(p, self.size.of(left).t() @ self.size.of(right))
                if self.size is SQUARE and prefers_pairs(positions):
                    for left, right in _split_blocks(only):
                        self._put(p, sum_pair_squares(left, right))
                    return None
        return self._by_tiles(p, pieces, size)

    def _by_tiles(self, p: Tensor, pieces: Sequence[Piece], size: int) -> None:
        """Sum a few rows and samples at a time, with the rows shared by threads."""
        only = pieces[0] if len(pieces) == 1 else None
        # Long tiles are made faster than wide ones: a layer from 3072 to 768, turned, in 0.7 of the
        # time.
        turned = p.numel() >= TILE and isinstance(only, Product) and only.is_wide(p.shape)
        if turned and isinstance(only, Product):
            pieces = [only.transposed]
        shape = p.t() if turned else p
        own = p.numel() < TILE and all(piece.by_rows for piece in pieces)  # computed gradients may share memory
        rooms = local()  # one for all tiles of a thread; the first tile is the largest

        def measure(tile: tuple[slice, int]) -> None:
            rows, block = tile
            first = pieces[0]
            if isinstance(first, Product) and not hasattr(rooms, "own"):
                rooms.own = first.room(min(block, size), rows)
            room = getattr(rooms, "own", None)
            for start in range(0, size, block):
                samples = slice(start, min(start + block, size))
                found = sum_pieces(pieces, len(shape) if shape.dim() else 1, samples, rows, room)
                self._measure(p, rows, at_least_single(found), turned, own)

        for_each_tile(measure, shape, pieces, size)

    def add_sums(self, sums: Mapping[Tensor, Tensor]) -> None:
        """Add sums over whole parameters, of which the part to keep is taken."""
        for p, value in sums.items():
            self._put(p, value if self.keep is None else self.keep(p, value))

    def merge(self, other: GradientSums) -> None:
        for p, value in other.values.items():
            self._put(p, value)

    def _put(self, p: Tensor, value: Tensor) -> None:
        self.values[p] = self.values[p].add_(value) if p in self.values else value

    def _measure(self, p: Tensor, rows: slice, found: Tensor, turned: bool, own: bool) -> None:
        """Add gradients of rows of ``p``, or of columns if ``turned``; overwrite ``own`` ones."""
        whole = found[0].numel() == p.numel()
        if whole and p.numel() < LARGE:
            return self._put(p, _sum_samples(found, self.size))
        if p not in self.values:
            shape = p.shape[::-1] if turned else p.shape  # rows have the order of the parameter itself, or of its turn
            place = torch.zeros_like(found[0]) if whole else found.new_zeros(shape)
            self.values.setdefault(p, place.t() if turned else place)  # unless another thread has just done so
        total = self.values[p].t() if turned else self.values[p]
        into = total if whole else total[rows]
        if own and len(found) >= MANY:
            into.add_(self.size.into_(found).sum(0))
        else:
            for gradient in found:
                self.size.add_(into, gradient)
        return None


def plan_tiles(p: Tensor, pieces: Sequence[Piece], size: int) -> Iterator[tuple[slice, int]]:
    """Yield rows of the parameter to compute at a time, and how many samples go together."""
    height = len(p) if p.dim() else 1
    floats = max(piece.floats() for piece in pieces)
    if not all(piece.by_rows for piece in pieces):
        yield slice(0, height), max(1, BLOCK // max(1, floats, p.numel()))
        return
    columns = max(1, p.numel() // max(1, height))
    if p.numel() < TILE:
        yield slice(0, height), max(1, SMALL // max(1, p.numel()))
        return
    count = -(-height // (2 * max(ROWS, TILE // columns))) * 2
    step = -(-height // count)  # an even number, all alike: no thread of two or more is left with a large one
    for start in range(0, height, step):
        yield slice(start, min(start + step, height)), max(1, TILES // (step * columns))


def for_each_tile(do: Callable[[tuple[slice, int]], None], p: Tensor, pieces: Sequence[Piece], size: int) -> None:
    """Call ``do`` with all :func:`plan_tiles`, in threads if they are many."""
    found = list(plan_tiles(p, pieces, size))
    if p.device.type == "cpu" and p.numel() * size >= THREADS_FROM:
        return run_in_threads(do, found)
    for tile in found:
        do(tile)
    return None


def prefers_pairs(positions: int) -> bool:
    """Return whether pairs of positions cost less than squaring each sample's gradient."""
    return positions * (positions + 1) // 2 <= positions + SQUARING


def _split_blocks(product: Product) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield a few samples at a time, since pairs take more memory than their factors."""
    positions = product.left.shape[1]
    pairs = positions * (positions + 1) // 2 * (product.left.shape[2] + product.right.shape[2])
    step = max(1, 8 * BLOCK // pairs)
    return zip(product.left.split(step), product.right.split(step), strict=True)


def sum_pair_squares(left: Tensor, right: Tensor) -> Tensor:
    r"""Compute sum_n (sum_t l_nt r_nt)^2 as one product over pairs of positions for all samples.

    .. math::
        \sum_n \sum_{t,u} (l_{nt} l_{nu})(r_{nt} r_{nu})

    Rounding may make a sum negative that cancels; it is clamped to zero.
    """
    left, right = at_least_single(left), at_least_single(right)
    t, u = torch.triu_indices(left.shape[1], left.shape[1], device=left.device)
    twice = torch.where(t == u, 1.0, 2.0).to(left)[:, None]
    pairs = (left[:, t] * left[:, u] * twice).flatten(0, 1)
    return (pairs.t() @ (right[:, t] * right[:, u]).flatten(0, 1)).clamp_min_(0.0)


def _sum_samples(found: Tensor, size: Magnitude) -> Tensor:
    """Sum over dim 0 in the order of storage; across it, permuted results sum 30x slower."""
    strides = found.stride()
    order = sorted(range(1, found.dim()), key=lambda d: -strides[d])
    summed = size.of(found.permute(0, *order)).sum(0)
    return summed.permute([order.index(d) for d in range(1, found.dim())])
