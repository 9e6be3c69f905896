"""FOPNG (Garg et al. 2026): natural gradient steps, Fisher-orthogonal to earlier tasks' outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import nn

from tmln.curvature import diagonal_fisher
from tmln.methods import Closure, Guide, MemoryConditions, MemoryTerm, Settings, Step, TaskContext, weight_sums
from tmln.methods.replay.reservoir import Reservoir
from tmln.optim.fopng import FOPNG, output_gradients


class FOPNGSettings(Settings):
    """Settings of the update of length eta that keeps stored outputs of earlier tasks."""

    damping: float = Field(
        0.001,
        gt=0,
        description="lambda, added to the task's F",
        json_schema_extra={"search": {"low": 1e-05, "high": 0.1, "log": True}},
    )
    directions: int = Field(20, ge=1, description="samples of each task whose output gradients are kept")
    most: int = Field(200, ge=1, description="gradients kept in all, evenly over the tasks")
    of: Literal["mean", "label"] = Field(
        "mean", description="whose gradients are kept: the mean output's, or that of the label"
    )
    projection: Literal["orthogonal", "public"] = Field(
        "orthogonal", description="exact, or as in the public code of the authors"
    )
    first: Literal["adam", "sgd"] = Field("adam", description="how the first task is learned")
    fisher_refresh_every: int = Field(
        0, ge=0, description="steps between updates of the task's F; 0: at its beginning only"
    )


class FOPNGStep(Step[FOPNGSettings]):
    """The natural gradient, Fisher-orthogonal to earlier tasks' output gradients, length eta."""

    name = "fopng"
    Settings = FOPNGSettings
    state_names = ("optimizer", "steps", "generator")
    needs_boundary = True
    off_settings: ClassVar[Mapping[str, Any] | None] = None  # no setting makes it plain descent
    changed_settings: ClassVar[Mapping[str, Any]] = {"damping": 1.0}
    optimizer: FOPNG
    guide = Guide(
        equation=r"v = -\eta \, \frac{(F_{\text{new}} + \lambda)^{-1} (g - F_{\text{old}} G A^{-1} G^\top "
        r"F_{\text{old}} (F_{\text{new}} + \lambda)^{-1} g)}{\text{its length}}, \quad G^\top "
        r"F_{\text{old}} v = 0",
        origin="Garg et al. 2026, arXiv 2601.12816, as far as its abstract and the public code tell.",
        cost="Every stored gradient takes as much memory as the weights: 20 of each task, 200 at most.",
        use="Where no sample may be stored, networks are small and directions have to be kept rather than weights.",
        avoid="For large networks; where samples may be stored, since replay keeps more.",
    )

    def make_optimizer(self, model: nn.Module, lr: float, seed: int) -> FOPNG:
        self.generator, self.steps = torch.Generator().manual_seed(seed), 0
        options = self.settings.model_dump(include={"damping", "most", "projection", "first"})
        return FOPNG(model.named_parameters(), lr, **options)

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        """Return the memory in the second task; each later one adds directions, up to ``most``."""
        kept = min(settings.directions, settings.most)
        terms = [MemoryTerm("directions", "N", kept), *weight_sums("fisher_old", "fisher_new")]
        return [*terms, MemoryTerm("solve", "doubles", kept**2, derived=True)]

    def begin(self, context: TaskContext) -> None:
        if self.optimizer.counts:
            self._measure(context)

    def _measure(self, context: TaskContext) -> None:
        self.optimizer.begin(diagonal_fisher(context.model, context.rank_batches(), progress=False))

    def step(self, closure: Closure, context: TaskContext) -> None:
        self.optimizer.step(closure)
        self.steps += 1
        every = self.settings.fisher_refresh_every
        if every and self.steps % every == 0 and self.optimizer.counts:
            self._measure(context)

    def end(self, context: TaskContext) -> None:
        seed = int(torch.randint(2**31, (), generator=self.generator))
        drawn = Reservoir(self.settings.directions, seed)
        for x, y in context.samples():
            drawn.add(x, y)
        ((x, y),) = drawn.batches(self.settings.directions, ("x", "y"))
        found = output_gradients(context.model, *context.prepare_batch(x, y), self.settings.of)
        self.optimizer.consolidate(diagonal_fisher(context.model, context.rank_batches(), progress=False), found)
