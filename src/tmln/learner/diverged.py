"""When the loss is no longer a number: stop before the step, and say where and probably why."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from tmln.methods import Step


class Diverged(FloatingPointError):
    """The loss is no longer a number; nothing was stepped with it."""


def diverged(loss: float, inputs: Tensor, where: str, lr: float, step: Step[Any]) -> Diverged:
    """Return the error for a loss that is not finite; it advises only settings that this step has."""
    if not bool(inputs.isfinite().all()):
        return Diverged(
            f"the loss is {loss} in {where}: the batch of {len(inputs)} samples holds values that are not finite; "
            "look at the data"
        )
    return Diverged(
        f"the loss is {loss} in {where} (a batch of {len(inputs)}): the steps are too long (lr {lr}, rate in flat "
        f"directions {step.effective_lr:g}); {' or '.join(['lower lr', *(f'raise {name}' for name in dampings(step))])}"
    )


def dampings(step: Step[Any]) -> list[str]:
    """Return the name of the setting by which the step divides its rate, if there is one."""
    name = "step."
    while step.is_wrapper:
        name, step = f"{name}inner.", getattr(step, "inner")  # noqa: B009
    damping = getattr(step.settings, "damping", None)
    lr = float(step.optimizer.param_groups[0]["lr"])
    return [] if damping is None or not math.isclose(step.effective_lr * damping, lr) else [f"{name}damping"]
