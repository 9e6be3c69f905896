"""TMLN's step, theta <- theta - eta*P*g for a list of tensors, and its path integral omega = -sum g*dtheta over a task.

Its own moves are counted as they are made, in ``raw_path``: omega = P*raw_path while P stands. Where that would not be
the displacement that happened, g and theta are remembered on departure and the move is counted on arrival, in
``way``. What was walked under a P that has changed, and every ``STRETCH`` steps, is banked in ``path``: a sum of sums,
as a float32 that has grown large no longer takes in what a single step adds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from tmln.distributed.process_group import gather_full
from tmln.optim.adam import adam_directions
from tmln.optim.offload import fetched, stowed
from tmln.optim.precision import is_half, state_dtype
from tmln.optim.preconditioner import current_preconditioner, metric_numbers, sign_of

# Parameters and their gradients -> directions in their place; without one a gradient is its own direction.
Natural = Callable[[list[Tensor], list[Tensor]], list[Tensor]]

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
    if "way" in state:
        omega = omega + state["way"]
    return omega + fetched(state, "path", group) if "path" in state else omega


def walked_so_far(p: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> Tensor:
    """omega as if the move under way ended here; changes nothing."""
    omega = walked(state, group)
    if "departure" not in state:
        return omega
    back = state["departure"] - p.detach()
    return omega.addcmul_(_still(state["task_gradient"].clone(), back), back, value=sign_of(group))


def bank(state: dict[str, Tensor], group: dict[str, Any]) -> None:
    """Before P changes, or the sums grow too large for a step to count: what was walked so far."""
    state["path"] = stowed(walked(state, group), group)
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


def clipping(gradients: Iterable[Tensor], most: float) -> float | Tensor:
    """What the gradients are multiplied with so that their norm, of all together, is at most this."""
    norm = gather_full(torch.nn.utils.get_total_norm(gradients))
    if torch.compiler.is_compiling():
        return (most / (norm + 1e-6)).clamp(max=1.0)
    return min(1.0, most / (float(norm) + 1e-6))


def rate_of(group: dict[str, Any]) -> float | Tensor:
    """What P times the direction is multiplied with: eta; 1 in the proximal form, whose P has it; eta*lambda on Adam.

    A tensor only where a number would wait for the device, or would be compiled in.
    """
    if group["form"] == "proximal":
        return 1.0
    lr: float | Tensor = group["lr"]
    if isinstance(lr, Tensor) and not (lr.device.type != "cpu" or torch.compiler.is_compiling()):
        lr = float(lr)
    return lr * group["metric"][0] if group["base"] == "adam" else lr


def step_group(
    params: list[Tensor],
    grads: list[Tensor],
    states: list[dict[str, Tensor]],
    group: dict[str, Any],
    scale: float | Tensor,
    natural: Natural | None = None,
) -> None:
    """Update one group's parameters and their path; after ``after_backward()``, ``after_update()`` counts the path."""
    count = not group["looked"]
    rounded = [is_half(p) for p in params]
    if not any(rounded):
        move(params, grads, states, group, scale, count, natural)
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
        move(some, wide, theirs, group, scale, count and not half, natural)
        if half and count:
            arrive(some, theirs, group)


def move(
    params: list[Tensor],
    grads: list[Tensor],
    states: list[dict[str, Tensor]],
    group: dict[str, Any],
    scale: float | Tensor,
    count: bool,
    natural: Natural | None = None,
) -> None:
    """Gradients times ``scale`` move the weights; if told to ``count``, the gradients as they are make the path.

    Without momentum and decay: two calls, no temporaries.
    """
    metric = [current_preconditioner(state, group) for state in states]
    raw_path = [state["raw_path"] for state in states]
    rate, sign = rate_of(group), sign_of(group)
    foreach = group["foreach"] is not False
    if not (group["momentum"] or group["weight_decay"] or group["base"] == "adam"):
        towards = grads if natural is None else natural(params, grads)
        towards, lr = multiplied(towards, rate * scale, foreach)
        if count:
            add_product_(raw_path, grads, towards, lr, foreach)
        add_product_(params, metric, towards, -lr * sign, foreach)
        return
    directions = scaled(grads, sign * scale, foreach)
    if group["base"] == "adam":
        adam = group["betas"], group["base_eps"], group["capturable"], foreach
        directions = adam_directions(params, directions, states, *adam)
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
    directions = directions if natural is None else natural(params, directions)
    directions, lr = multiplied(directions, rate, foreach)
    if count:
        add_product_(raw_path, grads, directions, sign * lr, foreach)
    add_product_(params, metric, directions, -lr, foreach)


# -- one fused call, or one tensor at a time with the same result -----------------------------------------------------


def multiplied(xs: list[Tensor], factor: float | Tensor, foreach: bool) -> tuple[list[Tensor], float]:
    """x and a number whose product is factor*x: a tensor is multiplied in at once, as no fused call takes one."""
    return (scaled(xs, factor, foreach), 1.0) if isinstance(factor, Tensor) else (xs, factor)


def scaled(xs: list[Tensor], factor: float | Tensor, foreach: bool) -> list[Tensor]:
    """New tensors factor*x."""
    return list(torch._foreach_mul(xs, factor)) if foreach else [x * factor for x in xs]


def add_(xs: list[Tensor], ys: list[Tensor], factor: float, foreach: bool) -> None:
    """x += factor*y."""
    if foreach:
        torch._foreach_add_(xs, ys, alpha=factor)
        return
    for x, y in zip(xs, ys, strict=True):
        x.add_(y, alpha=factor)


def add_product_(xs: list[Tensor], ys: list[Tensor], zs: list[Tensor], factor: float, foreach: bool) -> None:
    """x += factor*y*z."""
    if foreach:
        torch._foreach_addcmul_(xs, ys, zs, value=factor)
        return
    for x, y, z in zip(xs, ys, zs, strict=True):
        x.addcmul_(y, z, value=factor)
