"""Which samples are kept, and which are drawn: Vitter's algorithm R (1985) and the beginning of a permutation."""

from __future__ import annotations

import torch
from torch import Tensor

# Where a permutation is not shuffled to its end: from sizes that leave the caches on, where a draw of 128 from 10M took
# 83 ms in place of 1.1 s, from 1M 11 ms in place of 67; below, torch.randperm is faster. Beyond, it draws otherwise.
LARGE = range(2**18, 2**27)
FEW = 64  # times fewer are drawn


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


def permutation_start(total: int, count: int, generator: torch.Generator) -> Tensor:
    """``torch.randperm(total)[:count]``, and the generator as that leaves it.

    randperm swaps place after place, each with a random later one, so the first places do not depend on the other
    swaps. For a large total these are not made; their random numbers are drawn all the same.
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
