"""A frozen copy of the model that teaches it what it knew: how it is made, asked and saved."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from tmln.distributed.process_group import is_sharded, shard_like
from tmln.methods.weight_copies import everything, said_with


def distillation(output: Tensor, target: Tensor, temperature: float) -> Tensor:
    """KL(softmax(target/T) || softmax(output/T)), mean over samples, without the T^2 that others add.

    The cross entropy of Li and Hoiem (2017) less the entropy of the target: the same gradient, and zero where nothing
    has changed.
    """
    expected = F.log_softmax(target / temperature, dim=1)
    return F.kl_div(F.log_softmax(output / temperature, dim=1), expected, reduction="batchmean", log_target=True)


def frozen(model: nn.Module) -> nn.Module:
    """A copy in eval mode that does not learn. Of a model in shards it is the weights alone, in the same shards."""
    inner: nn.Module = getattr(model, "_orig_mod", model)  # of a compiled model
    if any(map(is_sharded, inner.parameters())):
        return _Remembered(inner)
    return copy.deepcopy(inner).eval().requires_grad_(False)


class _Remembered(nn.Module):
    """What a model in shards, of which there can be no second one, said with the weights that it had."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.values = {name: t.detach().clone() for name, t in everything(model).items()}
        self.live = (model,)  # no module of this one's

    def forward(self, x: Tensor) -> Tensor:
        return said_with(self.values, self.live[0], x)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        return self.values

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        self.values = {name: shard_like(state_dict[name], own) for name, own in self.values.items()}


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
