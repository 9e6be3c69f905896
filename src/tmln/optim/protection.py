"""What the shield does: by how much the metric slows the weights."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from tmln.distributed.process_group import gather_full
from tmln.optim.update import metric_numbers

# Of more weights than EXACT_UP_TO, percentiles are those of SAMPLE weights drawn with a fixed seed:
# p95 is then the percentile 95 +- 0.02.
EXACT_UP_TO = 2**22
SAMPLE = 2**20
NIL_BELOW = 1.01
SLOWED_ABOVE = 1.1
TOO_STRONG_ABOVE = 100.0  # of the median: half of the weights move at less than 1% of their rate
NIL = (
    "the shield is nil: 95% of the weights are slowed by less than 1%, so they will move as under plain SGD and the "
    "tasks before are hardly protected; raise trajectory or lower damping (in the proximal form: raise lr). "
    "protection() has the numbers"
)
TOO_STRONG = (
    "the shield is too strong: half of the weights are slowed to less than 1% of their rate, so hardly anything new "
    "will be learned; raise damping or lower trajectory (in the proximal form: lower lr). protection() has the numbers"
)


class Slowdowns(NamedTuple):
    """The fields of :class:`Protection` that compare as a tuple."""

    slowdown_median: float
    slowdown_p95: float
    nil: bool


class Protection(Slowdowns):
    """Statistics of the slow-down (F + lambda + gamma*S-bar) / lambda over all weights.

    Attributes:
        slowdown_median: the median; 1 where nothing is shielded.
        slowdown_p95: the 95th percentile.
        nil: whether 95% of the weights are slowed by less than 1%.
        slowed: the share of weights that are slowed by more than 10%.
        empty: whether no weight is slowed at all, as before the first boundary.

    Exact up to 2^22 weights; beyond, of 2^20 weights, the same in every call.

    >>> print(Protection(1.0, 1.05, False, slowed=0.025))
    2.5% of the weights slowed by more than 10% (the median by 0%, one in twenty by 5% or more)
    """

    slowed: float
    empty: bool

    def __new__(
        cls, slowdown_median: float, slowdown_p95: float, nil: bool, slowed: float = 0.0, empty: bool = False
    ) -> Protection:
        made = super().__new__(cls, slowdown_median, slowdown_p95, nil)
        made.slowed, made.empty = slowed, empty
        return made

    @property
    def too_strong(self) -> bool:
        """Whether half of the weights are slowed to less than 1% of their rate."""
        return self.slowdown_median > TOO_STRONG_ABOVE

    def __str__(self) -> str:
        if self.empty:
            return "no weight is slowed: nothing was consolidated yet (optimizer.consolidate(fisher) at a task's end)"
        median, p95 = (100 * (value - 1) for value in self[:2])
        return (
            f"{100 * self.slowed:.3g}% of the weights slowed by more than 10% "
            f"(the median by {median:.3g}%, one in twenty by {p95:.3g}% or more)"
        )


class Shield(NamedTuple):
    """The metric of one parameter; ``None`` is zero everywhere."""

    size: int
    fisher: Tensor | None
    sensitivity: Tensor | None
    damping: float
    trajectory: float

    def slowdown(self, indices: Tensor | None) -> Tensor:
        """Return 1 + (F + gamma*S-bar) / lambda of these weights or all, in float64 on the CPU."""
        result = torch.ones(self.size if indices is None else len(indices), dtype=torch.float64)
        for value, factor in ((self.fisher, 1.0), (self.sensitivity, self.trajectory)):
            if value is not None:
                flat = gather_full(value).flatten()
                chosen = flat if indices is None else flat[indices.to(flat.device)]
                result.add_(chosen.cpu().double(), alpha=factor / self.damping)
        return result


def shields_of(
    optimizer: Optimizer, fisher: Mapping[Tensor, Tensor], sensitivity: Mapping[Tensor, Tensor]
) -> list[Shield]:
    """Return the shields of all trained parameters; these F and S-bar replace their own."""
    shields: list[Shield] = []
    for group in optimizer.param_groups:
        for p in group["params"]:
            state = optimizer.state.get(p, {})
            if p.requires_grad or state:
                new = fisher.get(p, state.get("fisher")), sensitivity.get(p, state.get("sensitivity"))
                shields.append(Shield(p.numel(), *new, *metric_numbers(group)))
    return shields


def measure_protection(shields: Sequence[Shield], most_exact: int = EXACT_UP_TO, sample: int = SAMPLE) -> Protection:
    """Return median, 95th percentile and share of the slow-down over all weights, or a sample."""
    sizes = [shield.size for shield in shields]
    drawn = _draw_indices(sizes, sample) if sum(sizes) > most_exact else [None] * len(sizes)
    slowdowns = [shield.slowdown(indices) for shield, indices in zip(shields, drawn, strict=True)]
    values = torch.cat(slowdowns) if slowdowns else torch.ones(0)
    median, p95 = quantile(values, 0.5), quantile(values, 0.95)
    slowed = float((values > SLOWED_ABOVE).sum()) / max(1, len(values))
    return Protection(median, p95, p95 < NIL_BELOW, slowed, empty=bool((values == 1.0).all()))


def quantile(values: Tensor, q: float) -> float:
    """Return numpy's linear quantile without sorting (torch's is limited in size); 1 if empty."""
    if not values.numel():
        return 1.0
    place = q * (values.numel() - 1)
    rank = math.floor(place) + 1
    below = float(values.kthvalue(rank).values)
    if int((values <= below).sum()) > rank or rank == values.numel():
        return below
    above = float(values[values > below].min())
    return below + (place - rank + 1) * (above - below)


def warn_of_shield(protection: Protection, stacklevel: int) -> None:
    """Warn of a shield that slows next to nothing or next to everything."""
    warnings.warn(NIL if protection.nil else TOO_STRONG, UserWarning, stacklevel=stacklevel + 1)


def _draw_indices(sizes: list[int], sample: int) -> list[Tensor | None]:
    """Draw indices into tensors of these sizes; a stride might see a single column."""
    generator = torch.Generator().manual_seed(0)
    drawn: list[Tensor | None] = []
    total, end, taken = sum(sizes), 0, 0
    for size in sizes:
        end += size
        count = round(sample * end / total) - taken
        taken += count
        drawn.append(torch.randint(max(1, size), (count,), generator=generator))
    return drawn
