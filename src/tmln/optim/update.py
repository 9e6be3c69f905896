"""TMLN's step theta <- theta - eta*P*g, its path integral omega = -sum g*dtheta, and its state.

Own moves are accumulated in ``raw_path``: omega = P*raw_path while P stands. Where P*g is not the
displacement that took place, gradient and weights are remembered by ``snapshot``, and the move is
added to ``way`` by ``accumulate_path``. When P changes, and every ``STRETCH`` steps, both are added
to ``path``: a sum of sums, since a large float32 no longer takes in what a single step adds.

With ``offload``, state that a step does not need (``WAITING``) is in host memory: 8 bytes a weight
are left on the device, P and the open path, in place of 20. With ``compact``, F and S-bar are kept
in half as many bytes and P is computed in every step, one parameter at a time: 12 bytes a weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from tmln.distributed.process_group import gather_full, shard_like
from tmln.optim.state import compact_dtype, is_half, state_dtype

# Parameters and their gradients -> directions; without one, gradients are the directions.
Natural = Callable[[list[Tensor], list[Tensor]], list[Tensor]]

OPEN = ("task_gradient", "departure")  # of a move under way
WAITING = ("anchor", "fisher", "sensitivity", "path")  # not needed by a step
METRIC = ("fisher", "sensitivity")  # what P is computed from
STRETCH = 1024  # steps; 10^6 steps are then exact to 1e-4, where one float32 sum was off by 1.5%
MOMENTS = ("exp_avg", "exp_avg_sq", "step")  # named as in torch


def adam_directions(
    params: Sequence[Tensor],
    gradients: list[Tensor],
    states: Sequence[dict[str, Tensor]],
    betas: tuple[float, float],
    eps: float,
    capturable: bool = False,
) -> list[Tensor]:
    r"""Update the moments in ``states`` and return Adam's directions.

    .. math::
        m \leftarrow \beta_1 m + (1-\beta_1) g, \quad
        v \leftarrow \beta_2 v + (1-\beta_2) g^2, \quad
        \frac{m / (1-\beta_1^t)}{\sqrt{v / (1-\beta_2^t)} + \epsilon}

    The count t is on the host, as in torch, unless ``capturable``: CUDA graphs do not replay what
    the host computes.
    """
    for p, state in zip(params, states, strict=True):
        if "step" not in state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=p.device if capturable else "cpu")
            for name in MOMENTS[:2]:
                state[name] = torch.zeros_like(p, dtype=state_dtype(p))
        state["step"] += 1
    means, squares = ([state[name] for state in states] for name in MOMENTS[:2])
    steps: list[float | Tensor] = [state["step"] for state in states]
    if not (capturable or torch.compiler.is_compiling()):  # a number is faster, but would be compiled in
        steps = [float(step) for step in steps]
    torch._foreach_lerp_(means, gradients, 1.0 - betas[0])
    torch._foreach_mul_(squares, betas[1])
    torch._foreach_addcmul_(squares, gradients, gradients, value=1.0 - betas[1])
    roots = list(torch._foreach_sqrt(squares))
    torch._foreach_div_(roots, [(1.0 - betas[1] ** t) ** 0.5 for t in steps])
    torch._foreach_add_(roots, eps)
    torch._foreach_mul_(roots, [1.0 - betas[0] ** t for t in steps])
    return list(torch._foreach_div(means, roots))


# -- state -------------------------------------------------------------------------------------


def to_host(value: Tensor) -> Tensor:
    """Return the tensor in host memory."""
    return value.cpu()


def to_device(value: Tensor, like: Tensor) -> Tensor:
    """Return the tensor on the device of ``like``."""
    return value.to(like.device)


def store(value: Tensor, group: dict[str, Any]) -> Tensor:
    """Return the tensor where state of this group is kept: on its device, or on the host."""
    return to_host(value) if group["offload"] else value


def store_metric(value: Tensor, p: Tensor, group: dict[str, Any]) -> Tensor:
    """Return F or S-bar of ``p`` where and in the precision in which this group keeps it."""
    return store(value.to(compact_dtype(state_dtype(p))) if group["compact"] else value, group)


def load(state: dict[str, Tensor], key: str, group: dict[str, Any]) -> Tensor:
    """Return an entry of ``WAITING`` on the device and in the precision of the path."""
    value = to_device(state[key], state["raw_path"]) if group["offload"] else state[key]
    return value.to(state["raw_path"].dtype) if group["compact"] else value


def without_waiting(states: Mapping[Any, dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    """Return states without ``WAITING``, which ``load_state_dict`` would move to the device."""
    return {index: {k: v for k, v in state.items() if k not in WAITING} for index, state in states.items()}


def restore_waiting(optimizer: Optimizer, state_dict: Mapping[str, Any]) -> None:
    """Load ``WAITING`` where it is kept, and all entries in their saved order.

    So a resumed run writes the same bytes as an uninterrupted one.
    """
    ids = (index for group in state_dict["param_groups"] for index in group["params"])
    pairs = ((p, group) for group in optimizer.param_groups for p in group["params"])
    for index, (p, group) in zip(ids, pairs, strict=True):
        for key, value in state_dict["state"].get(index, {}).items():
            state = optimizer.state[p]
            if key in WAITING:
                dtype = state_dtype(p)
                narrow = group["compact"] and key in METRIC
                kept = value.detach().to(dtype=compact_dtype(dtype) if narrow else dtype, copy=True)
                state[key] = to_host(kept) if group["offload"] else to_device(kept, p)
            else:
                state[key] = state.pop(key)


def state_of(optimizer: Optimizer, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
    """Return the state of a parameter; a new one has theta as anchor and no F, S-bar or path."""
    state: dict[str, Tensor] = optimizer.state[p]
    if not state:
        dtype = state_dtype(p)
        state["anchor"] = store(p.detach().to(dtype, copy=True), group)
        if group["geometry"] != "euclidean":
            state["fisher"] = store_metric(torch.zeros_like(p, dtype=dtype), p, group)
        state["sensitivity"] = store_metric(torch.zeros_like(p, dtype=dtype), p, group)
        state["raw_path"] = torch.zeros_like(p, dtype=dtype)
    return state


def copy_layout(value: Tensor, p: Tensor) -> Tensor:
    """Return a copy of ``value`` with the memory format and shards of ``p``, for fused steps."""
    return torch.empty_like(p, dtype=state_dtype(p)).copy_(shard_like(value, p))


# -- the metric --------------------------------------------------------------------------------


def metric_numbers(group: dict[str, Any]) -> list[float]:
    """Return [lambda, gamma] by the group's settings; in the proximal form lambda is 1/eta."""
    damping = group["damping"]
    if group["form"] == "proximal":
        damping = 1.0 / float(group["lr"]) if group["lr"] else math.inf
    return [damping, group["trajectory"]]


def sign_of(group: dict[str, Any]) -> float:
    """Return the sign of the loss gradient in ``.grad``: -1 where it is maximized."""
    return -1.0 if group["maximize"] else 1.0


def preconditioner(fisher: Tensor | None, sensitivity: Tensor, damping: float, trajectory: float) -> Tensor:
    """Return P = 1 / (F + lambda + gamma*S-bar), elementwise; without ``fisher``, F = 0."""
    denominator = sensitivity.mul(trajectory).add_(damping)
    return (denominator if fisher is None else denominator.add_(fisher)).reciprocal_()


def current_preconditioner(state: dict[str, Tensor], group: dict[str, Any]) -> Tensor:
    """Return P of one parameter for the group's metric, computed once and kept in its state.

    With ``compact`` it is computed anew, and not kept. The direction of a ``factored`` parameter
    contains lambda already; its P is 1 / (1 + gamma*S-bar/lambda).
    """
    if "preconditioner" in state:
        return state["preconditioner"]
    damping, trajectory = group["metric"] or metric_numbers(group)
    sensitivity = load(state, "sensitivity", group)
    if state.get("factored"):
        found = preconditioner(None, sensitivity, 1.0, trajectory / damping)
    else:
        fisher = load(state, "fisher", group) if "fisher" in state else None
        found = preconditioner(fisher, sensitivity, damping, trajectory)
    if not group["compact"]:
        state["preconditioner"] = found
    return found


def set_fisher(optimizer: Optimizer, fisher: Mapping[Tensor, Tensor]) -> None:
    """Set a new F for these parameters and drop every P."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p in fisher:
                state_of(optimizer, p, group)["fisher"] = store_metric(fisher[p], p, group)
            if optimizer.state.get(p):
                optimizer.state[p].pop("preconditioner", None)


def fix_metric(group: dict[str, Any], states: Iterable[dict[str, Tensor]]) -> None:
    """Flush the path and drop P if lambda, gamma or (proximal) eta has changed."""
    wanted = metric_numbers(group)
    if group["metric"] != wanted:
        for state in states:
            flush_path(state, group)
            state.pop("preconditioner", None)
        group["metric"] = wanted


# -- the path ----------------------------------------------------------------------------------


def snapshot(p: Tensor, state: dict[str, Tensor]) -> None:
    """Remember g and theta by value, before ``.grad`` is written into and theta moves."""
    assert p.grad is not None
    state["task_gradient"] = p.grad.detach().to(state_dtype(p), copy=True)
    state["departure"] = p.detach().to(state_dtype(p), copy=True)


def accumulate_path(params: list[Tensor], states: list[dict[str, Tensor]], group: dict[str, Any]) -> None:
    """Add -g*(theta - theta_then) of the last snapshot to omega, and drop the snapshot."""
    if not params:
        return
    for p, state in zip(params, states, strict=True):
        if "way" not in state:
            state["way"] = torch.zeros_like(p, dtype=state_dtype(p))
    gradients, back = ([state.pop(key) for state in states] for key in OPEN)
    torch._foreach_sub_(back, params)
    for gradient, moved in zip(gradients, back, strict=True):
        _mask_still(gradient, moved)
    torch._foreach_addcmul_([state["way"] for state in states], gradients, back, value=sign_of(group))


def closed_path(state: dict[str, Tensor], group: dict[str, Any]) -> Tensor:
    """Return omega without the move under way."""
    omega = current_preconditioner(state, group) * state["raw_path"]
    if "way" in state:
        omega = omega + state["way"]
    return omega + load(state, "path", group) if "path" in state else omega


def path_so_far(p: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> Tensor:
    """Return omega as if the move under way ended here; change nothing."""
    omega = closed_path(state, group)
    if "departure" not in state:
        return omega
    back = state["departure"] - p.detach()
    return omega.addcmul_(_mask_still(state["task_gradient"].clone(), back), back, value=sign_of(group))


def flush_path(state: dict[str, Tensor], group: dict[str, Any]) -> None:
    """Add the open sums to ``path``, before P changes or they grow too large."""
    state["path"] = store(closed_path(state, group), group)
    state["raw_path"].zero_()
    state.pop("way", None)


def _mask_still(gradient: Tensor, moved: Tensor) -> Tensor:
    # a step that a scaler skipped for its infinite gradients moved nothing, and inf * 0 is not 0
    return gradient.masked_fill_(moved == 0, 0.0)


# -- the step ----------------------------------------------------------------------------------


def clip_factor(gradients: Iterable[Tensor], most: float) -> float | Tensor:
    """Return the factor that limits the norm of all gradients together to ``most``."""
    norm = gather_full(torch.nn.utils.get_total_norm(gradients))
    if torch.compiler.is_compiling():
        return (most / (norm + 1e-6)).clamp(max=1.0)
    return min(1.0, most / (float(norm) + 1e-6))


def rate_of(group: dict[str, Any]) -> float | Tensor:
    """Return the factor of P*direction: eta; 1 in the proximal form; eta*lambda on Adam.

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
    """Update one group's parameters and their path; between snapshots the path is left alone."""
    count = not group["looked"]
    one_by_one = group["foreach"] is False or group["compact"]  # compact: one P at a time
    if one_by_one and natural is None and len(params) > 1:
        for p, gradient, state in zip(params, grads, states, strict=True):
            step_group([p], [gradient], [state], group, scale)
        return
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
        # Half precision rounds moves away: the path is that of the displacement which remains.
        if half and count:
            for p, state in zip(some, theirs, strict=True):
                snapshot(p, state)
        move(some, wide, theirs, group, scale, count and not half, natural)
        if half and count:
            accumulate_path(some, theirs, group)


def move(
    params: list[Tensor],
    grads: list[Tensor],
    states: list[dict[str, Tensor]],
    group: dict[str, Any],
    scale: float | Tensor,
    count: bool,
    natural: Natural | None = None,
) -> None:
    """Move weights by gradients times ``scale``; if ``count``, add unscaled gradients to the path.

    Without momentum and decay these are two foreach calls without temporaries.
    """
    metric = [current_preconditioner(state, group) for state in states]
    raw_path = [state["raw_path"] for state in states]
    rate, sign = rate_of(group), sign_of(group)
    if not (group["momentum"] or group["weight_decay"] or group["base"] == "adam"):
        towards = grads if natural is None else natural(params, grads)
        towards, lr = _multiply(towards, rate * scale)
        if count:
            torch._foreach_addcmul_(raw_path, grads, towards, value=lr)
        torch._foreach_addcmul_(params, metric, towards, value=-lr * sign)
        return
    directions = list(torch._foreach_mul(grads, sign * scale))
    if group["base"] == "adam":
        directions = adam_directions(params, directions, states, group["betas"], group["base_eps"], group["capturable"])
    if group["weight_decay"]:
        torch._foreach_add_(directions, params, alpha=group["weight_decay"])
    if group["momentum"]:
        for p, state in zip(params, states, strict=True):
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(p, dtype=state_dtype(p))
        torch._foreach_add_(directions, [state["momentum_buffer"] for state in states], alpha=group["momentum"])
        for state, velocity in zip(states, directions, strict=True):
            state["momentum_buffer"] = velocity
    directions = directions if natural is None else natural(params, directions)
    directions, lr = _multiply(directions, rate)
    if count:
        torch._foreach_addcmul_(raw_path, grads, directions, value=sign * lr)
    torch._foreach_addcmul_(params, metric, directions, value=-lr)


def _multiply(xs: list[Tensor], factor: float | Tensor) -> tuple[list[Tensor], float]:
    """Return x and a number whose product is factor*x; fused calls take numbers only."""
    return (list(torch._foreach_mul(xs, factor)), 1.0) if isinstance(factor, Tensor) else (xs, factor)
