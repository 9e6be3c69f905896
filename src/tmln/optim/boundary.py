"""What a task boundary changes and what it found, computed whole before anything changes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor
from torch.optim import Optimizer

from tmln.optim.matching import parameter_names
from tmln.optim.metric import laid_out, metric_numbers, take_fisher
from tmln.optim.path import OPEN, walked_so_far
from tmln.optim.protection import Consolidation, Protection, Shield, protection

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


def shared_out(scores: Mapping[Tensor, Tensor], apart: Mapping[Tensor, bool]) -> Shares:
    """Divide by the maximum of all, or, for parameters set ``apart``, by their own; uses ``scores`` up."""
    tops = {p: float(score.max()) if score.numel() else 0.0 for p, score in scores.items()}
    for top in tops.values():
        if not math.isfinite(top):
            raise FloatingPointError(f"a score overflowed ({top}); raise eps")
    peak = max(tops.values(), default=0.0)
    shares: dict[Tensor, Tensor] = {}
    sums: dict[Tensor, float] = {}
    active = 0
    for p, score in scores.items():
        top = tops[p] if apart[p] else peak
        shares[p] = score.div_(top) if top > 0 else score
        active += int((shares[p] > ACTIVE_ABOVE).sum())
        sums[p] = float(shares[p].sum()) * (top / peak) if peak > 0 else 0.0
    total = sum(sums.values())
    return Shares(shares, peak, active, {p: value / total if total > 0 else 0.0 for p, value in sums.items()})


class Boundary(NamedTuple):
    """The new F and S-bar of each parameter that gets one."""

    fisher: dict[Tensor, Tensor]
    sensitivity: dict[Tensor, Tensor]
    found: Consolidation
    protection: Protection


def weigh(optimizer: Optimizer, metric: Mapping[Tensor, Tensor]) -> Boundary:
    """The path so far scored and added to S-bar, and what the shield will do under it and the new ``metric``."""
    scores: dict[Tensor, Tensor] = {}
    apart: dict[Tensor, bool] = {}
    for group in optimizer.param_groups:
        for p in group["params"]:
            state = optimizer.state.get(p)
            if not state:
                continue
            path, moved = walked_so_far(p, state, group), p - state["anchor"]
            for what, value in (("path integral", path), ("displacement", moved)):
                if not value.isfinite().all():
                    raise FloatingPointError(
                        f"the {what} of {parameter_names(optimizer)[p]} is not finite; "
                        f"lower lr ({float(group['lr'])}) or raise damping ({group['damping']})"
                    )
            old = state.get("fisher")
            weight = metric.get(p, old) if group["score_fisher"] == "current" else old
            scores[p] = sensitivity_score(path, moved, weight if group["geometry"] == "fisher" else None, group["eps"])
            apart[p] = group["score_max"] == "tensor"
    result = shared_out(scores, apart)
    fisher = {p: laid_out(value, p) for p, value in metric.items()}
    sensitivity = {p: share.add_(optimizer.state[p]["sensitivity"]) for p, share in result.shares.items()}
    shields = shields_of(optimizer, fisher, sensitivity)
    outcome = protection(shields)
    active = result.active / max(1, sum(shield.size for shield in shields))
    mass = {p: result.mass.get(p, 0.0) for group in optimizer.param_groups for p in group["params"]}
    found = Consolidation(result.peak, active, outcome.slowdown_median, outcome.slowdown_p95, mass)
    return Boundary(fisher, sensitivity, found, outcome)


def cross(optimizer: Optimizer, boundary: Boundary) -> None:
    """The next task starts here: a new anchor and metric, no path and, unless kept, no momentum."""
    for group in optimizer.param_groups:
        group["looked"], group["stretch"] = False, 0
        dropped = ("path", "way", *OPEN, *(() if group["keep_momentum"] else ("momentum_buffer",)))
        for p in group["params"]:
            state = optimizer.state.get(p)
            if state:
                state["sensitivity"] = boundary.sensitivity[p]
                state["anchor"].copy_(p)
                state["raw_path"].zero_()
                for key in dropped:
                    state.pop(key, None)
    take_fisher(optimizer, boundary.fisher)


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
