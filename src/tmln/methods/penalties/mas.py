"""Memory aware synapses (Aljundi et al. 2018): importance is the output's sensitivity."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from pydantic import Field
from torch import Tensor, nn

from tmln.curvature.fisher import mean_gradient_magnitudes
from tmln.curvature.square_sums import ABSOLUTE_VALUE
from tmln.methods import Guide, TaskContext
from tmln.methods.penalties.quadratic import Quadratic, QuadraticSettings, make_zeros


def compute_squared_norm(output: Tensor, target: object = None) -> Tensor:
    """Return ||f||^2 of each sample's open outputs (closed ones are -inf); targets play no part."""
    return output.masked_fill(output == -torch.inf, 0.0).square().flatten(1).sum(1)


def compute_output_sensitivity(
    model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], parameters: list[Tensor]
) -> list[Tensor]:
    """Return Omega = mean_n |d ||f(x_n)||^2 / d theta|, from per-sample gradients in eval mode.

    The pass is that of the diagonal Fisher, with absolute values instead of squares. Labels play
    no part; the model is left unchanged.
    """
    found = mean_gradient_magnitudes(
        model, batches, set(parameters), compute_squared_norm, ABSOLUTE_VALUE, "output sensitivity"
    )
    values = make_zeros(parameters)  # in the memory layout of the parameters
    for p, value in zip(parameters, values, strict=True):
        value.copy_(found.means[p])
    return values


class MASSettings(QuadraticSettings):
    """Settings of lambda * sum Omega d^2, with Omega the mean size of the gradient of ||f||^2."""

    strength: float = Field(
        default=1.0,
        ge=0.0,
        allow_inf_nan=False,
        description="lambda in lambda * sum Omega d^2",
        json_schema_extra={"search": {"low": 0.01, "high": 10.0, "log": True}},
    )


class MAS(Quadratic[MASSettings]):
    """lambda * sum Omega_i (theta_i - theta*_i)^2, with Omega added up over the tasks' ends."""

    name = "mas"
    supports_fsdp = True
    Settings = MASSettings
    guide = Guide(
        equation=r"\lambda \sum_i \Omega_i \, (\theta_i - \theta^*_i)^2, \quad \Omega = \sum_{\text{tasks}} "
        r"\mathrm{mean}_x \left| \frac{\partial \| f(x) \|^2}{\partial \theta_i} \right|",
        origin="Aljundi et al. 2018.",
        cost="A pass per sample at the task's end, without labels.",
        use="Where no sample may be stored, and where labels are missing: of the penalties alone it kept "
        "most on Split-Digits.",
        avoid="Where samples may be stored: replay keeps more.",
    )

    @torch.no_grad()
    def end(self, context: TaskContext) -> None:
        self.add_unfrozen()
        importance = compute_output_sensitivity(context.model, context.rank_batches(), self.weights)
        if self.importance:
            torch._foreach_add_(importance, self.importance)
        self.consolidate(importance)
