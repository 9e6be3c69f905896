"""TMLN's metric F + lambda + gamma*S-bar: its numbers, its inverse, its state, and whose F it is, matched, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from tmln.distributed.process_group import Ranks, ShardValue, local_part, reduce_parts, shard_like
from tmln.optim.offload import fetched, stowed
from tmln.optim.precision import state_dtype


def metric_numbers(group: dict[str, Any]) -> list[float]:
    """[lambda, gamma] as the group's settings say now; in the proximal form lambda is 1/eta."""
    damping = group["damping"]
    if group["form"] == "proximal":
        damping = 1.0 / float(group["lr"]) if group["lr"] else math.inf
    return [damping, group["trajectory"]]


def sign_of(group: dict[str, Any]) -> float:
    """g = sign * ``.grad``: the loss to be lowered is minus what is to be maximized."""
    return -1.0 if group["maximize"] else 1.0


def preconditioner(fisher: Tensor | None, sensitivity: Tensor, damping: float, trajectory: float) -> Tensor:
    """P = 1 / (F + lambda + gamma*S-bar), elementwise; no F is F = 0."""
    denominator = sensitivity.mul(trajectory).add_(damping)
    return (denominator if fisher is None else denominator.add_(fisher)).reciprocal_()


def current_preconditioner(state: dict[str, Tensor], group: dict[str, Any]) -> Tensor:
    """P of one parameter under the numbers that the group's path is being walked with, kept in its state.

    Of a ``factored`` one, whose direction has been through an inverse with lambda in it: 1 / (1 + gamma*S-bar/lambda).
    """
    if "preconditioner" not in state:
        damping, trajectory = group["metric"] or metric_numbers(group)
        sensitivity = fetched(state, "sensitivity", group)
        if state.get("factored"):
            found = preconditioner(None, sensitivity, 1.0, trajectory / damping)
        else:
            fisher = fetched(state, "fisher", group) if "fisher" in state else None
            found = preconditioner(fisher, sensitivity, damping, trajectory)
        state["preconditioner"] = found
    return state["preconditioner"]


def state_of(optimizer: Optimizer, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
    """A parameter starts with theta as its anchor, no F, no S-bar and no path."""
    state: dict[str, Tensor] = optimizer.state[p]
    if not state:
        dtype = state_dtype(p)
        state["anchor"] = stowed(p.detach().to(dtype, copy=True), group)
        if group["geometry"] != "euclidean":
            state["fisher"] = stowed(torch.zeros_like(p, dtype=dtype), group)
        state["sensitivity"] = stowed(torch.zeros_like(p, dtype=dtype), group)
        state["raw_path"] = torch.zeros_like(p, dtype=dtype)
    return state


def take_fisher(optimizer: Optimizer, fisher: Mapping[Tensor, Tensor]) -> None:
    """F of these parameters is new; every P is out of date."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p in fisher:
                state_of(optimizer, p, group)["fisher"] = stowed(fisher[p], group)
            if optimizer.state.get(p):
                optimizer.state[p].pop("preconditioner", None)


def laid_out(value: Tensor, p: Tensor) -> Tensor:
    """A copy of ``value`` in the layout of ``p``, in its shards too, so that fused steps need no strided loops."""
    return torch.empty_like(p, dtype=state_dtype(p)).copy_(shard_like(value, p))


def parameter_names(optimizer: Optimizer) -> dict[Tensor, str]:
    """The names given with ``named_parameters()``, else the position of each parameter."""
    names: dict[Tensor, str] = {}
    for number, group in enumerate(optimizer.param_groups):
        known = group.get("param_names")
        for index, p in enumerate(group["params"]):
            names[p] = f"'{known[index]}'" if known else f"parameter {index} of group {number}"
    return names


def check_agrees(fisher: Mapping[Any, Tensor] | Sequence[Tensor] | None, ranks: Ranks) -> None:
    """F must be the same on all ``ranks``: replicas that are moved by different metrics drift apart without a word."""
    if ranks.size == 1:
        return
    items = list(fisher.items() if isinstance(fisher, Mapping) else enumerate(fisher or ()))
    counts = ranks.gather_objects(lambda: len(items))
    if len(set(counts)) > 1:
        raise ValueError(
            f"the Fisher diagonal has {counts} tensors on the ranks 0, 1, ...; every rank must give the same"
        )
    marks: list[ShardValue] = []
    for _, value in items:
        flat = local_part(value).reshape(-1)
        marks += [ShardValue(value, float(some.sum(dtype=torch.float64))) for some in (flat, flat[::2], flat.square())]
    different = ranks.find_difference(reduce_parts(marks, "sum"))
    if different is not None:
        key = items[different // 3][0]
        name = repr(key) if isinstance(key, str) else f"parameter {different // 3}"
        raise ValueError(
            f"the Fisher diagonal of {name} is not the same on all {ranks.size} ranks, so that their weights would "
            "drift apart: compute it on all of them with tmln.diagonal_fisher(model, batches), which adds up all "
            "samples, or, if each rank is to learn on its own, consolidate(fisher, group='local')"
        )


def match_fisher(optimizer: Optimizer, fisher: Mapping[Any, Tensor] | Sequence[Tensor] | None) -> dict[Tensor, Tensor]:
    """``{parameter: F}`` for every trainable parameter whose group has a Fisher geometry; raises on any flaw."""
    names = parameter_names(optimizer)
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
    given = _by_parameter(fisher, names)
    matched: dict[Tensor, Tensor] = {}
    for p in wanted:
        if p in given:
            _check(given[p], p, names[p])
            matched[p] = given[p]
        elif p.requires_grad:
            raise KeyError(
                f"the Fisher diagonal has no entry for {names[p]} of shape {tuple(p.shape)}; "
                "was it computed on another model, or a copy?"
            )
    return matched


def _by_parameter(fisher: Mapping[Any, Tensor] | Sequence[Tensor], names: dict[Tensor, str]) -> dict[Tensor, Tensor]:
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


def _check(value: Tensor, p: Tensor, name: str) -> None:
    if value.shape != p.shape:
        raise ValueError(f"the Fisher diagonal of {name} has shape {tuple(value.shape)}, expected {tuple(p.shape)}")
    value = local_part(value)
    if not torch.isfinite(value).all():
        raise ValueError(f"the Fisher diagonal of {name} has entries that are not finite")
    if value.numel() and (least := float(value.min())) < 0:
        raise ValueError(f"the Fisher diagonal of {name} has negative entries (least {least:g})")
