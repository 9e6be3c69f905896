"""Learning without forgetting (Li and Hoiem 2017), on one head: answer as before, as far as known."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from tmln.parts import Batch, Beside, Lesson, Penalty, Settings, Term


def distillation(output: Tensor, target: Tensor, temperature: float) -> Tensor:
    """KL(softmax(target/T) || softmax(output/T)), mean over samples, without the T^2 that others add.

    The paper's cross entropy less the entropy of the target: the same gradient, and zero where nothing has changed.
    """
    expected = F.log_softmax(target / temperature, dim=1)
    return F.kl_div(F.log_softmax(output / temperature, dim=1), expected, reduction="batchmean", log_target=True)


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


class LwF(Penalty[LwFSettings]):
    """lambda_o * KL between what the model said at the task's beginning and says now, of the classes known then.

    The teacher is a frozen copy in eval mode. It is asked about the whole batch as it is, replayed samples included;
    the softmax is over ``lesson.known`` only, so that new classes cost nothing.
    """

    name = "lwf"
    Settings = LwFSettings
    saved = ("known", "teacher_state")
    needs_boundary = True

    def __init__(self, settings: LwFSettings, model: nn.Module) -> None:
        super().__init__(settings, model)
        self.model = model
        self.known: list[int] = []
        self.teacher: nn.Module | None = None

    @classmethod
    def holds(cls, settings: Any, beside: Beside) -> list[Term] | None:
        return [Term("teacher", "model")]

    def begin(self, lesson: Lesson) -> None:
        self.known = list(lesson.known)
        self.teacher = _frozen(lesson.model) if self.known and self.settings.strength > 0 else None

    def loss(self, model: nn.Module, batch: Batch, output: Tensor) -> Tensor | None:
        if self.teacher is None:
            return None
        with torch.no_grad():
            target = self.teacher(batch.x)
        known = self.known
        return self.settings.strength * distillation(output[:, known], target[:, known], self.settings.temperature)

    @property
    def teacher_state(self) -> dict[str, Tensor]:
        """Its tensors; empty without a teacher."""
        return {} if self.teacher is None else dict(self.teacher.state_dict())

    @teacher_state.setter
    def teacher_state(self, state: dict[str, Tensor]) -> None:
        self.teacher = _frozen(self.model) if state else None
        if self.teacher is not None:
            self.teacher.load_state_dict(state)


def _frozen(model: nn.Module) -> nn.Module:
    inner: nn.Module = getattr(model, "_orig_mod", model)  # of a compiled model
    return copy.deepcopy(inner).eval().requires_grad_(False)
