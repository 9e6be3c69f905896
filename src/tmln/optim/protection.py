"""What TMLN's shield does, in numbers: by how much it slows the weights, and what a task boundary found."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

# Percentiles over more weights than the first are taken from a sample of the second size, drawn from a fixed seed:
# p95 is then the percentile 95 +- 0.02.
MOST_EXACT = 2**22
SAMPLE = 2**20
NIL_BELOW = 1.01
NIL = (
    "the shield is nil: 95% of the weights are slowed by less than 1%, so they will move as under plain SGD and the "
    "tasks before are hardly protected; raise trajectory or lower damping (in the proximal form: raise lr). "
    "protection() has the numbers"
)


class Protection(NamedTuple):
    """The slow-down (F + lambda + gamma*S-bar) / lambda over all weights, 1 where nothing is shielded.

    ``nil``: 95% of the weights are slowed by less than 1%. Percentiles are exact up to 2^22 weights; beyond, they are
    those of 2^20 weights, drawn alike every time.
    """

    slowdown_median: float
    slowdown_p95: float
    nil: bool


class Consolidation(NamedTuple):
    """What a task boundary found.

    - ``peak``: the largest raw score s.
    - ``active``: the share of weights with s / max(s) > 0.01.
    - ``slowdown_median``, ``slowdown_p95``: as in :class:`Protection`, under the new metric.
    - ``mass``: ``{parameter: its share of the sum of s}``, for instance to see how much of it lies on the head.
    """

    peak: float
    active: float
    slowdown_median: float
    slowdown_p95: float
    mass: dict[Tensor, float]


class Shield(NamedTuple):
    """What slows one parameter; ``None`` is zero everywhere."""

    size: int
    fisher: Tensor | None
    sensitivity: Tensor | None
    damping: float
    trajectory: float

    def slowdown(self, at: Tensor | None) -> Tensor:
        """1 + (F + gamma*S-bar) / lambda, in float64 on the CPU, of the weights ``at`` these places or of all."""
        result = torch.ones(self.size if at is None else len(at), dtype=torch.float64)
        for value, factor in ((self.fisher, 1.0), (self.sensitivity, self.trajectory)):
            if value is not None:
                flat = value.flatten()
                chosen = flat if at is None else flat[at.to(flat.device)]
                result.add_(chosen.cpu().double(), alpha=factor / self.damping)
        return result


def protection(shields: Sequence[Shield], most_exact: int = MOST_EXACT, sample: int = SAMPLE) -> Protection:
    sizes = [shield.size for shield in shields]
    places = _places(sizes, sample) if sum(sizes) > most_exact else [None] * len(sizes)
    slowed = [shield.slowdown(at) for shield, at in zip(shields, places, strict=True)]
    values = torch.cat(slowed) if slowed else torch.ones(0)
    median, p95 = quantile(values, 0.5), quantile(values, 0.95)
    return Protection(median, p95, p95 < NIL_BELOW)


def quantile(values: Tensor, q: float) -> float:
    """As numpy's, between the two nearest ranks, without sorting; 1 of nothing."""
    if not values.numel():
        return 1.0
    place = q * (values.numel() - 1)
    rank = math.floor(place) + 1
    below = float(values.kthvalue(rank).values)
    if int((values <= below).sum()) > rank or rank == values.numel():
        return below
    above = float(values[values > below].min())
    return below + (place - rank + 1) * (above - below)


def warn_of_nil(stacklevel: int) -> None:
    warnings.warn(NIL, UserWarning, stacklevel=stacklevel + 1)


def _places(sizes: list[int], sample: int) -> list[Tensor | None]:
    """Which places of each size are in the sample, by its share of all; drawn, as a stride may see one column only."""
    generator = torch.Generator().manual_seed(0)
    places: list[Tensor | None] = []
    total, end, taken = sum(sizes), 0, 0
    for size in sizes:
        end += size
        count = round(sample * end / total) - taken
        taken += count
        places.append(torch.randint(max(1, size), (count,), generator=generator))
    return places
