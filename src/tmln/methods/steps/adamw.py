"""AdamW (Loshchilov and Hutter 2019, Algorithm 2), torch's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import nn

from tmln.methods import Guide, MemoryConditions, MemoryTerm, Settings, Step, TaskContext


class AdamSettings(Settings):
    """Settings of m <- beta1*m + (1-beta1)*g and v <- beta2*v + (1-beta2)*g^2, bias-corrected."""

    beta1: float = Field(0.9, ge=0, lt=1, description="decay rate of m, the mean of gradients")
    beta2: float = Field(
        0.999,
        ge=0,
        lt=1,
        description="decay rate of v, the mean of squared gradients",
        json_schema_extra={"search": [0.95, 0.99, 0.999]},
    )
    eps: float = Field(1e-8, gt=0, description="epsilon, added to the square root of v")
    weight_decay: float = Field(
        0.01,
        ge=0,
        description="decoupled decay: theta -= eta*decay*theta",
        json_schema_extra={"search": {"low": 0.0001, "high": 0.1, "log": True}},
    )
    reset: bool = Field(True, description="reset both means at task boundaries")


class AdamWStep(Step[AdamSettings]):
    """theta <- (1 - eta*decay)*theta - eta * m / (sqrt(v) + eps)."""

    name = "adamw"
    supports_fsdp = True
    Settings = AdamSettings
    state_names = ("optimizer",)
    off_settings: ClassVar[Mapping[str, Any] | None] = None  # no setting makes it plain descent
    changed_settings: ClassVar[Mapping[str, Any]] = {"beta1": 0.5}
    fixed_memory_terms = (MemoryTerm("exp_avg", "W"), MemoryTerm("exp_avg_sq", "W"), MemoryTerm("step", "counts"))
    guide = Guide(
        equation=r"\theta \leftarrow (1 - \eta \, \text{decay}) \, \theta - \eta \, \frac{m}{\sqrt{v} + \epsilon}",
        origin="Loshchilov and Hutter 2019, Algorithm 2, as torch has it.",
        cost="Two sums for every weight.",
        use="For fine-tuning of transformers, at a rate of 0.001 or less.",
        avoid="At SGD's rates, 0.01 and more: every weight moves by about the rate.",
    )

    def make_optimizer(self, model: nn.Module, lr: float, seed: int) -> torch.optim.AdamW:
        options = self.settings.model_dump(include={"eps", "weight_decay"})
        return torch.optim.AdamW(
            model.parameters(), lr, betas=(self.settings.beta1, self.settings.beta2), foreach=True, **options
        )

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        return super().memory_terms(settings, conditions) if conditions.trains or not settings.reset else []

    def begin(self, context: TaskContext) -> None:
        if self.settings.reset and context.index:
            self.optimizer.state.clear()
