"""UPGD (Elsayed and Mahmood 2024): utility-based perturbed gradient descent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import nn

from tmln.methods import Guide, Settings, Step, weight_sums
from tmln.optim.upgd import UPGD


class UPGDSettings(Settings):
    """Settings of theta <- (1 - eta*decay)*theta - eta*c*q*(g + noise), q the gate of utility."""

    beta_utility: float = Field(
        0.99,
        ge=0,
        lt=1,
        description="beta: decay rate of the running mean of a weight's utility",
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
        "global", description="utilities are divided by the largest of all, or by the norm of their own row"
    )
    protecting: bool = Field(True, description="the gate also scales the gradient, not only the noise")
    correct_max: bool = Field(False, description="also correct the bias of the maximum")
    guard_negative_max: bool = Field(False, description="set the gate to 1/2 where all utilities are negative")


class UPGDStep(Step[UPGDSettings]):
    """theta <- theta - eta*(g + noise)*(1 - utility)."""

    name = "upgd"
    supports_fsdp = True
    Settings = UPGDSettings
    state_names = ("optimizer",)
    off_settings: ClassVar[Mapping[str, Any] | None] = {"protecting": False, "sigma": 0.0}
    changed_settings: ClassVar[Mapping[str, Any]] = {"beta_utility": 0.5}
    fixed_memory_terms = weight_sums("utility")
    guide = Guide(
        equation=r"\theta \leftarrow \theta - \eta \, (g + \sigma \xi) \, (1 - u), \quad u = \text{utility} \in"
        r" [0, 1]",
        origin="Elsayed and Mahmood 2024.",
        cost="A sum for every weight and noise in every step.",
        use="Where there are no boundaries and no memory, and a network has to stay able to learn for long.",
        avoid="Where new classes come to one head with the old ones (class-incremental).",
    )

    def make_optimizer(self, model: nn.Module, lr: float, seed: int) -> UPGD:
        return UPGD(model.parameters(), lr, seed=seed, **self.settings.model_dump())
