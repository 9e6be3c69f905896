"""Online EWC, elastic weight consolidation (Schwarz et al. 2018, "Progress & Compress")."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from tmln.curvature.fisher import diagonal_fisher
from tmln.curvature.likelihoods import LogLikelihood, class_log_likelihood
from tmln.methods import Guide, TaskContext
from tmln.methods.penalties.quadratic import Quadratic, QuadraticSettings, divide_by_maximum, make_zeros


def weight_by_likelihood(output: Tensor, target: Tensor) -> Tensor:
    """Return sqrt(p)*log p with constant sqrt(p); its squared gradient is weighted by p(y|x)."""
    value = class_log_likelihood(output, target)
    return value * (0.5 * value.detach()).exp()


def compute_task_fisher(
    context: TaskContext, parameters: list[Tensor], log_likelihood: LogLikelihood | None = None
) -> list[Tensor]:
    """Return the exact per-sample F of the task for each of the parameters."""
    fisher = diagonal_fisher(context.model, context.rank_batches(), log_likelihood=log_likelihood)
    found = {p: fisher[name] for name, p in fisher.parameters.items()}
    values = make_zeros(parameters)
    for p, value in zip(parameters, values, strict=True):
        if p in found:
            value.copy_(found[p])
    return values


def add_decayed(old: list[Tensor], new: list[Tensor], decay: float) -> list[Tensor]:
    """Return gamma*F* + F in new tensors; without an F* yet, F."""
    return list(torch._foreach_add(new, old, alpha=decay)) if old else new


class EWCSettings(QuadraticSettings):
    """Settings of (lambda/2) * sum F* d^2, with F* <- gamma * F* + F at every boundary."""

    strength: float = Field(
        default=100.0,
        ge=0.0,
        allow_inf_nan=False,
        description="lambda in (lambda/2) * sum F* d^2",
        json_schema_extra={"search": {"low": 1.0, "high": 10000.0, "log": True}},
    )
    gamma: float = Field(
        default=1.0,
        ge=0.0,
        le=1.0,
        description="factor of the old Fisher at a task's end",
        json_schema_extra={"search": {"low": 0.9, "high": 1.0}},
    )
    normalize: bool = Field(
        default=False,
        description="divide each task's Fisher by its maximum, so that all tasks have equal weight",
        json_schema_extra={"search": [False, True]},
    )
    weighting: Literal["none", "likelihood"] = Field(
        default="none",
        description="likelihood: weight each sample's squared gradient by its p(y|x), as in Mammoth",
        json_schema_extra={"search": ["none", "likelihood"]},
    )


class EWC(Quadratic[EWCSettings]):
    """(lambda/2) * sum F*_i (theta_i - theta*_i)^2, F* <- gamma*F* + F_task at a task's end.

    F_task is the mean of squared per-sample gradients of log p(y|x) over the task's data, each
    times p(y|x) if ``weighting="likelihood"``. The gamma that the paper also writes in front of F*
    in the penalty is part of lambda here, as in Avalanche and Mammoth.
    """

    name = "ewc"
    supports_fsdp = True
    Settings = EWCSettings
    guide = Guide(
        equation=r"\frac{\lambda}{2} \sum_i F^*_i \, (\theta_i - \theta^*_i)^2, \quad F^* \leftarrow \gamma F^*"
        r" + F_{\text{task}}",
        origin="Kirkpatrick et al. 2017; online, with one anchor: Schwarz et al. 2018, Progress & Compress.",
        cost="An exact Fisher pass over the task's data at its end; steps cost what they did.",
        use="Where no sample may be stored and the same classes arrive in new domains.",
        avoid="Where new classes arrive at one head: alone it ends where naive training does on Split-Digits.",
    )

    @property
    def stiffness(self) -> float:
        return self.settings.strength

    @torch.no_grad()
    def end(self, context: TaskContext) -> None:
        self.add_unfrozen()
        weighted = self.settings.weighting == "likelihood"
        fisher = compute_task_fisher(context, self.weights, weight_by_likelihood if weighted else None)
        if self.settings.normalize:
            fisher = divide_by_maximum(fisher)
        self.consolidate(add_decayed(self.importance, fisher, self.settings.gamma))
