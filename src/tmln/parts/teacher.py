"""A frozen copy of the model that teaches it what it knew: how it is made, asked and saved."""

from __future__ import annotations

import copy

import torch.nn.functional as F
from torch import Tensor, nn


def distillation(output: Tensor, target: Tensor, temperature: float) -> Tensor:
    """KL(softmax(target/T) || softmax(output/T)), mean over samples, without the T^2 that others add.

    The cross entropy of Li and Hoiem (2017) less the entropy of the target: the same gradient, and zero where nothing
    has changed.
    """
    expected = F.log_softmax(target / temperature, dim=1)
    return F.kl_div(F.log_softmax(output / temperature, dim=1), expected, reduction="batchmean", log_target=True)


def frozen(model: nn.Module) -> nn.Module:
    """A copy in eval mode that does not learn."""
    inner: nn.Module = getattr(model, "_orig_mod", model)  # of a compiled model
    return copy.deepcopy(inner).eval().requires_grad_(False)


class Taught:
    """What a part with a teacher has: ``model``, which is copied, and ``teacher_state`` for its ``saved``."""

    model: nn.Module
    teacher: nn.Module | None = None

    @property
    def teacher_state(self) -> dict[str, Tensor]:
        """Its tensors; empty without a teacher."""
        return {} if self.teacher is None else dict(self.teacher.state_dict())

    @teacher_state.setter
    def teacher_state(self, state: dict[str, Tensor]) -> None:
        self.teacher = frozen(self.model) if state else None
        if self.teacher is not None:
            self.teacher.load_state_dict(state)
