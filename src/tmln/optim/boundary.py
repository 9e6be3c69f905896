"""TMLN's task boundary: check and match F, score the path, update S-bar.

A boundary is computed completely before anything changes, so that a failure leaves the optimizer
as it was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from tmln.distributed.process_group import (
    SINGLE,
    Ranks,
    ShardValue,
    from_local_part,
    is_sharded,
    local_part,
    reduce_parts,
    shard_like,
)
from tmln.optim.checks import name_parameters
from tmln.optim.protection import Protection, measure_protection, shields_of
from tmln.optim.update import (
    MOMENTS,
    OPEN,
    copy_layout,
    current_preconditioner,
    load,
    path_so_far,
    set_fisher,
    store,
    store_metric,
)

# A weight counts as active above this share of the largest score.
ACTIVE_ABOVE = 0.01
# With score_max="tensor" scores are divided by at least this share of the global maximum. Gradients
# that are zero in exact arithmetic (of a bias before batch norm) are rounding noise, about 1e-6 of
# the others, and scores grow with their square.
TENSOR_FLOOR = 1e-8


class Consolidation(NamedTuple):
    """The result of a task boundary.

    Attributes:
        peak: the largest raw score s.
        active: the share of weights with s / max(s) > 0.01.
        slowdown_median: as in :class:`Protection`, under the new metric.
        slowdown_p95: as in :class:`Protection`, under the new metric.
        mass: ``{parameter: its share of the sum of s}``, to see how much lies on the head, say.
    """

    peak: float
    active: float
    slowdown_median: float
    slowdown_p95: float
    mass: dict[Tensor, float]

    def __repr__(self) -> str:
        return (
            f"Consolidation(peak={self.peak:.3g}, active={self.active:.3g}, "
            f"slowdown_median={self.slowdown_median:.4g}, slowdown_p95={self.slowdown_p95:.4g})"
        )


class Boundary(NamedTuple):
    """The new F and S-bar by parameter, and what is reported."""

    fisher: dict[Tensor, Tensor]
    sensitivity: dict[Tensor, Tensor]
    found: Consolidation
    protection: Protection


def sensitivity_score(path: Tensor, displacement: Tensor, fisher: Tensor | None, eps: float) -> Tensor:
    """Return s = relu(omega) / (F*dtheta^2/2 + eps); without F, relu(omega) / (dtheta^2 + eps)."""
    distance = displacement.square()
    if fisher is not None:
        distance.mul_(fisher).mul_(0.5)
    return path.relu().div_(distance.add_(eps))


class Shares(NamedTuple):
    """Scores over their maximum ``peak``; a count of ``active`` ones; shares of sum(s)."""

    shares: dict[Tensor, Tensor]
    peak: float
    active: int
    mass: dict[Tensor, float]


def normalise_scores(
    scores: Mapping[Tensor, Tensor], per_tensor: Mapping[Tensor, bool], ranks: Ranks = SINGLE
) -> Shares:
    """Divide scores in place by the maximum of all, or, where ``per_tensor``, by their own.

    Scores of a sharded parameter are this rank's part; maxima and sums are over all parts, and the
    maximum of all is over ``ranks``, each of which may have parameters of its own.
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
        top = max(tops[p], TENSOR_FLOOR * peak) if per_tensor[p] else peak
        shares[p] = score.div_(top) if top > 0 else score
        active.append(ShardValue(p, int((shares[p] > ACTIVE_ABOVE).sum())))
        sums.append(ShardValue(p, float(shares[p].sum()) * (top / peak) if peak > 0 else 0.0))
    masses = reduce_parts(sums, "sum")
    total = sum(masses)
    mass = {p: value / total if total > 0 else 0.0 for p, value in zip(scores, masses, strict=True)}
    return Shares(shares, peak, int(sum(reduce_parts(active, "sum"))), mass)


def compute_boundary(optimizer: Optimizer, metric: Mapping[Tensor, Tensor], ranks: Ranks = SINGLE) -> Boundary:
    """Score the path, add it to S-bar, and measure the shield under this and the new ``metric``.

    Changes nothing. All ``ranks`` compute together and raise together.
    """
    result = normalise_scores(*ranks.run_together(lambda: score_parameters(optimizer, metric)), ranks)
    groups = {p: group for group in optimizer.param_groups for p in group["params"]}
    fisher = {p: store_metric(copy_layout(value, p), p, groups[p]) for p, value in metric.items()}
    sensitivity: dict[Tensor, Tensor] = {}
    for p, share in result.shares.items():
        share.add_(local_part(optimizer.state[p]["sensitivity"]), alpha=groups[p]["decay"])
        share = store_metric(share, p, groups[p])
        sensitivity[p] = from_local_part(share, p) if is_sharded(p) else share
    shields = shields_of(optimizer, fisher, sensitivity)
    outcome = measure_protection(shields)
    active = result.active / max(1, sum(shield.size for shield in shields))
    mass = {p: result.mass.get(p, 0.0) for p in groups}
    found = Consolidation(result.peak, active, outcome.slowdown_median, outcome.slowdown_p95, mass)
    return Boundary(fisher, sensitivity, found, outcome)


def score_parameters(
    optimizer: Optimizer, metric: Mapping[Tensor, Tensor]
) -> tuple[dict[Tensor, Tensor], dict[Tensor, bool]]:
    """Return s of each parameter with a path, and whether it is divided by its own maximum."""
    scores: dict[Tensor, Tensor] = {}
    per_tensor: dict[Tensor, bool] = {}
    for group in optimizer.param_groups:
        for p in group["params"]:
            state = optimizer.state.get(p)
            if not state:
                continue
            path, moved = local_part(path_so_far(p, state, group)), local_part(p - load(state, "anchor", group))
            for what, value in (("path integral", path), ("displacement", moved)):
                if not value.isfinite().all():
                    raise FloatingPointError(
                        f"the {what} of {name_parameters(optimizer)[p]} is not finite; "
                        f"lower lr ({float(group['lr'])}) or raise damping ({group['damping']})"
                    )
            old = load(state, "fisher", group) if "fisher" in state else None
            weight = metric.get(p, old) if group["score_fisher"] == "current" else old
            is_measured = group["geometry"] in ("fisher", "kfac")
            fisher = None if weight is None or not is_measured else local_part(shard_like(weight, p))
            scores[p] = store(sensitivity_score(path, moved, fisher, group["eps"]), group)
            per_tensor[p] = group["score_max"] == "tensor"
    return scores, per_tensor


def apply_boundary(optimizer: Optimizer, boundary: Boundary) -> None:
    """Start the next task: new metric, anchor here, no path and, unless kept, no momentum."""
    for group in optimizer.param_groups:
        group["looked"], group["stretch"] = False, 0
        dropped = () if group["keep_momentum"] else ("momentum_buffer", *MOMENTS)
        for p in group["params"]:
            state = optimizer.state.get(p)
            if state:
                state["sensitivity"] = boundary.sensitivity[p]
                state["anchor"].copy_(p)
                state["raw_path"].zero_()
                for key in ("path", "way", *OPEN):
                    state.pop(key, None)
                for key in dropped:  # zeroed, not removed: a compiled step would compile again to make them
                    if key in state:
                        state[key].zero_()
    set_fisher(optimizer, boundary.fisher)
    for group in optimizer.param_groups:  # P now, not in the next step, which would compile again for it
        for p in group["params"]:
            if (state := optimizer.state.get(p)) and not group["compact"]:
                current_preconditioner(state, group)


# -- F as it is given --------------------------------------------------------------------------


def check_same_fisher(fisher: Mapping[Any, Tensor] | Sequence[Tensor] | None, ranks: Ranks) -> None:
    """Raise unless F is the same on all ``ranks``; otherwise their weights would drift apart."""
    if ranks.size == 1:
        return
    items = list(fisher.items() if isinstance(fisher, Mapping) else enumerate(fisher or ()))
    counts = ranks.gather_objects(lambda: len(items))
    if len(set(counts)) > 1:
        raise ValueError(
            f"the Fisher diagonal has {counts} tensors on the ranks 0, 1, ...; every rank must give the same"
        )
    sums: list[ShardValue] = []
    for _, value in items:
        flat = local_part(value).reshape(-1)
        sums += [ShardValue(value, float(some.sum(dtype=torch.float64))) for some in (flat, flat[::2], flat.square())]
    different = ranks.find_difference(reduce_parts(sums, "sum"))
    if different is not None:
        key = items[different // 3][0]
        name = repr(key) if isinstance(key, str) else f"parameter {different // 3}"
        raise ValueError(
            f"the Fisher diagonal of {name} is not the same on all {ranks.size} ranks, so that their weights would "
            "drift apart: compute it on all of them with tmln.diagonal_fisher(model, batches), which adds up all "
            "samples, or, if each rank is to learn on its own, consolidate(fisher, group='local')"
        )


def match_fisher(optimizer: Optimizer, fisher: Mapping[Any, Tensor] | Sequence[Tensor] | None) -> dict[Tensor, Tensor]:
    """Return ``{parameter: F}`` for parameters with a Fisher geometry; raise if F does not fit."""
    names = name_parameters(optimizer)
    wanted = [p for g in optimizer.param_groups if g["geometry"] != "euclidean" for p in g["params"]]
    if fisher is None:
        if wanted:
            raise TypeError(
                "consolidate() needs the Fisher diagonal of your memory: "
                "optimizer.consolidate(tmln.diagonal_fisher(model, batches)), or use geometry='euclidean'"
            )
        return {}
    if not wanted:
        raise TypeError("geometry 'euclidean' uses no Fisher diagonal: call consolidate() without one")
    given = _index_by_parameter(fisher, names)
    matched: dict[Tensor, Tensor] = {}
    for p in wanted:
        if p in given:
            _check_fisher(given[p], p, names[p])
            matched[p] = given[p]
        elif p.requires_grad:
            raise KeyError(
                f"the Fisher diagonal has no entry for {names[p]} of shape {tuple(p.shape)}; "
                "was it computed on another model, or a copy?"
            )
    return matched


def _index_by_parameter(
    fisher: Mapping[Any, Tensor] | Sequence[Tensor], names: dict[Tensor, str]
) -> dict[Tensor, Tensor]:
    if not isinstance(fisher, Mapping):
        if len(fisher) != len(names):
            raise ValueError(f"a sequence needs one tensor a parameter: {len(names)} parameters, {len(fisher)} tensors")
        return dict(zip(names, fisher, strict=True))
    owners: Mapping[str, Tensor] | None = getattr(fisher, "parameters", None)
    if owners is not None:
        return {owners[name]: value for name, value in fisher.items()}
    if all(isinstance(key, Tensor) for key in fisher):
        return dict(fisher)
    by_name = {name.strip("'"): p for p, name in names.items()}
    for key in fisher:
        if key not in by_name:
            raise KeyError(
                f"the Fisher diagonal names {key!r}, which is no parameter of this optimizer; pass what "
                "tmln.diagonal_fisher returned, {parameter: tensor}, or build the optimizer from "
                "model.named_parameters()"
            )
    return {by_name[key]: value for key, value in fisher.items()}


def _check_fisher(value: Tensor, p: Tensor, name: str) -> None:
    if value.shape != p.shape:
        raise ValueError(f"the Fisher diagonal of {name} has shape {tuple(value.shape)}, expected {tuple(p.shape)}")
    value = local_part(value)
    if not torch.isfinite(value).all():
        raise ValueError(f"the Fisher diagonal of {name} has entries that are not finite")
    if value.numel() and (least := float(value.min())) < 0:
        raise ValueError(f"the Fisher diagonal of {name} has negative entries (least {least:g})")
