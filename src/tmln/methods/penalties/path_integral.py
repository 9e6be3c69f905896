"""The path integral of the plain gradient (Zenke et al. 2017, equation 3): omega = -sum_t g*(theta(t+1) - theta(t))."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tmln.distributed.process_group import shard_like
from tmln.methods import Growth
from tmln.methods.penalties.quadratic import zeros
from tmln.optim.precision import state_dtype


def walk_(total: list[Tensor], gradients: list[Tensor], before: list[Tensor], weights: list[Tensor]) -> None:
    """Omega -= g*(theta - theta_before); uses ``before`` up."""
    torch._foreach_sub_(before, weights)
    torch._foreach_addcmul_(total, gradients, before)


STRETCH = 1024  # steps summed apart before they join the total, which a single step no longer changes when it is large


class Path:
    """How much of the loss's fall each weight is responsible for, whatever moved it.

    ``after_backward`` takes the plain gradient before the step, ``after_update`` the displacement after it, with
    momentum, decay, clipping and the penalty's own pull.
    """

    def __init__(self, weights: list[Tensor]) -> None:
        self.weights = weights
        self.banked: list[Tensor] = []  # empty until STRETCH steps have been walked
        self.recent: list[Tensor] = []  # the part of the steps since
        self.steps = 0
        self._gradients: list[Tensor] = []
        self._before: list[Tensor] = []

    @property
    def total(self) -> list[Tensor]:
        """Omega so far."""
        return list(torch._foreach_add(self.banked, self.recent)) if self.banked else self.recent

    def begin(self) -> None:
        """A new task: omega is 0."""
        self.banked, self.recent, self.steps = [], zeros(self.weights), 0

    def extend(self, new: list[Tensor]) -> None:
        """``weights`` has grown by these."""
        self.recent = [*self.recent, *zeros(new)]
        if self.banked:
            self.banked = [*self.banked, *zeros(new)]

    def grow(self, growth: Growth) -> None:
        """``weights`` has replaced some: nothing was walked in their new rows."""
        self.banked, self.recent = (growth.grow_state(sums, self.weights) for sums in (self.banked, self.recent))
        self._gradients, self._before = [], []

    def after_backward(self, gradients: list[Tensor], keep: bool) -> None:
        """``keep`` them by reference; if not, by value, as optimizers (SGD's nesterov) may write into ``.grad``."""
        self._gradients = gradients if keep else [g.clone() for g in gradients]
        pairs = zip(self.weights, self.recent, strict=True)
        self._before = [p.detach().clone() if p.dtype is t.dtype else p.detach().to(t.dtype) for p, t in pairs]

    @torch.no_grad()
    def after_update(self) -> None:
        """Omega += -g * (theta now - theta when the gradient was looked at)."""
        if not self._gradients:
            return
        walk_(self.recent, self._gradients, self._before, self.weights)
        self._gradients, self._before = [], []
        self.steps += 1
        if self.steps == STRETCH:
            self.banked, self.recent, self.steps = self.total, zeros(self.weights), 0

    def state_dict(self) -> dict[str, Any]:
        """Both sums and how many steps the recent one has, so that rounding goes on the same."""
        sums = {name: [value.clone() for value in getattr(self, name)] for name in ("banked", "recent")}
        return {**sums, "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """A step that was looked at and not yet walked is forgotten."""
        for name in ("banked", "recent"):
            pairs = zip(state[name], self.weights, strict=False)
            setattr(self, name, [shard_like(value.to(p.device, state_dtype(p), copy=True), p) for value, p in pairs])
        self.steps = state["steps"]
        self._gradients, self._before = [], []
