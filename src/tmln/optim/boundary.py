"""A task boundary: what it changes and finds, computed whole before anything changes, and what the shield does."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from tmln.distributed.process_group import (
    SINGLE,
    Ranks,
    ShardValue,
    from_local_part,
    gather_full,
    is_sharded,
    local_part,
    reduce_parts,
    shard_like,
)
from tmln.optim.adam import MOMENTS
from tmln.optim.offload import fetched, stowed
from tmln.optim.preconditioner import current_preconditioner, laid_out, metric_numbers, parameter_names, take_fisher
from tmln.optim.update import OPEN, walked_so_far

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


SLOWED_ABOVE = 1.1


class Slowdowns(NamedTuple):
    """As three numbers."""

    slowdown_median: float
    slowdown_p95: float
    nil: bool


class Protection(Slowdowns):
    """The slow-down (F + lambda + gamma*S-bar) / lambda over all weights, 1 where nothing is shielded.

    ``nil``: 95% of the weights are slowed by less than 1%. ``slowed``: the share of weights that are slowed by more
    than 10%. They are exact up to 2^22 weights; beyond, they are those of 2^20 weights, drawn alike every time.

    >>> print(Protection(1.0, 1.05, False, slowed=0.025))
    2.5% of the weights slowed by more than 10% (the median by 0%, one in twenty by 5% or more)
    """

    slowed: float

    def __new__(cls, slowdown_median: float, slowdown_p95: float, nil: bool, slowed: float = 0.0) -> Protection:
        made = super().__new__(cls, slowdown_median, slowdown_p95, nil)
        made.slowed = slowed
        return made

    def __str__(self) -> str:
        median, p95 = (100 * (value - 1) for value in self[:2])
        return (
            f"{100 * self.slowed:.3g}% of the weights slowed by more than 10% "
            f"(the median by {median:.3g}%, one in twenty by {p95:.3g}% or more)"
        )


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
                flat = gather_full(value).flatten()
                chosen = flat if at is None else flat[at.to(flat.device)]
                result.add_(chosen.cpu().double(), alpha=factor / self.damping)
        return result


def protection(shields: Sequence[Shield], most_exact: int = MOST_EXACT, sample: int = SAMPLE) -> Protection:
    """Median and 95th percentile of 1 + (F + gamma*S-bar) / lambda, of a sample where weights are many."""
    sizes = [shield.size for shield in shields]
    places = _places(sizes, sample) if sum(sizes) > most_exact else [None] * len(sizes)
    slowdowns = [shield.slowdown(at) for shield, at in zip(shields, places, strict=True)]
    values = torch.cat(slowdowns) if slowdowns else torch.ones(0)
    median, p95 = quantile(values, 0.5), quantile(values, 0.95)
    slowed = float((values > SLOWED_ABOVE).sum()) / max(1, len(values))
    return Protection(median, p95, p95 < NIL_BELOW, slowed)


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
    """Where 95% of the weights are slowed by less than 1%."""
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


# A weight counts as active above this share of the largest score.
ACTIVE_ABOVE = 0.01


def sensitivity_score(path: Tensor, displacement: Tensor, fisher: Tensor | None, eps: float) -> Tensor:
    """s = relu(omega) / (F*dtheta^2/2 + eps); no F is the Euclidean form relu(omega) / (dtheta^2 + eps)."""
    distance = displacement.square()
    if fisher is not None:
        distance.mul_(fisher).mul_(0.5)
    return path.relu().div_(distance.add_(eps))


class Shares(NamedTuple):
    """s / max(s) of every parameter; ``peak`` is max(s), ``active`` a count, ``mass`` each one's share of sum(s)."""

    shares: dict[Tensor, Tensor]
    peak: float
    active: int
    mass: dict[Tensor, float]


def shared_out(scores: Mapping[Tensor, Tensor], apart: Mapping[Tensor, bool], ranks: Ranks = SINGLE) -> Shares:
    """Divide by the maximum of all, or, for parameters set ``apart``, by their own; uses ``scores`` up.

    Of a parameter in shards its score is this rank's part; maxima and sums are of all parts, and the maximum of all is
    that of all ``ranks``, of which each may have parameters of its own.
    """
    own = [ShardValue(p, float(score.max()) if score.numel() else 0.0) for p, score in scores.items()]
    tops = dict(zip(scores, reduce_parts(own, "max"), strict=True))
    worst = next((top for top in tops.values() if not math.isfinite(top)), None)
    peak = ranks.reduce_max([max(tops.values(), default=0.0) if worst is None else worst])[0]
    if not math.isfinite(peak):
        raise FloatingPointError(f"a score overflowed ({peak if worst is None else worst}); raise eps")
    shares: dict[Tensor, Tensor] = {}
    sums: list[ShardValue] = []
    active: list[ShardValue] = []
    for p, score in scores.items():
        top = tops[p] if apart[p] else peak
        shares[p] = score.div_(top) if top > 0 else score
        active.append(ShardValue(p, int((shares[p] > ACTIVE_ABOVE).sum())))
        sums.append(ShardValue(p, float(shares[p].sum()) * (top / peak) if peak > 0 else 0.0))
    masses = reduce_parts(sums, "sum")
    total = sum(masses)
    mass = {p: value / total if total > 0 else 0.0 for p, value in zip(scores, masses, strict=True)}
    return Shares(shares, peak, int(sum(reduce_parts(active, "sum"))), mass)


class Boundary(NamedTuple):
    """The new F and S-bar of each parameter that gets one."""

    fisher: dict[Tensor, Tensor]
    sensitivity: dict[Tensor, Tensor]
    found: Consolidation
    protection: Protection


def weigh(optimizer: Optimizer, metric: Mapping[Tensor, Tensor], ranks: Ranks = SINGLE) -> Boundary:
    """The path so far scored and added to S-bar, and what the shield will do under it and the new ``metric``.

    All ``ranks`` do so together: what cannot be scored on one of them changes nothing on any.
    """
    result = shared_out(*ranks.run_together(lambda: scored(optimizer, metric)), ranks)
    groups = {p: group for group in optimizer.param_groups for p in group["params"]}
    fisher = {p: stowed(laid_out(value, p), groups[p]) for p, value in metric.items()}
    sensitivity: dict[Tensor, Tensor] = {}
    for p, share in result.shares.items():
        share.add_(local_part(optimizer.state[p]["sensitivity"]), alpha=groups[p]["decay"])
        sensitivity[p] = from_local_part(share, p) if is_sharded(p) else share
    shields = shields_of(optimizer, fisher, sensitivity)
    outcome = protection(shields)
    active = result.active / max(1, sum(shield.size for shield in shields))
    mass = {p: result.mass.get(p, 0.0) for group in optimizer.param_groups for p in group["params"]}
    found = Consolidation(result.peak, active, outcome.slowdown_median, outcome.slowdown_p95, mass)
    return Boundary(fisher, sensitivity, found, outcome)


def scored(optimizer: Optimizer, metric: Mapping[Tensor, Tensor]) -> tuple[dict[Tensor, Tensor], dict[Tensor, bool]]:
    """s of each parameter that has a path, or of this rank's part of it, and whether it has a maximum of its own."""
    scores: dict[Tensor, Tensor] = {}
    apart: dict[Tensor, bool] = {}
    for group in optimizer.param_groups:
        for p in group["params"]:
            state = optimizer.state.get(p)
            if not state:
                continue
            path, moved = local_part(walked_so_far(p, state, group)), local_part(p - fetched(state, "anchor", group))
            for what, value in (("path integral", path), ("displacement", moved)):
                if not value.isfinite().all():
                    raise FloatingPointError(
                        f"the {what} of {parameter_names(optimizer)[p]} is not finite; "
                        f"lower lr ({float(group['lr'])}) or raise damping ({group['damping']})"
                    )
            old = fetched(state, "fisher", group) if "fisher" in state else None
            weight = metric.get(p, old) if group["score_fisher"] == "current" else old
            measured = group["geometry"] in ("fisher", "kfac")
            used = None if weight is None or not measured else local_part(shard_like(weight, p))
            scores[p] = stowed(sensitivity_score(path, moved, used, group["eps"]), group)
            apart[p] = group["score_max"] == "tensor"
    return scores, apart


def cross(optimizer: Optimizer, boundary: Boundary) -> None:
    """The next task starts here: a new anchor and metric, no path and, unless kept, no momentum."""
    for group in optimizer.param_groups:
        group["looked"], group["stretch"] = False, 0
        forgotten = () if group["keep_momentum"] else ("momentum_buffer", *MOMENTS)
        for p in group["params"]:
            state = optimizer.state.get(p)
            if state:
                state["sensitivity"] = boundary.sensitivity[p]
                state["anchor"].copy_(p)
                state["raw_path"].zero_()
                for key in ("path", "way", *OPEN):
                    state.pop(key, None)
                for key in forgotten:  # not dropped: a compiled step would be compiled once more to make them
                    if key in state:
                        state[key].zero_()
    take_fisher(optimizer, boundary.fisher)
    for group in optimizer.param_groups:  # now, not in the next step: a compiled one would be compiled once more for it
        for p in group["params"]:
            if state := optimizer.state.get(p):
                current_preconditioner(state, group)


def shields_of(
    optimizer: Optimizer, fisher: Mapping[Tensor, Tensor], sensitivity: Mapping[Tensor, Tensor]
) -> list[Shield]:
    """Of every parameter that trains or trained, with these F and S-bar in place of its own."""
    shields: list[Shield] = []
    for group in optimizer.param_groups:
        for p in group["params"]:
            state = optimizer.state.get(p, {})
            if p.requires_grad or state:
                new = fisher.get(p, state.get("fisher")), sensitivity.get(p, state.get("sensitivity"))
                shields.append(Shield(p.numel(), *new, *metric_numbers(group)))
    return shields
