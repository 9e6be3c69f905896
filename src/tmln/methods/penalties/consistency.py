"""CLS-ER's consistency loss with two averaged teachers (Arani et al. 2022)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from tmln.methods import (
    Batch,
    BuildContext,
    Guide,
    MemoryConditions,
    MemoryTerm,
    Penalty,
    Settings,
    TaskContext,
    weight_sums,
)
from tmln.methods.weight_copies import copy_tensors, lerp_, output_with, trained_tensors


class ConsistencySettings(Settings):
    """Settings of lambda * MSE(f(x), z), z the logits of the better of two averaged models."""

    strength: float = Field(
        0.1,
        ge=0,
        allow_inf_nan=False,
        description="lambda, the factor of the consistency loss",
        json_schema_extra={"search": {"low": 0.01, "high": 1.0, "log": True}},
    )
    plastic_chance: float = Field(
        0.9,
        gt=0,
        le=1,
        description="probability that a step updates the fast average",
        json_schema_extra={"search": [0.5, 0.7, 0.9, 1.0]},
    )
    stable_chance: float = Field(
        0.7,
        gt=0,
        le=1,
        description="probability that a step updates the slow average",
        json_schema_extra={"search": [0.3, 0.5, 0.7, 0.9]},
    )
    plastic_decay: float = Field(
        0.999,
        ge=0,
        lt=1,
        description="largest decay rate of the fast average",
        json_schema_extra={"search": [0.9, 0.97, 0.99, 0.999]},
    )
    stable_decay: float = Field(
        0.999,
        ge=0,
        lt=1,
        description="largest decay rate of the slow average",
        json_schema_extra={"search": [0.9, 0.97, 0.99, 0.999]},
    )


def compute_decay(step: int, decay: float) -> float:
    """Return the decay rate min(1 - 1/(t+1), alpha), under which the start is forgotten.

    >>> [round(compute_decay(t, 0.7), 3) for t in (1, 2, 3, 9)]
    [0.5, 0.667, 0.7, 0.7]
    """
    return min(1 - 1 / (step + 1), decay)


def choose_better(plastic: Tensor, stable: Tensor, y: Tensor) -> Tensor:
    """Return each sample's logits with the larger label probability; plastic ones if equal."""
    rows = torch.arange(len(y), device=y.device)
    better = stable.softmax(1)[rows, y] > plastic.softmax(1)[rows, y]
    return torch.where(better[:, None], stable, plastic)


def compute_consistency(output: Tensor, target: Tensor) -> Tensor:
    """Return the mean squared difference of the logits of open classes."""
    both = (output != float("-inf")) & (target != float("-inf"))
    return F.mse_loss(output, target) if bool(both.all()) else F.mse_loss(output[both], target[both])


class Consistency(Penalty[ConsistencySettings]):
    """lambda * MSE to the logits of the better of two averaged models, over replayed samples.

    After a step, with its own probability, an average becomes alpha * average + (1 - alpha) *
    weights, alpha = min(1 - 1/(t+1), decay); running statistics are averaged as well, and the
    averages are evaluated in eval mode. Without a memory the loss is over all samples from the
    second task on. With the weights ``stable`` the slow average predicts.
    """

    name = "consistency"
    supports_fsdp = True
    Settings = ConsistencySettings
    state_names: ClassVar[tuple[str, ...]] = ("plastic", "stable", "steps", "later", "chance")
    changed_settings: ClassVar[Mapping[str, Any]] = {"strength": 3.0}
    guide = Guide(
        equation=r"\lambda \, \mathrm{MSE}(f(x'), z), \quad z = \text{the logits of the average that is surer "
        r"of } y'",
        origin="Arani et al. 2022, Learning Fast, Learning Slow (CLS-ER).",
        cost="Two copies of the model, and their passes over what is replayed.",
        use="With `er` and the weights `stable`, as the method `cls-er` has it, also without task boundaries.",
        avoid="Where its two decays do not suit the number of steps of a task: an average that lags behind "
        "teaches old mistakes.",
    )

    def __init__(self, settings: ConsistencySettings, model: nn.Module, seed: int = 0, replayed: bool = True) -> None:
        super().__init__(settings, model)
        self.model, self.replayed = model, replayed
        self.plastic, self.stable = copy_tensors(trained_tensors(model)), copy_tensors(trained_tensors(model))
        self.steps = 0  # t
        self.later = False  # the task is not the first one
        self.chance = torch.Generator().manual_seed(seed)

    @classmethod
    def make(cls, settings: Any, context: BuildContext) -> Consistency:
        return cls(
            settings, context.model, context.seed, getattr(context.components["replay"], "memory", None) is not None
        )

    @classmethod
    def refuse_task_heads(cls, settings: Any) -> str:
        return "compares outputs of classes of other tasks"

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        found = weight_sums("plastic", "stable")
        return [*found, *(MemoryTerm(name, "statistics") for name in ("plastic", "stable"))]

    @property
    def named_tensors(self) -> Mapping[str, Tensor]:
        return trained_tensors(self.model)

    def begin(self, context: TaskContext) -> None:
        self.later = context.index > 0

    def loss(self, model: nn.Module, batch: Batch, output: Tensor) -> Tensor | None:
        first = batch.current if self.replayed else 0
        if not self.settings.strength or len(batch.y) == first or not (self.replayed or self.later):
            return None
        x, y = batch.x[first:], batch.y[first:]
        target = choose_better(output_with(self.plastic, self.model, x), output_with(self.stable, self.model, x), y)
        return self.settings.strength * compute_consistency(output[first:], target)

    def after_step(self) -> None:
        self.steps += 1
        drawn = torch.rand(2, generator=self.chance).tolist()
        s, values = self.settings, trained_tensors(self.model)
        if drawn[0] < s.plastic_chance:
            self._take(self.plastic, values, s.plastic_decay)
        if drawn[1] < s.stable_chance:
            self._take(self.stable, values, s.stable_decay)

    def _take(self, average: dict[str, Tensor], values: dict[str, Tensor], decay: float) -> None:
        lerp_(average, values, 1 - compute_decay(self.steps, decay))
