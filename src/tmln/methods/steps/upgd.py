"""The UPGD step in a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import nn

from tmln.methods import Guide, MemoryConditions, MemoryTerm, Settings, Step, weight_sums
from tmln.methods.replay.reservoir import Reservoir
from tmln.optim.upgd import UPGD


class UPGDSettings(Settings):
    """Of theta <- (1 - eta*decay)*theta - eta*c*q*(g + noise), q smaller for more useful weights."""

    beta_utility: float = Field(
        0.99,
        ge=0,
        lt=1,
        description="beta: what the running mean of a weight's utility keeps of itself in a step",
        json_schema_extra={"search": [0.9, 0.99, 0.999]},
    )
    sigma: float = Field(
        0.1,
        ge=0,
        description="sigma, the deviation of the noise that is added to the gradient; 0 is off",
        json_schema_extra={"search": {"low": 0.0001, "high": 1.0, "log": True}},
    )
    weight_decay: float = Field(0.0, ge=0, description="decoupled decay: theta -= eta*decay*theta")
    factor: float = Field(1.0, gt=0, description="c: 1 as in the experiments, 2 makes zero utility a plain step")
    variant: Literal["global", "local"] = Field(
        "global", description="what a utility is compared with: the largest of all, or the norm along its own row"
    )
    protecting: bool = Field(True, description="the gate also scales the gradient, not only the noise")
    correct_max: bool = Field(False, description="correct the bias of the maximum too")
    guard_negative_max: bool = Field(False, description="gate 1/2 where all utilities are negative")


class UPGDStep(Step[UPGDSettings]):
    """theta <- theta - eta*(g + noise)*(1 - utility)."""

    name = "upgd"
    supports_fsdp = True
    Settings = UPGDSettings
    state_names = ("optimizer",)
    off_settings: ClassVar[Mapping[str, Any] | None] = {"protecting": False, "sigma": 0.0}
    changed_settings: ClassVar[Mapping[str, Any]] = {"beta_utility": 0.5}
    guide = Guide(
        equation=r"\theta \leftarrow \theta - \eta \, (g + \sigma \xi) \, (1 - u), \quad u = \text{utility} \in"
        r" [0, 1]",
        origin="Elsayed and Mahmood 2024.",
        cost="A sum for every weight and noise in every step.",
        use="Where there are no boundaries and no memory, and a network has to stay able to learn for long.",
        avoid="Where new classes come to one head and old ones have to be told apart from them.",
    )

    def __init__(
        self, settings: UPGDSettings, model: nn.Module, lr: float, seed: int, memory: Reservoir | None = None
    ) -> None:
        super().__init__(settings, model, lr, seed, memory)
        self.optimizer = UPGD(model.parameters(), lr, seed=seed, **settings.model_dump())

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        return weight_sums("utility")
