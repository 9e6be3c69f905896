"""Replay with a teacher: iCaRL's loss (Rebuffi et al. 2017) or WA's (Zhao et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from tmln.methods import Batch, BuildContext, Guide, MemoryConditions, MemoryTerm, TaskContext
from tmln.methods.replay.memory_replay import M, MemoryReplay, MemorySettings
from tmln.methods.weight_copies import TeacherMixin, distillation, freeze

if TYPE_CHECKING:
    from typing_extensions import Self


class DistillSettings(MemorySettings):
    """Settings of replay whose known classes are taught by the model before the task."""

    loss: Literal["sigmoid", "softmax"] = Field(
        "sigmoid",
        description="binary cross entropy per output, with the teacher's targets for known classes (iCaRL); or "
        "(1 - lambda) * cross entropy + lambda * distillation (WA)",
    )
    share: float | None = Field(
        None,
        ge=0,
        le=1,
        description="lambda of the softmax loss; the share of known classes unless given",
    )
    temperature: float = Field(
        2.0,
        gt=0,
        allow_inf_nan=False,
        description="T of the softmax loss: above 1 small probabilities weigh more",
        json_schema_extra={"search": {"low": 1.0, "high": 4.0}},
    )


def compute_sigmoid_loss(
    output: Tensor, y: Tensor, taught: Tensor | None, known: Sequence[int], task: Sequence[int]
) -> Tensor:
    """Return binary cross entropy, summed over the classes met, mean over samples.

    Targets are the teacher's sigmoid for known classes, and one-hot labels for the task's classes.
    """
    target = F.one_hot(y, output.shape[1]).to(output.dtype)
    if taught is not None:
        target[:, list(known)] = taught[:, list(known)].sigmoid()
    met = sorted({*known, *task, *y.tolist()})
    return F.binary_cross_entropy_with_logits(output[:, met], target[:, met], reduction="sum") / len(y)


class TaughtReplay(TeacherMixin, MemoryReplay[M]):
    """Replay with a frozen copy of the model before the task, taken at its beginning."""

    needs_boundary = True

    def __init__(self, settings: M, seed: int) -> None:
        super().__init__(settings, seed)
        self.needs_boundary = True  # where the teacher is taken
        self.known: list[int] = []

    @classmethod
    def make(cls, settings: Any, context: BuildContext) -> Self:
        made = cls(settings, context.seed)
        made.model = context.model
        return made

    @classmethod
    def refuse_task_heads(cls, settings: Any) -> str:
        return "compares outputs of classes of other tasks"

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        return [MemoryTerm("memory", "samples", settings.capacity), MemoryTerm("teacher", "model")]


class Distill(TaughtReplay[DistillSettings]):
    """A frozen copy of the model before the task teaches current and replayed samples."""

    name = "distill"
    supports_fsdp = True
    Settings = DistillSettings
    state_names: ClassVar[tuple[str, ...]] = (*MemoryReplay.state_names, "known", "task", "weight", "teacher_state")
    off_settings: ClassVar[Mapping[str, Any] | None] = {"loss": "softmax", "batch": 0, "share": 0.0}
    active_settings: ClassVar[Mapping[str, Any]] = {"loss": "softmax", "share": 0.1}
    changed_settings: ClassVar[Mapping[str, Any]] = {"share": 0.9}
    guide: ClassVar[Guide] = Guide(
        equation=r"\mathcal{L} = \sum_{c \in \text{old}} \mathrm{BCE}(f_c(x), \sigma(\text{teacher}_c(x))) + "
        r"\sum_{c \in \text{new}} \mathrm{BCE}(f_c(x), [y = c])",
        origin="iCaRL: Rebuffi et al. 2017, algorithm 3.",
        cost="As `er`, a frozen copy of the model, and its pass over every batch.",
        use="Where the old classes are many beside the new ones, and with the answer `ncm` or the weights `aligned`,"
        " as in its papers.",
        avoid="In streams without task boundaries, at which the teacher is copied.",
    )

    @classmethod
    def guide_for(cls, settings: Any) -> Guide | None:
        if settings.loss == "sigmoid":
            return cls.guide
        taught = (
            r"\mathcal{L} = (1-\lambda) \, \mathrm{CE}(f(x), y) + \lambda \, "
            r"\mathrm{KL}(\text{teacher}_{\text{old}}(x) / T \,\|\, f_{\text{old}}(x) / T), \quad \lambda = "
            r"\frac{\text{old}}{\text{old} + \text{new}}"
        )
        return replace(cls.guide, equation=taught, origin="WA: Zhao et al. 2020.")

    def __init__(self, settings: DistillSettings, seed: int) -> None:
        super().__init__(settings, seed)
        self.task: list[int] = []
        self.weight = 0.0  # lambda
        if settings.balance and settings.loss == "sigmoid":
            raise ValueError(
                f"replay.balance = {settings.balance:g} adjusts a softmax, and replay.loss = 'sigmoid' has none: "
                "set replay.balance=0 or replay.loss=softmax"
            )

    def begin(self, context: TaskContext) -> None:
        super().begin(context)
        self.known, self.task, self.weight = list(context.known), list(context.classes), 0.0
        if self.known:
            share = self.settings.share
            self.weight = len(self.known) / (len(self.known) + len(self.task)) if share is None else share
        used = self.known and (self.settings.loss == "sigmoid" or self.weight > 0)
        self.teacher = freeze(context.model) if used else None

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        output = self._forward(model, batch)
        taught = None
        if self.teacher is not None:
            with torch.no_grad():
                taught = self.teacher(batch.x)
        if self.settings.loss == "sigmoid":
            return compute_sigmoid_loss(output, batch.y, taught, self.known, self.task), output
        loss = F.cross_entropy(self._adjust_logits(output, batch.y, batch.current), batch.y)
        if taught is not None:
            kept = distillation(output[:, self.known], taught[:, self.known], self.settings.temperature)
            loss = (1 - self.weight) * loss + self.weight * kept
        return loss, output
