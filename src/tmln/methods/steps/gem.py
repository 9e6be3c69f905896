"""GEM (Lopez-Paz and Ranzato 2017, Gradient Episodic Memory) around any other step."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from tmln.methods import Closure, Guide, MemoryConditions, MemoryTerm, TaskContext
from tmln.methods.replay.reservoir import Reservoir
from tmln.methods.steps.a_gem import ProjectedClosure
from tmln.methods.steps.wrapping import Wrapping, WrappingSettings
from tmln.seeds import seed_of

RIDGE = 1e-3  # added to the diagonal of the quadratic program, as by the authors


class GEMSettings(WrappingSettings):
    """Settings of the memory, and of the margin of the projection."""

    capacity: int = Field(1280, ge=1, description="samples stored, a reservoir over all tasks")
    margin: float = Field(
        0.5,
        ge=0,
        description="the least factor of each earlier task's gradient in the projected one (memory strength)",
        json_schema_extra={"search": {"low": 0.0, "high": 1.0}},
    )


def solve_dual(quadratic: NDArray[np.float64], linear: NDArray[np.float64], margin: float) -> NDArray[np.float64]:
    """Return argmin over v >= margin of v^T P v / 2 + q^T v, for positive definite P.

    With v = margin + u it is a problem of non-negative least squares, solved by the active-set
    algorithm of Lawson and Hanson (1974, chapter 23).
    """
    count = len(linear)
    offset = linear + margin * quadratic.sum(axis=1)
    u, passive = np.zeros(count), np.zeros(count, dtype=bool)
    tolerance = 1e-12 * (1.0 + np.abs(offset).max(initial=0.0))
    for _ in range(3 * count + 10):
        descent = -(quadratic @ u + offset)
        if passive.all() or descent[~passive].max() <= tolerance:
            break
        passive[np.flatnonzero(~passive)[descent[~passive].argmax()]] = True
        while True:
            free = np.flatnonzero(passive)
            target = np.zeros(count)
            target[free] = np.linalg.solve(quadratic[np.ix_(free, free)], -offset[free])
            negative = free[target[free] <= 0]
            if not len(negative):
                u = target
                break
            share = (u[negative] / (u[negative] - target[negative])).min()
            u += share * (target - u)
            passive &= u > tolerance
            u[~passive] = 0.0
    return u + margin


def project_onto_cone(gradient: list[Tensor], references: list[list[Tensor]], margin: float) -> list[Tensor]:
    """Return the gradient nearest to g whose product with every reference gradient is not negative.

    It is g + sum_k v_k r_k, where v solves the dual problem (the paper's equation 11) with
    v >= ``margin``; g itself where no product is negative.
    """
    stacked = torch.stack([torch.cat([part.flatten() for part in reference]) for reference in references]).double()
    products = (stacked @ torch.cat([part.flatten() for part in gradient]).double()).cpu().numpy()
    if (products >= 0).all():
        return gradient
    gram = (stacked @ stacked.T).cpu().numpy() + RIDGE * np.eye(len(references))
    factors = solve_dual(gram, products, margin)
    found = []
    for number, own in enumerate(gradient):
        moved = sum(float(v) * reference[number] for v, reference in zip(factors, references, strict=True))
        found.append(own + moved)
    return found


class GEMStep(Wrapping[GEMSettings]):
    """Projects the gradient so that no earlier task's loss rises; then the inner step."""

    name = "gem"
    Settings = GEMSettings
    state_names = ("memories", "inner")
    needs_boundary = True
    guide = Guide(
        equation=r"\min_{\tilde g} \tfrac{1}{2} \lVert g - \tilde g \rVert^2 \quad \text{where } \tilde g \cdot r_k"
        r" \ge 0 \text{ for every earlier task } k",
        origin="Lopez-Paz and Ranzato 2017, Gradient Episodic Memory, equations 6 to 12.",
        cost="A forward and backward pass over the whole memory in every step.",
        use="Around any step, with few tasks and a small memory.",
        avoid="With many tasks: `a-gem` has one reference gradient, and `er` keeps more for less time.",
    )

    def make_optimizer(self, model: nn.Module, lr: float, seed: int) -> torch.optim.Optimizer:
        self.memories = Reservoir(self.settings.capacity, seed_of(seed, "memories"))
        self.memory = self.memories if self.memory is None else self.memory
        return super().make_optimizer(model, lr, seed)

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        terms = super().memory_terms(settings, conditions)
        if terms is None:
            return None
        stored = [
            MemoryTerm("memories", "samples", settings.capacity),
            MemoryTerm("memories", "numbers", settings.capacity),
        ]
        return [*stored, *terms]

    @property
    def modifies_gradient(self) -> bool:  # type: ignore[override]  # it depends on what is in memory
        return bool(self.memories) or self.inner.modifies_gradient

    def step(self, closure: Closure, context: TaskContext) -> None:
        if self.memories:
            closure = ProjectedClosure(closure, context, self._stored_by_task(context), self._project)
        self.inner.step(closure, context)

    def end(self, context: TaskContext) -> None:
        for x, y in context.samples():
            self.memories.add(x, y, task=torch.full((len(y),), context.index, dtype=torch.int32))
        super().end(context)

    def _stored_by_task(self, context: TaskContext) -> list[tuple[Tensor, Tensor]]:
        x, y, tasks = next(self.memories.batches(self.settings.capacity, ("x", "y", "task")))
        return [context.prepare_batch(x[tasks == task], y[tasks == task]) for task in tasks.unique()]

    def _project(self, gradient: list[Tensor], references: list[list[Tensor]]) -> list[Tensor]:
        return project_onto_cone(gradient, references, self.settings.margin)
