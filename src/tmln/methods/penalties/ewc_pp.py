"""EWC++ (Chaudhry et al. 2018, "Riemannian Walk"): EWC with a running Fisher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from tmln.methods import Guide, TaskContext
from tmln.methods.penalties.ewc import compute_task_fisher
from tmln.methods.penalties.quadratic import Quadratic, QuadraticSettings, divide_by_maximum, make_zeros, pad_with_zeros


def average_squares_(fisher: list[Tensor], gradients: list[Tensor], alpha: float) -> None:
    """Compute F <- alpha*g^2 + (1-alpha)*F in place."""
    torch._foreach_mul_(fisher, 1.0 - alpha)
    torch._foreach_addcmul_(fisher, gradients, gradients, value=alpha)


def update_average_(
    fisher: list[Tensor], gradients: list[Tensor], alpha: float, init: Literal["zero", "first"]
) -> None:
    """Update the average in place; new weights at the end start with g^2 or alpha*g^2."""
    known = len(fisher)
    if known:
        average_squares_(fisher, gradients[:known], alpha)
    if new := gradients[known:]:
        fisher += make_zeros(new)
        average_squares_(fisher[known:], new, 1.0 if init == "first" else alpha)


class EWCPlusPlusSettings(QuadraticSettings):
    """Settings of a penalty with the running Fisher F <- alpha*g^2 + (1-alpha)*F."""

    strength: float = Field(
        default=10000.0,
        ge=0.0,
        allow_inf_nan=False,
        description="lambda, the penalty's factor; 10000 suits a Fisher that is not normalised",
        json_schema_extra={"search": {"low": 10.0, "high": 100000.0, "log": True}},
    )
    alpha: float = Field(
        default=0.9,
        gt=0.0,
        le=1.0,
        description="weight of the new value in the Fisher's running average",
        json_schema_extra={"search": {"low": 0.1, "high": 1.0}},
    )
    fisher_source: Literal["online", "dataset"] = Field(
        default="online",
        description="squared batch gradients of every step, or the per-sample Fisher of the task's data at its end",
        json_schema_extra={"search": ["online", "dataset"]},
    )
    init: Literal["zero", "first"] = Field(
        default="zero",
        description="the running average starts at zero or at its first value",
        json_schema_extra={"search": ["zero", "first"]},
    )
    normalize: bool = Field(
        default=False,
        description="divide the Fisher by its maximum over all parameters",
        json_schema_extra={"search": [False, True]},
    )
    half: bool = Field(
        default=True,
        description="(lambda/2) * sum F d^2 rather than lambda * sum F d^2",
        json_schema_extra={"search": [True, False]},
    )


class EWCPlusPlus(Quadratic[EWCPlusPlusSettings]):
    """(lambda/2) * sum F_i (theta_i - theta*_i)^2, F and theta* of the last task's end.

    F is updated in all tasks, from the plain gradient of the batch mean; the penalty uses a copy.
    ``fisher_source="dataset"`` takes one step of the same average at each task's end instead, from
    the per-sample F.
    """

    name = "ewc++"
    supports_fsdp = True
    Settings = EWCPlusPlusSettings
    state_names = (*Quadratic.state_names, "fisher")
    weight_sum_names = (*Quadratic.weight_sum_names, "fisher")
    active_settings: ClassVar[Mapping[str, Any]] = {"strength": 10.0}
    guide = Guide(
        equation=r"\frac{\lambda}{2} \sum_i F_i \, (\theta_i - \theta^*_i)^2, \quad F \leftarrow \alpha \, \bar"
        r" g^2 + (1-\alpha) \, F",
        origin="Chaudhry et al. 2018, Riemannian Walk.",
        cost="Sums over the weights in every step, a few percent of its time.",
        use="Where no sample may be stored and there is no time for a Fisher pass.",
        avoid="Where new classes arrive at one head: it protects weights, not predictions. Its F is of batch "
        "means, smaller than per sample.",
    )

    def __init__(self, settings: EWCPlusPlusSettings, model: nn.Module) -> None:
        super().__init__(settings, model)
        self.fisher: list[Tensor] = []  # empty until the first value

    @property
    def stiffness(self) -> float:
        return self.settings.strength if self.settings.half else 2.0 * self.settings.strength

    @torch.no_grad()
    def after_backward(self) -> None:
        if self.settings.fisher_source == "online":
            update_average_(self.fisher, self.read_gradients(), self.settings.alpha, self.settings.init)

    @torch.no_grad()
    def end(self, context: TaskContext) -> None:
        self.add_unfrozen()
        if self.settings.fisher_source == "dataset":
            self._average(compute_task_fisher(context, self.weights))
        fisher = pad_with_zeros(self.fisher, self.weights)
        self.consolidate(divide_by_maximum(fisher) if self.settings.normalize else [value.clone() for value in fisher])

    def _average(self, new: list[Tensor]) -> None:
        known, alpha = len(self.fisher), self.settings.alpha
        first = 1.0 if self.settings.init == "first" else alpha
        weights = [alpha] * known + [first] * (len(new) - known)
        pairs = zip(pad_with_zeros(self.fisher, new), new, weights, strict=True)
        self.fisher = [torch.lerp(old, value, weight) for old, value, weight in pairs]
