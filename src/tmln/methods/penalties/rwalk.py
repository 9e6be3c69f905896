"""Riemannian walk (Chaudhry et al. 2018): EWC++ and a path integral divided by a KL distance."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from tmln.distributed.process_group import local_part
from tmln.methods import Guide, TaskContext
from tmln.methods.penalties.ewc_pp import update_average_
from tmln.methods.penalties.path_integral import Path
from tmln.methods.penalties.quadratic import (
    Quadratic,
    QuadraticSettings,
    copy_weights,
    divide_by_maximum,
    make_zeros,
    pad_with_zeros,
)


def score_interval(
    path: list[Tensor],
    displacement: list[Tensor],
    fisher: list[Tensor],
    eps: float,
    half: bool = True,
    relu: bool = True,
) -> list[Tensor]:
    """Return relu(dL) / (F*d^2/2 + eps), elementwise.

    The authors' code has no 1/2, Avalanche no relu here.
    """
    distance = torch._foreach_mul(displacement, displacement)
    torch._foreach_mul_(distance, fisher)
    if half:
        torch._foreach_mul_(distance, 0.5)
    torch._foreach_add_(distance, eps)
    return list(torch._foreach_div(torch._foreach_clamp_min(path, 0.0) if relu else path, distance))


def merge_scores(old: list[Tensor], new: list[Tensor], merge: Literal["mean", "halved"]) -> list[Tensor]:
    """Return (S + s)/2.

    For weights without an S (at the end of ``new``), s or, if ``"halved"``, s/2.
    """
    known, first = len(old), new[len(old) :]
    merged = list(torch._foreach_mul(torch._foreach_add(old, new[:known]), 0.5)) if old else []
    return [*merged, *(first if merge == "mean" else [value * 0.5 for value in first])]


class RWalkSettings(QuadraticSettings):
    """Settings of lambda * sum (F + S) d^2."""

    strength: float = Field(
        default=10.0,
        ge=0.0,
        allow_inf_nan=False,
        description="lambda in lambda * sum (F + S) d^2; with normalize stable below 1 / (2 * learning rate)",
        json_schema_extra={"search": {"low": 0.1, "high": 1000.0, "log": True}},
    )
    alpha: float = Field(
        default=0.8,
        gt=0.0,
        le=1.0,
        description="weight of the new value in the Fisher's running average",
        json_schema_extra={"search": {"low": 0.1, "high": 1.0}},
    )
    interval: int = Field(
        default=50,
        ge=1,
        description="Delta t, steps between two scores",
        json_schema_extra={"search": {"low": 10, "high": 200, "log": True}},
    )
    eps: float = Field(
        default=1e-3,
        gt=0.0,
        allow_inf_nan=False,
        description="added to the distance that divides a score",
        json_schema_extra={"search": {"low": 1e-08, "high": 0.1, "log": True}},
    )
    half_distance: bool = Field(
        default=True,
        description="F d^2/2 as the distance, the KL divergence; false for F d^2 as in the authors' code",
        json_schema_extra={"search": [True, False]},
    )
    merge: Literal["mean", "halved"] = Field(
        default="mean",
        description="S <- (S + s)/2, with the first task's s in full, or halved like every other",
        json_schema_extra={"search": ["mean", "halved"]},
    )
    normalize: bool = Field(
        default=True,
        description="divide F and S each by its maximum over all parameters",
        json_schema_extra={"search": [True, False]},
    )
    init: Literal["zero", "first"] = Field(
        default="zero",
        description="the Fisher's running average starts at zero, or at its first value as in Avalanche",
        json_schema_extra={"search": ["zero", "first"]},
    )
    count: Literal["task", "run"] = Field(
        default="task",
        description="intervals begin with each task and its last one may be shorter; run: every Delta t steps of the "
        "whole run, and what is left at a task's end is dropped, as in Avalanche",
        json_schema_extra={"search": ["task", "run"]},
    )
    relu: Literal["interval", "normalisation"] = Field(
        default="interval",
        description="where negative scores become zero: each interval's, or S at the task's end as in Avalanche",
        json_schema_extra={"search": ["interval", "normalisation"]},
    )


class RWalk(Quadratic[RWalkSettings]):
    """lambda * sum (F_i + S_i) (theta_i - theta*_i)^2.

    F is EWC++'s running Fisher, S the mean of the tasks' scores. A task's score s sums, over
    intervals of Delta t steps, relu(dL) / (F*d^2/2 + eps): the decrease of the loss that the weight
    accounts for, divided by the distance d that it moved, with the current F. ``init="first",
    count="run", relu="normalisation"`` with alpha=0.9, strength=0.1, interval=10 and the machine's
    eps is Avalanche's reading.
    """

    name = "rwalk"
    supports_fsdp = True
    Settings = RWalkSettings
    state_names = (*Quadratic.state_names, "fisher", "path", "origin", "score", "scores", "steps")
    weight_copy_names = (*Quadratic.weight_copy_names, "origin")
    weight_sum_names = (*Quadratic.weight_sum_names, "fisher", "path.recent", "origin", "score", "scores")
    guide = Guide(
        equation=r"\lambda \sum_i (F_i + S_i) (\theta_i - \theta^*_i)^2, \quad s = \sum_{\Delta t} "
        r"\frac{\mathrm{relu}(\Delta L)}{F d^2 / 2 + \epsilon}",
        origin="Chaudhry et al. 2018, Riemannian Walk.",
        cost="Sums over the weights in every step, a few percent of its time.",
        use="With replay, where weights that mattered during training must be held, not only those that "
        "matter at its end.",
        avoid="Where its strength cannot be tuned: it depends on the network and the learning rate.",
    )

    def __init__(self, settings: RWalkSettings, model: nn.Module) -> None:
        super().__init__(settings, model)
        self.fisher: list[Tensor] = []  # F
        self.path = Path(self.weights)  # dL of the interval
        self.origin: list[Tensor] = []  # where the interval began
        self.score: list[Tensor] = []  # s, of this task
        self.scores: list[Tensor] = []  # S, of the tasks before
        self.steps = 0  # since the last interval's end

    def begin(self, context: TaskContext) -> None:
        super().begin(context)
        self.path.begin()
        self.origin, self.score = copy_weights(self.weights), make_zeros(self.weights)
        if self.settings.count == "task":
            self.steps = 0

    def extend(self, new: list[Tensor]) -> None:
        super().extend(new)
        self.path.extend(new)
        if self.score:  # within a task
            self.origin = [*self.origin, *copy_weights(new)]
            self.score = [*self.score, *make_zeros(new)]

    @torch.no_grad()
    def after_backward(self) -> None:
        gradients = self.read_gradients()
        update_average_(self.fisher, gradients, self.settings.alpha, self.settings.init)
        self.path.after_backward(gradients, keep=self.pulls)

    @torch.no_grad()
    def after_step(self) -> None:
        super().after_step()
        self.path.after_update()
        self.steps += 1
        if self.steps == self.settings.interval:
            self._close_interval()

    @torch.no_grad()
    def end(self, context: TaskContext) -> None:
        if self.settings.count == "task" and self.steps:
            self._close_interval()
        self.scores = merge_scores(self.scores, self.score, self.settings.merge)
        self.score, self.origin = [], []
        scores = self.scores
        if self.settings.relu == "normalisation":
            scores = list(torch._foreach_clamp_min(scores, 0.0))
        terms = (pad_with_zeros(self.fisher, self.weights), scores)
        fisher, scores = map(divide_by_maximum, terms) if self.settings.normalize else terms
        self.consolidate(list(torch._foreach_add(fisher, scores)))

    def _close_interval(self) -> None:
        settings, displacement = self.settings, list(torch._foreach_sub(self.weights, self.origin))
        fisher = pad_with_zeros(self.fisher, self.weights)
        scores = score_interval(
            self.path.total, displacement, fisher, settings.eps, settings.half_distance, settings.relu == "interval"
        )
        torch._foreach_add_(self.score, scores)
        self.path.begin()
        torch._foreach_copy_([local_part(value) for value in self.origin], [local_part(p) for p in self.weights])
        self.steps = 0
