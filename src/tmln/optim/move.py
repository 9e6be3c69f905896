"""TMLN's step: theta <- theta - eta*P*g for a list of tensors, with momentum and decay on request."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tmln.optim.foreach import add_, add_product_, scaled
from tmln.optim.metric import current_preconditioner, sign_of
from tmln.optim.path import arrive, depart
from tmln.optim.precision import is_half, state_dtype


def step_group(
    params: list[Tensor], grads: list[Tensor], states: list[dict[str, Tensor]], group: dict[str, Any], scale: float
) -> None:
    """Move one group's parameters and count their path, unless ``look()`` was called: then ``walk()`` counts it."""
    count = not group["looked"]
    rounded = [is_half(p) for p in params]
    if not any(rounded):
        move(params, grads, states, group, scale, count)
        return
    for half in (False, True):
        chosen = [k for k, is_rounded in enumerate(rounded) if is_rounded is half]
        if not chosen:
            continue
        some, theirs = [params[k] for k in chosen], [states[k] for k in chosen]
        wide = [grads[k].to(state_dtype(params[k])) for k in chosen]
        # Rounding discards steps of half precision: their path is that of the displacement which remained.
        if half and count:
            for p, state in zip(some, theirs, strict=True):
                depart(p, state)
        move(some, wide, theirs, group, scale, count and not half)
        if half and count:
            arrive(some, theirs, group)


def move(
    params: list[Tensor],
    grads: list[Tensor],
    states: list[dict[str, Tensor]],
    group: dict[str, Any],
    scale: float,
    count: bool,
) -> None:
    """Gradients times ``scale`` move the weights; if told to ``count``, the gradients as they are make the path.

    Without momentum and decay: two calls, no temporaries.
    """
    metric = [current_preconditioner(state, group) for state in states]
    raw_path = [state["raw_path"] for state in states]
    lr = 1.0 if group["form"] == "proximal" else float(group["lr"])
    sign = sign_of(group)
    foreach = group["foreach"] is not False
    if not (group["momentum"] or group["weight_decay"]):
        if count:
            add_product_(raw_path, grads, grads, lr * scale, foreach)
        add_product_(params, metric, grads, -lr * scale * sign, foreach)
        return
    directions = scaled(grads, sign * scale, foreach)
    if group["weight_decay"]:
        add_(directions, params, group["weight_decay"], foreach)
    if group["momentum"]:
        for p, state in zip(params, states, strict=True):
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(p, dtype=state_dtype(p))
        velocities = [state["momentum_buffer"] for state in states]
        add_(directions, velocities, group["momentum"], foreach)
        for state, velocity in zip(states, directions, strict=True):
            state["momentum_buffer"] = velocity
    if count:
        add_product_(raw_path, grads, directions, sign * lr, foreach)
    add_product_(params, metric, directions, -lr, foreach)
