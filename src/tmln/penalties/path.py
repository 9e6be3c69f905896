"""The path integral of the plain gradient (Zenke et al. 2017, equation 3): omega = -sum_t g*(theta(t+1) - theta(t))."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tmln.penalties.quadratic import state_dtype, zeros


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
        self.total = zeros(self.weights)

    def extend(self, new: list[Tensor]) -> None:
        """``weights`` has grown by these; where no path has begun, nothing is to be done."""
        if self.total:
            self.total = [*self.total, *zeros(new)]

    def look(self, gradients: list[Tensor], keep: bool) -> None:
        """``keep`` them by reference; if not, by value, as optimizers (SGD's nesterov) may write into ``.grad``."""
        self._gradients = gradients if keep else [g.clone() for g in gradients]
        pairs = zip(self.weights, self.total, strict=True)
        self._before = [p.detach().clone() if p.dtype is t.dtype else p.detach().to(t.dtype) for p, t in pairs]

    @torch.no_grad()
    def walk(self) -> None:
        if self._gradients:
            walk_(self.total, self._gradients, self._before, self.weights)
            self._gradients, self._before = [], []

    def state_dict(self) -> dict[str, Any]:
        return {"total": [value.clone() for value in self.total]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pairs = zip(state["total"], self.weights, strict=False)
        self.total = [value.to(p.device, state_dtype(p), copy=True) for value, p in pairs]
        self._gradients, self._before = [], []
