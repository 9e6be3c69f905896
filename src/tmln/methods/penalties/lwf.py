"""Learning without forgetting (Li and Hoiem 2017), on one head: answer as before, as far as known."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from tmln.methods import Batch, Guide, MemoryConditions, MemoryTerm, Penalty, Settings, TaskContext
from tmln.methods.weight_copies import TeacherMixin, distillation, freeze


class LwFSettings(Settings):
    """Of lambda_o * KL(softmax(teacher/T) || softmax(model/T))."""

    strength: float = Field(
        default=1.0,
        ge=0.0,
        allow_inf_nan=False,
        description="lambda_o, the factor of the distillation loss",
        json_schema_extra={"search": {"low": 0.1, "high": 10.0, "log": True}},
    )
    temperature: float = Field(
        default=2.0,
        gt=0.0,
        allow_inf_nan=False,
        description="T: above 1 the small probabilities count for more",
        json_schema_extra={"search": {"low": 1.0, "high": 4.0}},
    )


class LwF(TeacherMixin, Penalty[LwFSettings]):
    """lambda_o * KL between what the model said at the task's beginning and says now, of the classes known then.

    The teacher is a frozen copy in eval mode. It is asked about the whole batch as it is, replayed samples included;
    the softmax is over ``lesson.known`` only, so that new classes cost nothing.
    """

    name = "lwf"
    supports_fsdp = True
    Settings = LwFSettings
    state_names = ("known", "teacher_state")
    needs_boundary = True
    guide = Guide(
        equation=r"\lambda_o \, \mathrm{KL}(\text{teacher}_{\text{known}}(x) / T \,\|\, f_{\text{known}}(x) / T)",
        origin="Li and Hoiem 2017.",
        cost="A frozen copy of the model, and its pass over every batch.",
        use="Where no sample may be stored and new data look like the old, so that the old model has "
        "something to say of them.",
        avoid="Where new data look like nothing before; in streams without boundaries.",
    )

    def __init__(self, settings: LwFSettings, model: nn.Module) -> None:
        super().__init__(settings, model)
        self.model = model
        self.known: list[int] = []

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        return [MemoryTerm("teacher", "model")]

    def begin(self, context: TaskContext) -> None:
        self.known = list(context.known)
        self.teacher = freeze(context.model) if self.known and self.settings.strength > 0 else None

    def loss(self, model: nn.Module, batch: Batch, output: Tensor) -> Tensor | None:
        if self.teacher is None:
            return None
        with torch.no_grad():
            target = self.teacher(batch.x)
        known = self.known
        return self.settings.strength * distillation(output[:, known], target[:, known], self.settings.temperature)
