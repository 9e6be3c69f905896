"""OCAR (Urettini and Carta 2025): K-FAC on current and replayed samples together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import nn

from tmln.methods import Batch, Guide, MemoryConditions, MemoryTerm, Settings, Step, TaskContext
from tmln.optim.ocar import OCAR


class OCARSettings(Settings):
    """Settings of the running K-FAC factors, damped by tau."""

    damping: float = Field(
        0.1,
        gt=0,
        description="damping tau, added to the curvature: larger means smaller steps, closer to SGD's",
        json_schema_extra={"search": {"low": 0.0001, "high": 10.0, "log": True}},
    )
    ema: float = Field(
        0.14,
        gt=0,
        le=1,
        description="share of the new factors in their running mean",
        json_schema_extra={"search": {"low": 0.01, "high": 1.0, "log": True}},
    )
    update_every: int = Field(10, ge=1, description="steps between factor updates")
    fisher: Literal["mc", "exact", "empirical"] = Field(
        "mc", description="labels for the Fisher: drawn from the model, all classes, or the given ones"
    )
    damping_increment: float = Field(0.0, ge=0, description="added to tau at every step")
    damping_init: Literal["lr"] | None = Field(None, description="'lr': tau starts at the learning rate")
    replay_weight: Literal["one", "class_ratio"] = Field(
        "one", description="weight of replayed samples in the Fisher: one, or known classes over new ones"
    )
    momentum: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="momentum mu of the natural gradient, reset at task boundaries; 0 is off",
        json_schema_extra={"later": True, "search": {"low": 0.0, "high": 0.99}},
    )


class OCARStep(Step[OCARSettings]):
    """theta <- theta - eta * (K-FAC + tau)^-1 g."""

    name = "ocar"
    Settings = OCARSettings
    state_names = ("optimizer",)
    off_settings: ClassVar[Mapping[str, Any] | None] = None  # no setting makes it plain descent
    changed_settings: ClassVar[Mapping[str, Any]] = {"damping": 0.01}
    optimizer: OCAR
    guide = Guide(
        equation=r"\theta \leftarrow \theta - \eta \, (G + \sqrt{\tau}/\pi)^{-1} \, g \, (A + \pi "
        r"\sqrt{\tau})^{-1}",
        origin="Urettini and Carta 2025, Online Curvature-Aware Replay.",
        cost="A fifth to a half more time a step (docs/speed.md), and Kronecker factors of every layer.",
        use="With replay, where few passes over the data have to do and layers are of moderate width.",
        avoid="For wide layers, whose factors are dear; for layers without factors, as grouped convolutions.",
    )

    def make_optimizer(self, model: nn.Module, lr: float, seed: int) -> OCAR:
        options = self.settings.model_dump(exclude={"replay_weight"})
        return OCAR(model, lr, seed=seed, **options)

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        held = settings.momentum and conditions.trains
        found = [MemoryTerm("kfac.factors", "K"), MemoryTerm("kfac.inverses", "K", derived=True)]
        return [*found, MemoryTerm("momentum_buffer", "W")] if held else found

    def begin(self, context: TaskContext) -> None:
        if context.index:
            self.optimizer.state.clear()  # the momentum

    @property
    def effective_lr(self) -> float:
        return super().effective_lr / self.optimizer.damping

    @classmethod
    def lr_factor(cls, settings: Any) -> float:
        return super().lr_factor(settings) / float(settings.damping)

    def before_forward(self, batch: Batch, context: TaskContext) -> None:
        weight: float | str = 1.0
        if self.settings.replay_weight == "class_ratio" and context.known and context.classes:
            weight = len(context.known) / len(context.classes)
        mine = batch.rank_share(context.ranks)
        self.optimizer.observe(mine.x, mine.y, replay=len(mine.y) - mine.current, replay_weight=weight)
