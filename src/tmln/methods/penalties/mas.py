"""Memory aware synapses (Aljundi et al. 2018): importance is how much a weight moves the output."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from pydantic import Field
from torch import Tensor, nn

from tmln.curvature.fisher import gradient_sizes
from tmln.curvature.reductions import ABSOLUTE
from tmln.methods import Guide, TaskContext
from tmln.methods.penalties.quadratic import Quadratic, QuadraticSettings, zeros


def squared_norm(output: Tensor, target: object = None) -> Tensor:
    """||f||^2 of each sample's open outputs, whatever its target: a closed class answers -inf, whatever the weights."""
    return output.masked_fill(output == -torch.inf, 0.0).square().flatten(1).sum(1)


def output_sensitivity(
    model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], parameters: list[Tensor]
) -> list[Tensor]:
    """Omega = mean_n |d ||f(x_n)||^2 / d theta|: the absolute value of each sample's own gradient, in eval mode.

    The squared norm is of the whole output vector, the logits of every class but those that are closed (-inf). Labels
    play no part. The pass is the Fisher diagonal's, with absolute values in place of squares; the model comes back as
    it was.
    """
    found = gradient_sizes(model, batches, set(parameters), squared_norm, ABSOLUTE, "output sensitivity")
    values = zeros(parameters)  # in the memory layout of the parameters
    for p, value in zip(parameters, values, strict=True):
        value.copy_(found.means[p])
    return values


class MASSettings(QuadraticSettings):
    """Of lambda * sum Omega d^2, with Omega the mean size of the gradient of ||f(x)||^2."""

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
        self.join()
        importance = output_sensitivity(context.model, context.rank_batches(), self.weights)
        if self.importance:
            torch._foreach_add_(importance, self.importance)
        self.consolidate(importance)
