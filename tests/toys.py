"""A part of each family as a stranger would write it: one file; named as ``tests.toys:Class``, or put in its table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from tmln.methods import (
    Answer,
    Batch,
    BuildContext,
    Closure,
    MemoryConditions,
    MemoryTerm,
    Penalty,
    Replay,
    Settings,
    Step,
    TaskContext,
    Weights,
    weight_sums,
)
from tmln.methods.replay.reservoir import Reservoir


class LastSettings(Settings):
    keep: int = Field(8, ge=0, description="samples that join the next batch", json_schema_extra={"search": [4, 8]})


class LastReplay(Replay[LastSettings]):
    """The batch before joins the next one."""

    name = "toy-replay"
    Settings = LastSettings
    state_names: ClassVar[tuple[str, ...]] = ("last",)
    off_settings: ClassVar[Mapping[str, Any] | None] = {"keep": 0}
    changed_settings: ClassVar[Mapping[str, Any]] = {"keep": 3}

    def __init__(self, settings: LastSettings, seed: int) -> None:
        super().__init__(settings, seed)
        self.last: list[Tensor] = []

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        return [MemoryTerm("last", "samples", settings.keep)]

    def draw(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Mapping[str, Tensor]]:
        return (self.last[0], self.last[1], {}) if self.last else (x[:0], y[:0], {})

    def after_step(self, x: Tensor, y: Tensor, output: Tensor, epoch: int) -> None:
        self.last = [x[: self.settings.keep].clone(), y[: self.settings.keep].clone()]


class LeashSettings(Settings):
    strength: float = Field(0.1, ge=0, description="lambda", json_schema_extra={"search": {"low": 0.01, "high": 1.0}})


class LeashPenalty(Penalty[LeashSettings]):
    """(lambda/2) * sum (theta - theta_prev)^2: every weight is held alike."""

    name = "toy-penalty"
    Settings = LeashSettings
    state_names = ("anchor",)
    weight_copy_names = ("anchor",)
    needs_boundary = True

    def __init__(self, settings: LeashSettings, model: nn.Module) -> None:
        super().__init__(settings, model)
        self.anchor: list[Tensor] = []

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        return weight_sums("anchor")

    @torch.no_grad()
    def add_gradient(self) -> None:
        for p, anchor in zip(self.parameters, self.anchor, strict=False):
            if p.grad is not None:
                p.grad = p.grad + self.settings.strength * (p - anchor)

    def end(self, context: TaskContext) -> None:
        self.anchor = [p.detach().clone() for p in self.parameters]


class SignSettings(Settings):
    share: float = Field(1.0, ge=0, le=1, description="a", json_schema_extra={"search": {"low": 0.1, "high": 1.0}})


class SignStep(Step[SignSettings]):
    """theta <- theta - eta * ((1-a)*g + a*sign(m)/10) with m <- (m + g)/2."""

    name = "toy-step"
    Settings = SignSettings
    state_names: ClassVar[tuple[str, ...]] = ("mean",)
    off_settings: ClassVar[Mapping[str, Any] | None] = {"share": 0.0}
    changed_settings: ClassVar[Mapping[str, Any]] = {"share": 0.5}

    def __init__(
        self, settings: SignSettings, model: nn.Module, lr: float, seed: int, memory: Reservoir | None = None
    ) -> None:
        super().__init__(settings, model, lr, seed, memory)
        self.optimizer = torch.optim.SGD(model.parameters(), lr)
        self.parameters: list[Tensor] = list(model.parameters())
        self.mean = [torch.zeros_like(p) for p in self.parameters]

    @property
    def state_parameters(self) -> list[Tensor]:
        return self.parameters

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        return [MemoryTerm("mean", "W")]

    def step(self, closure: Closure, context: TaskContext) -> None:
        closure()
        for p, mean in zip(context.model.parameters(), self.mean, strict=True):
            if p.grad is not None:
                mean.add_(p.grad).mul_(0.5)
                p.grad = torch.lerp(p.grad, mean.sign() / 10, self.settings.share)
        self.optimizer.step()


class StartSettings(Settings):
    share: float = Field(0.5, ge=0, le=1, description="a", json_schema_extra={"search": {"low": 0.1, "high": 1.0}})


class StartWeights(Weights[StartSettings]):
    """theta <- a*theta + (1-a)*theta_start at a task's end."""

    name = "toy-weights"
    Settings = StartSettings
    state_names = ("start",)
    weight_copy_names = ("start",)
    needs_boundary = True
    off_settings: ClassVar[Mapping[str, Any] | None] = {"share": 1.0}
    changed_settings: ClassVar[Mapping[str, Any]] = {"share": 0.9}

    def __init__(self, settings: StartSettings, context: BuildContext) -> None:
        super().__init__(settings, context)
        self.parameters: list[Tensor] = list(context.model.parameters())
        self.start: list[Tensor] = []

    @property
    def state_parameters(self) -> list[Tensor]:
        return self.parameters

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        return [MemoryTerm("start", "W")]

    def begin(self, context: TaskContext) -> None:
        self.start = [p.detach().clone() for p in self.model.parameters()]

    @torch.no_grad()
    def end(self, context: TaskContext) -> None:
        for p, start in zip(self.model.parameters(), self.start, strict=True):
            p.copy_(torch.lerp(start, p, self.settings.share))


class ShySettings(Settings):
    share: float = Field(9.0, ge=0, description="a", json_schema_extra={"search": {"low": 1.0, "high": 9.0}})


class ShyAnswer(Answer[ShySettings]):
    """The largest output, of which a is taken from the classes of the last task."""

    name = "toy-answer"
    Settings = ShySettings
    state_names: ClassVar[tuple[str, ...]] = ("last",)
    off_settings: ClassVar[Mapping[str, Any] | None] = {"share": 0.0}

    def __init__(self, settings: ShySettings, context: BuildContext) -> None:
        super().__init__(settings, context)
        self.last: list[int] = []

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        return []

    def end(self, context: TaskContext) -> None:
        self.last = list(context.classes)

    def scores(self, model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        output = model(x)
        scores = output.clone()
        scores[:, self.last] -= self.settings.share
        return output, scores


class Bystander:
    """No part at all."""


def unused(batch: Batch) -> None:
    """Nor is this."""
