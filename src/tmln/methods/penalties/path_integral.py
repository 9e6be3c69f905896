"""The path integral omega = -sum_t g*(theta(t+1) - theta(t)) (Zenke et al. 2017, equation 3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tmln.distributed.process_group import shard_like
from tmln.methods import Growth
from tmln.methods.penalties.quadratic import make_zeros
from tmln.optim.state import state_dtype


def accumulate_path_(total: list[Tensor], gradients: list[Tensor], before: list[Tensor], weights: list[Tensor]) -> None:
    """Compute omega -= g*(theta - theta_before); overwrites ``before``."""
    torch._foreach_sub_(before, weights)
    torch._foreach_addcmul_(total, gradients, before)


FLUSH_EVERY = 1024  # steps summed separately: a large total would round single steps away


class Path:
    """The decrease of the loss that each weight accounts for.

    ``after_backward`` takes the task's gradient before the step, ``after_update`` the displacement
    after it, with momentum, decay, clipping and the penalty's pull.
    """

    def __init__(self, weights: list[Tensor]) -> None:
        self.weights = weights
        self.banked: list[Tensor] = []  # empty during the first FLUSH_EVERY steps
        self.recent: list[Tensor] = []  # the sum of the steps since
        self.steps = 0
        self._gradients: list[Tensor] = []
        self._before: list[Tensor] = []

    @property
    def total(self) -> list[Tensor]:
        """The path integral omega so far."""
        return list(torch._foreach_add(self.banked, self.recent)) if self.banked else self.recent

    def begin(self) -> None:
        """Reset omega to 0."""
        self.banked, self.recent, self.steps = [], make_zeros(self.weights), 0

    def extend(self, new: list[Tensor]) -> None:
        """Add zeros for new weights."""
        self.recent = [*self.recent, *make_zeros(new)]
        if self.banked:
            self.banked = [*self.banked, *make_zeros(new)]

    def grow(self, growth: Growth) -> None:
        """Follow replaced weights, with zeros in new rows."""
        self.banked, self.recent = (growth.grow_state(sums, self.weights) for sums in (self.banked, self.recent))
        self._gradients, self._before = [], []

    def after_backward(self, gradients: list[Tensor], keep: bool) -> None:
        """Store the gradients, with ``keep`` by reference; steps may change ``.grad``."""
        self._gradients = gradients if keep else [g.clone() for g in gradients]
        pairs = zip(self.weights, self.recent, strict=True)
        self._before = [p.detach().clone() if p.dtype is t.dtype else p.detach().to(t.dtype) for p, t in pairs]

    @torch.no_grad()
    def after_update(self) -> None:
        """Add -g * (theta now - theta at the gradient) to omega."""
        if not self._gradients:
            return
        accumulate_path_(self.recent, self._gradients, self._before, self.weights)
        self._gradients, self._before = [], []
        self.steps += 1
        if self.steps == FLUSH_EVERY:
            self.banked, self.recent, self.steps = self.total, make_zeros(self.weights), 0

    def state_dict(self) -> dict[str, Any]:
        """Return both sums and the number of steps in the recent one."""
        sums = {name: [value.clone() for value in getattr(self, name)] for name in ("banked", "recent")}
        return {**sums, "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load both sums; a step in progress is dropped."""
        for name in ("banked", "recent"):
            pairs = zip(state[name], self.weights, strict=False)
            setattr(self, name, [shard_like(value.to(p.device, state_dtype(p), copy=True), p) for value, p in pairs])
        self.steps = state["steps"]
        self._gradients, self._before = [], []
