"""Learning without forgetting (Li and Hoiem 2017), on one head."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from tmln.methods import Batch, Guide, MemoryTerm, Penalty, Settings, TaskContext
from tmln.methods.weight_copies import TeacherMixin, distillation, freeze


class LwFSettings(Settings):
    """Settings of lambda_o * KL(softmax(teacher/T) || softmax(model/T))."""

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
        description="T: above 1 small probabilities weigh more",
        json_schema_extra={"search": {"low": 1.0, "high": 4.0}},
    )


class LwF(TeacherMixin, Penalty[LwFSettings]):
    """lambda_o * KL between the outputs at the task's beginning and now, of the old classes.

    The teacher is a frozen copy in eval mode. The loss is over the whole batch, replayed samples
    included; the softmax is over ``context.known`` only.
    """

    name = "lwf"
    supports_fsdp = True
    Settings = LwFSettings
    state_names = ("known", "teacher_state")
    needs_boundary = True
    fixed_memory_terms = (MemoryTerm("teacher", "model"),)
    guide = Guide(
        equation=r"\lambda_o \, \mathrm{KL}(\text{teacher}_{\text{known}}(x) / T \,\|\, f_{\text{known}}(x) / T)",
        origin="Li and Hoiem 2017.",
        cost="A frozen copy of the model, and its pass over every batch.",
        use="Where no sample may be stored and new data resemble the old, so that the teacher's outputs "
        "are informative.",
        avoid="Where new data differ from all before; in streams without boundaries.",
    )

    @classmethod
    def refuse_task_heads(cls, settings: Any) -> str:
        return "compares outputs of classes of other tasks"

    def __init__(self, settings: LwFSettings, model: nn.Module) -> None:
        super().__init__(settings, model)
        self.model = model
        self.known: list[int] = []

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
