"""Stochastic gradient descent, torch's own, with optional momentum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import Field
from torch import nn
from torch.optim import SGD

from tmln.methods import Guide, MemoryConditions, MemoryTerm, Settings, Step, TaskContext


class SGDSettings(Settings):
    """Settings of theta -= eta * v, with v = mu * v + g + decay * theta."""

    momentum: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="momentum mu; 0 is off",
        json_schema_extra={"search": {"low": 0.0, "high": 0.99}},
    )
    weight_decay: float = Field(0.0, ge=0, description="L2 decay, added to the gradient")
    reset: bool = Field(True, description="reset the momentum at task boundaries")


class SGDStep(Step[SGDSettings]):
    """theta <- theta - eta*v with v <- mu*v + g."""

    name = "sgd"
    supports_fsdp = True
    Settings = SGDSettings
    state_names = ("optimizer",)
    off_settings: ClassVar[Mapping[str, Any] | None] = {}
    changed_settings: ClassVar[Mapping[str, Any]] = {"momentum": 0.5}
    guide: ClassVar[Guide] = Guide(
        equation=r"\theta \leftarrow \theta - \eta v, \quad v \leftarrow \mu v + g",
        origin="",
        cost="Nothing; with momentum, a sum for every weight.",
        use="Under replay, and as the baseline of other steps at the same effective learning rate.",
        avoid="Alone: it forgets.",
    )

    def make_optimizer(self, model: nn.Module, lr: float, seed: int) -> SGD:
        options = self.settings.model_dump(include={"momentum", "weight_decay"})
        return SGD(model.parameters(), lr, foreach=True, **options)

    @classmethod
    def guide_for(cls, settings: Any) -> Guide | None:
        if settings.momentum:
            return replace(cls.guide, cost="A sum for every weight, its momentum.")
        return replace(cls.guide, equation=r"\theta \leftarrow \theta - \eta g", cost="Nothing.")

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        held = settings.momentum and (conditions.trains or not settings.reset)
        return [MemoryTerm("momentum_buffer", "W")] if held else []

    def begin(self, context: TaskContext) -> None:
        if self.settings.reset and context.index:
            self.optimizer.state.clear()
