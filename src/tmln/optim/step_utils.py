"""What the step of every optimizer begins with."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.optim import Optimizer

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
