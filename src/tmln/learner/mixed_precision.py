"""Mixed precision: the training pass in half, weights, gradients and all that is counted in single precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from tmln.distributed.process_group import ShardValue, is_sharded, local_part, reduce_parts

Precision = Literal["32", "bf16-mixed", "16-mixed"]
HALVES = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
FIRST, MOST = 2.0**16, 2.0**24  # scales; torch's GradScaler begins there, too
CALM = 2000  # gradients without an overflow, after which the scale is doubled


class Mixed(nn.Module):
    """``model`` under autocast; its output, of which the loss is, in single precision."""

    def __init__(self, model: nn.Module, kind: torch.dtype) -> None:
        super().__init__()
        self.model, self.kind = model, kind

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, self.kind):
            output: Tensor = self.model(x)
        return output.float()


class Scale:
    """By what a loss is multiplied so that small gradients do not vanish in half precision.

    Gradients are divided by it before anybody sees them: penalties, path integrals, clipping and running Fishers are
    those of the loss itself. Where one overflows, the backward pass is taken again at half the scale, so that no step
    is left out and a run depends on its seed alone.
    """

    def __init__(self) -> None:
        self.value, self.calm = FIRST, 0

    def backward(self, loss: Tensor, parameters: Sequence[Tensor], average: Callable[[], None]) -> None:
        """Leaves the gradient of ``loss`` in ``.grad``, which must be None before; ``average`` takes it over ranks."""
        while True:
            (loss * self.value).backward(retain_graph=True)
            average()
            found = [p.grad for p in parameters if p.grad is not None]
            if not found or _finite(found) or self.value < 1.0:
                break
            self.value, self.calm = self.value / 2, 0
            for p in parameters:
                p.grad = None
        if found:
            torch._foreach_div_(found, self.value)
        self.calm += 1
        if self.calm >= CALM:
            self.value, self.calm = min(2 * self.value, MOST), 0

    def state_dict(self) -> dict[str, float]:
        return {"value": self.value, "calm": self.calm}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.value, self.calm = float(state["value"]), int(state["calm"])


def _finite(values: list[Tensor]) -> bool:
    """One number for all: a sum of norms is finite where all of them are, in all parts."""
    total = float(torch.stack(torch._foreach_norm([local_part(value) for value in values])).sum())
    cut = next((value for value in values if is_sharded(value)), values[0])
    return math.isfinite(reduce_parts([ShardValue(cut, total)], "sum")[0])
