"""When the loss is no longer a number: stop before the step, and say where and probably why."""

from __future__ import annotations

from torch import Tensor


class Diverged(FloatingPointError):
    """The loss is no longer a number; nothing was stepped with it."""


def diverged(loss: float, inputs: Tensor, where: str, lr: float, rate: float) -> Diverged:
    """What to say of a loss that is not finite; ``rate`` is the step's rate in flat directions."""
    if not bool(inputs.isfinite().all()):
        return Diverged(
            f"the loss is {loss} in {where}: the batch of {len(inputs)} samples holds values that are not finite; "
            "look at the data"
        )
    return Diverged(
        f"the loss is {loss} in {where} (a batch of {len(inputs)}): the steps are too long (lr {lr}, rate in flat "
        f"directions {rate:g}); lower lr or raise the damping"
    )
