"""MoFO (Chen et al. 2025): Adam that updates only the weights with the largest momentum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field
from torch import nn

from tmln.methods import Guide, MemoryConditions, MemoryTerm, Step, TaskContext, weight_sums
from tmln.methods.steps.adamw import AdamSettings
from tmln.optim.mofo import MoFO


class MoFOSettings(AdamSettings):
    """Settings of Adam's update of the share alpha of each tensor with the largest momentum."""

    fraction: float = Field(
        0.15,
        gt=0,
        le=1,
        description="alpha: the share of each tensor that is updated; 1 is AdamW",
        json_schema_extra={"search": [0.05, 0.1, 0.15, 0.2, 0.5]},
    )
    weight_decay: float = Field(
        0.0, ge=0, description="decoupled weight decay, of all weights unless decay_norms is false"
    )
    decay_norms: bool = Field(
        True,
        description="decay the weights of norms, too; the authors' code does not",
        json_schema_extra={"later": True},
    )


class MoFOStep(Step[MoFOSettings]):
    """theta <- theta - eta * Adam's direction, where |m| is among the largest of its tensor."""

    name = "mofo"
    supports_fsdp = True
    Settings = MoFOSettings
    state_names = ("optimizer",)
    off_settings: ClassVar[Mapping[str, Any] | None] = None  # at fraction 1 it is AdamW, not plain descent
    changed_settings: ClassVar[Mapping[str, Any]] = {"fraction": 0.5}
    fixed_memory_terms = (*weight_sums("exp_avg", "exp_avg_sq"), MemoryTerm("step", "counts"))
    guide = Guide(
        equation=r"\theta_i \leftarrow \theta_i - \eta \, \frac{m_i}{\sqrt{v_i} + \epsilon} \quad \text{where }"
        r" |m_i| \text{ is among the largest of its tensor}",
        origin="Chen et al. 2025.",
        cost="Two sums for every weight, and a ranking within each tensor in every step.",
        use="For one fine-tuning that shall leave a model near where it began, without any data of before.",
        avoid="For many tasks one after another: it knows nothing of them.",
    )

    def make_optimizer(self, model: nn.Module, lr: float, seed: int) -> MoFO:
        options = self.settings.model_dump(include={"eps", "weight_decay", "fraction"})
        groups: list[Any] = list(model.parameters())
        if not self.settings.decay_norms:
            norms = {p for m in model.modules() if "Norm" in type(m).__name__ for p in m.parameters(recurse=False)}
            rest = [p for p in groups if p not in norms]
            groups = [{"params": rest}, {"params": [p for p in groups if p in norms], "weight_decay": 0.0}]
        return MoFO(groups, lr, (self.settings.beta1, self.settings.beta2), **options)

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        return super().memory_terms(settings, conditions) if conditions.trains or not settings.reset else []

    def begin(self, context: TaskContext) -> None:
        if self.settings.reset and context.index:
            self.optimizer.state.clear()
