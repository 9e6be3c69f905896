"""Synaptic intelligence (Zenke et al. 2017, equations 3 to 5): importance is the path integral per distance moved."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from tmln.methods import Guide, TaskContext
from tmln.methods.penalties.path_integral import Path
from tmln.methods.penalties.quadratic import Quadratic, QuadraticSettings, copies


def consolidated_path(path: list[Tensor], displacement: list[Tensor], damping: float) -> list[Tensor]:
    """relu(omega) / (Delta^2 + xi), elementwise."""
    distance = torch._foreach_mul(displacement, displacement)
    torch._foreach_add_(distance, damping)
    return list(torch._foreach_div(torch._foreach_clamp_min(path, 0.0), distance))


class SISettings(QuadraticSettings):
    """Of c * sum Omega d^2, with Omega += relu(omega) / (Delta^2 + xi) at every boundary."""

    strength: float = Field(
        default=1.0,
        ge=0.0,
        allow_inf_nan=False,
        description="c in c * sum Omega d^2",
        json_schema_extra={"search": {"low": 0.01, "high": 10.0, "log": True}},
    )
    damping: float = Field(
        default=1e-3,
        gt=0.0,
        allow_inf_nan=False,
        description="xi, added to the squared distance that a weight moved in the task",
        json_schema_extra={"search": {"low": 0.001, "high": 1.0, "log": True}},
    )


class SI(Quadratic[SISettings]):
    """c * sum Omega_i (theta_i - theta*_i)^2, with Omega the sum over tasks of relu(omega) / (Delta^2 + xi).

    omega < 0 (a weight that was carried uphill) counts as no importance: the paper does not say, and a negative
    Omega would push the weight away from its anchor.
    """

    name = "si"
    supports_fsdp = True
    Settings = SISettings
    state_names = (*Quadratic.state_names, "path")
    weight_sum_names = (*Quadratic.weight_sum_names, "path.recent")
    guide = Guide(
        equation=r"c \sum_i \Omega_i \, (\theta_i - \theta^*_i)^2, \quad \Omega = \sum_{\text{tasks}} "
        r"\frac{\mathrm{relu}(\omega)}{\Delta^2 + \xi}",
        origin="Zenke et al. 2017, equations 3 to 5.",
        cost="Sums over the weights in every step; no pass at the task's end.",
        use="As `ewc`, where a pass over the data at a task's end is not to be had.",
        avoid="Under one head that new classes come to.",
    )

    def __init__(self, settings: SISettings, model: nn.Module) -> None:
        super().__init__(settings, model)
        self.path = Path(self.weights)

    def begin(self, context: TaskContext) -> None:
        super().begin(context)
        self.path.begin()
        self.anchor = self.anchor or copies(self.weights)  # Delta is measured from it; it pulls once there is an Omega

    def extend(self, new: list[Tensor]) -> None:
        super().extend(new)
        self.path.extend(new)

    @torch.no_grad()
    def after_backward(self) -> None:
        self.path.after_backward(self.gradients(), keep=self.pulls)

    @torch.no_grad()
    def after_step(self) -> None:
        super().after_step()
        self.path.after_update()

    @torch.no_grad()
    def end(self, context: TaskContext) -> None:
        displacement = list(torch._foreach_sub(self.weights, self.anchor))
        importance = consolidated_path(self.path.total, displacement, self.settings.damping)
        if self.importance:
            torch._foreach_add_(importance, self.importance)
        self.consolidate(importance)
