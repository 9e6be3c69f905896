"""Checks that all optimizers share: settings, gradients, and parameters that left the model."""

from __future__ import annotations

import gc
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

_WRAPPERS = re.compile(r"\b(module|_orig_mod)\.")  # in names, of DistributedDataParallel and torch.compile


def check_at_least(name: str, value: float, low: float) -> None:
    """Raise unless ``value`` is finite and at least ``low``."""
    if not (math.isfinite(value) and value >= low):
        raise ValueError(f"{name} must be a finite number >= {low:g}, got {value}")


def check_above(name: str, value: float, low: float) -> None:
    """Raise unless ``value`` is finite and above ``low``."""
    if not (math.isfinite(value) and value > low):
        raise ValueError(f"{name} must be a finite number > {low:g}, got {value}")


def check_fraction(name: str, value: float, closed: bool = False) -> None:
    """Raise unless ``value`` lies in [0, 1), or in [0, 1] if ``closed``."""
    if not (0.0 <= value < 1.0 or (closed and value == 1.0)):
        raise ValueError(f"{name} must lie in [0, 1{']' if closed else ')'}, got {value}")


def check_betas(betas: Sequence[float]) -> None:
    """Raise unless ``betas`` are two numbers in [0, 1)."""
    if len(betas) != 2:
        raise ValueError(f"betas must be two numbers, of the mean and of the mean of squares; got {betas!r}")
    for beta in betas:
        check_fraction("betas", beta)


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}")


def check_parameters(params: Any, optimizer: str) -> None:
    """Raise if a model is given in place of its parameters."""
    if isinstance(params, nn.Module):
        raise TypeError(f"{optimizer} takes parameters, not a model: {optimizer}(model.parameters(), ...)")


def check_gradient(p: Tensor, optimizer: str) -> None:
    """Raise if the gradient is sparse or the parameter complex; the metrics are elementwise."""
    gradient = p.grad
    if gradient is not None and (gradient.is_sparse or gradient.layout != p.layout):
        raise TypeError(
            f"{optimizer} needs dense gradients, got {gradient.layout} for a parameter of shape {tuple(p.shape)}; "
            "use sparse=False in the embedding, or give this parameter to torch.optim.SparseAdam"
        )
    if p.is_complex():
        raise TypeError(
            f"{optimizer} needs real parameters, got {p.dtype} of shape {tuple(p.shape)}; "
            "hold the real and imaginary parts as two parameters"
        )


def check_finite(gradients: Mapping[Tensor, Tensor], names: Mapping[Tensor, str]) -> None:
    """Raise if a gradient has NaN or infinity, before any weight moves."""
    for p, gradient in gradients.items():
        if not gradient.isfinite().all():
            raise FloatingPointError(
                f"the gradient of {names[p]} is not finite; nothing was stepped. "
                "Lower lr, raise damping, or look at the batch"
            )


def name_parameters(optimizer: Optimizer) -> dict[Tensor, str]:
    """Return names as given by ``named_parameters()``, or the positions of parameters."""
    names: dict[Tensor, str] = {}
    for number, group in enumerate(optimizer.param_groups):
        known = group.get("param_names")
        for index, p in enumerate(group["params"]):
            names[p] = f"'{known[index]}'" if known else f"parameter {index} of group {number}"
    return names


def check_same_names(optimizer: Optimizer, state_dict: Mapping[str, Any]) -> None:
    """Raise if a state names other parameters than the optimizer, where both have names."""
    for own, saved in zip(optimizer.param_groups, state_dict["param_groups"], strict=False):
        for name, other in zip(own.get("param_names") or (), saved.get("param_names") or (), strict=False):
            plain, known = (_WRAPPERS.sub("", one) for one in (name, other))
            if plain != known:
                raise ValueError(
                    f"the state is that of {other!r}, and this optimizer has {name!r} in its place, which must not get "
                    "its shield: give the same parameters in the same order, or make a new optimizer"
                )


def begin_step(
    optimizer: Optimizer, closure: Callable[[], float] | None, model: nn.Module | None = None
) -> float | None:
    """Return the loss of the closure, if there is one, and check that no parameter was replaced."""
    loss = None
    if closure is not None:
        with torch.enable_grad():
            loss = closure()
    if any(p.grad is None for group in optimizer.param_groups for p in group["params"]):
        check_replaced_parameters(optimizer, model)
    return loss


def check_replaced_parameters(optimizer: Optimizer, model: nn.Module | None = None) -> None:
    """Raise if a parameter has no gradient because the model now trains another in its place.

    Without ``model`` it is found by the parameters that have gradients. A head that only has no
    gradient now (one of several, or frozen) is still in the model and passes.
    """
    everything = [p for group in optimizer.param_groups for p in group["params"]]
    without = [p for p in everything if p.grad is None and p.requires_grad]
    checked = frozenset(map(id, without))
    if not checked or checked == getattr(optimizer, "_checked_without_gradient", None):
        return
    known = set(map(id, everything))
    models = [model] if model is not None else find_models(p for p in everything if p.grad is not None)
    in_model = {id(p): p for top in models for p in top.parameters()}
    new = [p for p in in_model.values() if p.requires_grad and p.grad is not None and id(p) not in known]
    lost = [p for p in without if id(p) not in in_model]
    if new and lost:
        raise RuntimeError(
            f"{name_parameters(optimizer)[lost[0]]} of shape {tuple(lost[0].shape)} is no longer in the model, and the "
            f"model trains one of shape {tuple(new[0].shape)} that this optimizer does not know; nothing was "
            "stepped. After replacing a layer call optimizer.replace(old_parameter, new_parameter) for each of its "
            "parameters"
        )
    optimizer._checked_without_gradient = checked  # type: ignore[attr-defined]  # once, not at every step


def find_models(parameters: Iterable[Tensor]) -> list[nn.Module]:
    """Return the outermost live modules that hold any of these parameters."""
    modules = [found for found in gc.get_objects() if issubclass(type(found), nn.Module)]
    parents: dict[int, list[nn.Module]] = {}
    for module in modules:
        for child in vars(module).get("_modules", {}).values():  # a module may be half initialised
            parents.setdefault(id(child), []).append(module)
    wanted = set(map(id, parameters))
    pending = [m for m in modules if any(id(p) in wanted for p in vars(m).get("_parameters", {}).values())]
    seen: set[int] = set()
    tops: list[nn.Module] = []
    while pending:
        module = pending.pop()
        if id(module) not in seen:
            seen.add(id(module))
            above = parents.get(id(module), [])
            pending += above
            tops += [] if above else [module]
    return tops
