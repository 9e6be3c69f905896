"""Synaptic intelligence (Zenke et al. 2017, equations 3 to 5)."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from tmln.methods import Guide, TaskContext
from tmln.methods.penalties.path_integral import Path
from tmln.methods.penalties.quadratic import Quadratic, QuadraticSettings, copy_weights


def divide_by_distance(path: list[Tensor], displacement: list[Tensor], damping: float) -> list[Tensor]:
    """Return relu(omega) / (Delta^2 + xi), elementwise."""
    distance = torch._foreach_mul(displacement, displacement)
    torch._foreach_add_(distance, damping)
    return list(torch._foreach_div(torch._foreach_clamp_min(path, 0.0), distance))


class SISettings(QuadraticSettings):
    """Settings of c * sum Omega d^2, Omega += relu(omega) / (Delta^2 + xi) at boundaries."""

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
    """c * sum Omega_i (theta_i - theta*_i)^2, Omega = sum_tasks relu(omega) / (Delta^2 + xi).

    A negative omega counts as no importance, which the paper leaves open: a negative Omega would
    push the weight away from its anchor.
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
        use="As `ewc`, where a pass over the data at a task's end is not possible.",
        avoid="Where new classes arrive at one head.",
    )

    def __init__(self, settings: SISettings, model: nn.Module) -> None:
        super().__init__(settings, model)
        self.path = Path(self.weights)

    def begin(self, context: TaskContext) -> None:
        super().begin(context)
        self.path.begin()
        self.anchor = self.anchor or copy_weights(self.weights)  # Delta starts here

    def extend(self, new: list[Tensor]) -> None:
        super().extend(new)
        self.path.extend(new)

    @torch.no_grad()
    def after_backward(self) -> None:
        self.path.after_backward(self.read_gradients(), keep=self.pulls)

    @torch.no_grad()
    def after_step(self) -> None:
        super().after_step()
        self.path.after_update()

    @torch.no_grad()
    def end(self, context: TaskContext) -> None:
        displacement = list(torch._foreach_sub(self.weights, self.anchor))
        importance = divide_by_distance(self.path.total, displacement, self.settings.damping)
        if self.importance:
            torch._foreach_add_(importance, self.importance)
        self.consolidate(importance)
