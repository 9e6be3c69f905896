"""The path integral of the plain gradient (Zenke et al. 2017, equation 3): omega = -sum_t g*(theta(t+1) - theta(t))."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def walk_(total: list[Tensor], gradients: list[Tensor], before: list[Tensor], weights: list[Tensor]) -> None:
    """omega -= g*(theta - theta_before); uses ``before`` up."""
    torch._foreach_sub_(before, weights)
    torch._foreach_addcmul_(total, gradients, before)


class Path:
    """How much of the loss's fall each weight is responsible for, whatever moved it.

    ``look`` before the step takes the plain gradient, ``walk`` after it the displacement as it was: with momentum,
    decay, clipping and the penalty's own pull.
    """

    def __init__(self, weights: list[Tensor]) -> None:
        self.weights = weights
        self.total: list[Tensor] = []
        self._gradients: list[Tensor] = []
        self._before: list[Tensor] = []

    def begin(self) -> None:
        self.total = [torch.zeros_like(p) for p in self.weights]

    def look(self, gradients: list[Tensor], keep: bool) -> None:
        """``keep`` them by reference; if not, by value, as optimizers (SGD's nesterov) may write into ``.grad``."""
        self._gradients = gradients if keep else [g.clone() for g in gradients]
        self._before = [p.detach().clone() for p in self.weights]

    @torch.no_grad()
    def walk(self) -> None:
        if self._gradients:
            walk_(self.total, self._gradients, self._before, self.weights)
            self._gradients, self._before = [], []

    def state_dict(self) -> dict[str, Any]:
        return {"total": [value.clone() for value in self.total]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.total = [value.to(p.device, copy=True) for value, p in zip(state["total"], self.weights, strict=False)]
        self._gradients, self._before = [], []
