"""How a step is called, and what that of every optimizer begins with."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim import optimizer as hooks

from tmln.optim.growth import check_nothing_lost


def opened(optimizer: Optimizer, closure: Callable[[], float] | None, model: nn.Module | None = None) -> float | None:
    """The loss, if a closure computes it once more; where gradients are missing, no layer was replaced unnoticed."""
    loss = None
    if closure is not None:
        with torch.enable_grad():
            loss = closure()
    if any(p.grad is None for group in optimizer.param_groups for p in group["params"]):
        check_nothing_lost(optimizer, model)
    return loss


def stepped(optimizer: Optimizer, closure: Callable[[], float]) -> None:
    """``optimizer.step(closure)``; where nobody watches, without what torch wraps around it for those who would.

    That is hooks and a mark for the profiler, and takes 11 us: a thirtieth of a perceptron's training step.
    """
    step = type(optimizer).step
    plain = getattr(step, "__wrapped__", None) if getattr(step, "hooked", False) else None
    if plain is None or _watched(optimizer):
        optimizer.step(closure)
    else:
        plain(optimizer, closure)


def _watched(optimizer: Optimizer) -> bool:
    """A schedule or a framework has put a step of its own in its place, somebody has hooks, or the profiler runs.

    So it is where torch no longer says so under these names.
    """
    return "step" in vars(optimizer) or any(
        getattr(holder, name, True)
        for holder, name in (
            (optimizer, "_optimizer_step_pre_hooks"),
            (optimizer, "_optimizer_step_post_hooks"),
            (hooks, "_global_optimizer_pre_hooks"),
            (hooks, "_global_optimizer_post_hooks"),
            (torch.autograd.profiler, "_is_profiler_enabled"),
        )
    )
