"""What is summed of per-sample gradients: their squares, for the Fisher diagonal, or their absolute values, for MAS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Size:
    """|g|^power, elementwise: blind to the sign of a gradient, which the check of a way turns (``witness.py``)."""

    of: Callable[[Tensor], Tensor]
    into_: Callable[[Tensor], Tensor]  # the same in place
    power: int

    def add_(self, total: Tensor, gradient: Tensor) -> Tensor:
        """total += the size of the gradient."""
        return total.addcmul_(gradient, gradient) if self.power == 2 else total.add_(self.of(gradient))


SQUARED = Size(torch.square, torch.square_, 2)
ABSOLUTE = Size(torch.abs, torch.abs_, 1)
