"""From a loss to ``.grad``: unscaled, and over all ranks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tmln.distributed.data_parallel import average_gradients
from tmln.distributed.process_group import Ranks
from tmln.learner.mixed_precision import Scale


class Backward:
    """Adds the gradient of a loss to ``.grad``; that of the loss itself, whatever it was scaled by on the way."""

    def __init__(self, ranks: Ranks, scale: Scale | None = None) -> None:
        self.ranks, self.scale = ranks, scale

    def __call__(self, loss: Tensor, parameters: Sequence[Tensor], retain_graph: bool = False) -> None:
        if self.ranks.size == 1 and self.scale is None:
            loss.backward(retain_graph=retain_graph)
            return
        before = [p.grad for p in parameters]
        for p in parameters:
            p.grad = None
        if self.scale is None:
            loss.backward(retain_graph=retain_graph)
            average_gradients(parameters, self.ranks)
        else:
            self.scale.backward(loss, parameters, lambda: average_gradients(parameters, self.ranks))
        with torch.no_grad():
            for p, old in zip(parameters, before, strict=True):
                if old is not None:
                    p.grad = old if p.grad is None else old + p.grad
