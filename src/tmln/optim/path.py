"""TMLN's path integral omega = -sum g*dtheta over a task.

Its own moves are counted as they are made, in ``raw_path``: omega = P*raw_path while P stands. Where that would not be
the displacement that happened, g and theta are remembered on departure and the move is counted on arrival, in
``way``. What was walked under a P that has changed, and every ``STRETCH`` steps, is banked in ``path``: a sum of sums,
as a float32 that has grown large no longer takes in what a single step adds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from tmln.optim.foreach import add_, add_product_
from tmln.optim.metric import current_preconditioner, metric_numbers, sign_of
from tmln.optim.precision import state_dtype

OPEN = ("task_gradient", "departure")
STRETCH = 1024  # steps: 10^6 steps are then a sum of 1000 sums of 1000, right to 1e-4 where one float32 was off by 1.5%


def depart(p: Tensor, state: dict[str, Tensor]) -> None:
    """Remember g and theta, by value: ``.grad`` is about to be written into, theta to move."""
    assert p.grad is not None
    state["task_gradient"] = p.grad.detach().to(state_dtype(p), copy=True)
    state["departure"] = p.detach().to(state_dtype(p), copy=True)


def arrive(params: list[Tensor], states: list[dict[str, Tensor]], group: dict[str, Any]) -> None:
    """omega -= g*(theta - theta_then), and forget both."""
    if not params:
        return
    foreach = group["foreach"] is not False
    for p, state in zip(params, states, strict=True):
        if "way" not in state:
            state["way"] = torch.zeros_like(p, dtype=state_dtype(p))
    gradients, back = ([state.pop(key) for state in states] for key in OPEN)
    add_(back, params, -1.0, foreach)
    for gradient, moved in zip(gradients, back, strict=True):
        _still(gradient, moved)
    add_product_([state["way"] for state in states], gradients, back, sign_of(group), foreach)


def walked(state: dict[str, Tensor], group: dict[str, Any]) -> Tensor:
    """omega, without what is under way."""
    omega = current_preconditioner(state, group) * state["raw_path"]
    for banked in ("way", "path"):
        if banked in state:
            omega = omega + state[banked]
    return omega


def walked_so_far(p: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> Tensor:
    """omega as if the move under way ended here; changes nothing."""
    omega = walked(state, group)
    if "departure" not in state:
        return omega
    back = state["departure"] - p.detach()
    return omega.addcmul_(_still(state["task_gradient"].clone(), back), back, value=sign_of(group))


def bank(state: dict[str, Tensor], group: dict[str, Any]) -> None:
    """Before P changes, or the sums grow too large for a step to count: what was walked so far."""
    state["path"] = walked(state, group)
    state["raw_path"].zero_()
    state.pop("way", None)


def fix_metric(group: dict[str, Any], states: Iterable[dict[str, Tensor]]) -> None:
    """Where lambda, gamma or (proximal) eta changed: bank the path walked under the old metric, take the new."""
    wanted = metric_numbers(group)
    if group["metric"] != wanted:
        for state in states:
            bank(state, group)
            state.pop("preconditioner", None)
        group["metric"] = wanted


def _still(gradient: Tensor, moved: Tensor) -> Tensor:
    # a step that a scaler skipped for its infinite gradients moved nothing, and inf * 0 is not 0
    return gradient.masked_fill_(moved == 0, 0.0)
