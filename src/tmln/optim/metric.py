"""TMLN's metric F + lambda + gamma*S-bar: its numbers, its inverse, and the state of a parameter that it is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

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
    """P of one parameter under the numbers that the group's path is being walked with, kept in its state."""
    if "preconditioner" not in state:
        damping, trajectory = group["metric"] or metric_numbers(group)
        state["preconditioner"] = preconditioner(state.get("fisher"), state["sensitivity"], damping, trajectory)
    return state["preconditioner"]


def state_of(optimizer: Optimizer, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
    """A parameter starts with theta as its anchor, no F, no S-bar and no path."""
    state: dict[str, Tensor] = optimizer.state[p]
    if not state:
        dtype = state_dtype(p)
        state["anchor"] = p.detach().to(dtype, copy=True)
        if group["geometry"] != "euclidean":
            state["fisher"] = torch.zeros_like(p, dtype=dtype)
        state["sensitivity"] = torch.zeros_like(p, dtype=dtype)
        state["raw_path"] = torch.zeros_like(p, dtype=dtype)
    return state


def take_fisher(optimizer: Optimizer, fisher: Mapping[Tensor, Tensor]) -> None:
    """F of these parameters is new; every P is out of date."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p in fisher:
                state_of(optimizer, p, group)["fisher"] = fisher[p]
            if optimizer.state.get(p):
                optimizer.state[p].pop("preconditioner", None)


def laid_out(value: Tensor, p: Tensor) -> Tensor:
    """A copy of ``value`` in the layout of ``p``, so that fused steps do not fall back to strided loops."""
    return torch.empty_like(p, dtype=state_dtype(p)).copy_(value)
