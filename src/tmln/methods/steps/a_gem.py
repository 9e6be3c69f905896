"""A-GEM (Chaudhry et al. 2019, Efficient Lifelong Learning, equation 11) around any other step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from tmln.curvature.preserve_state import preserve_model
from tmln.distributed.process_group import SINGLE, ShardValue, is_sharded, local_part, reduce_parts
from tmln.methods import Closure, Guide, MemoryConditions, MemoryTerm, TaskContext, choose_heads
from tmln.methods.replay.reservoir import Reservoir
from tmln.methods.steps.wrapping import Wrapping, WrappingSettings
from tmln.seeds import seed_of


class AGEMSettings(WrappingSettings):
    """Settings of g - (g . r / r . r) r where g . r < 0, with r the gradient on stored samples."""

    capacity: int = Field(500, ge=1, description="samples stored for the reference gradient")
    batch: int = Field(
        128,
        ge=0,
        description="stored samples drawn a step; 0 is the inner step alone",
        json_schema_extra={"search": [32, 64, 128, 256]},
    )


def project(gradient: list[Tensor], reference: list[Tensor]) -> list[Tensor]:
    """Return g - (g.r / r.r) r where g.r < 0, which does not raise the memory's loss; else g."""
    pairs = list(zip(gradient, reference, strict=True))
    dots = [ShardValue(r, float((local_part(g) * local_part(r)).sum())) for g, r in pairs]
    norms = [ShardValue(r, float(local_part(r).square().sum())) for _, r in pairs]
    found = reduce_parts([*dots, *norms], "sum")
    dot, norm = sum(found[: len(pairs)]), sum(found[len(pairs) :])
    if dot >= 0 or norm == 0:
        return gradient
    return [g - (dot / norm) * r for g, r in zip(gradient, reference, strict=True)]


class AGEMStep(Wrapping[AGEMSettings]):
    """Removes the gradient's component against the memory's gradient; then the inner step."""

    name = "a-gem"
    supports_fsdp = True
    Settings = AGEMSettings
    state_names = ("checks", "inner")
    needs_boundary = True
    hash_includes_inner = False  # runs without inner settings keep their old names
    off_settings: ClassVar[Mapping[str, Any] | None] = {"batch": 0}
    changed_settings: ClassVar[Mapping[str, Any]] = {"batch": 3}
    guide = Guide(
        equation=r"g \leftarrow g - \frac{g \cdot r}{r \cdot r} \, r \quad \text{where } g \cdot r < 0, \quad r"
        r" = \text{the memory's gradient}",
        origin="Chaudhry et al. 2019, Efficient Lifelong Learning, equation 11.",
        cost="A second forward and backward pass over samples of its memory in every step.",
        use="Around any step, where new samples have to be learned first and old ones only not hurt.",
        avoid="Where the same passes could replay the memory in the batch: `er` kept more on Split-Digits "
        "for less time.",
    )

    def make_optimizer(self, model: nn.Module, lr: float, seed: int) -> torch.optim.Optimizer:
        self.checks = Reservoir(self.settings.capacity, seed_of(seed, "checks"))
        self.memory = self.checks if self.memory is None else self.memory
        return super().make_optimizer(model, lr, seed)

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        terms = super().memory_terms(settings, conditions)
        return None if terms is None else [MemoryTerm("checks", "samples", settings.capacity), *terms]

    @property
    def modifies_gradient(self) -> bool:  # type: ignore[override]  # it depends on what is in memory
        return bool(self.settings.batch and self.checks) or self.inner.modifies_gradient

    def step(self, closure: Closure, context: TaskContext) -> None:
        if self.settings.batch and self.checks:
            # drawn once, however often the inner step calls
            drawn = context.prepare_batch(*self.checks.sample(self.settings.batch))
            closure = ProjectedClosure(closure, context, [drawn], lambda g, references: project(g, references[0]))
        self.inner.step(closure, context)

    def end(self, context: TaskContext) -> None:
        for x, y in context.samples():
            self.checks.add(x, y)
        super().end(context)


class ProjectedClosure:
    """A closure whose gradient is projected, given the gradients of groups of stored samples."""

    def __init__(
        self,
        closure: Closure,
        context: TaskContext,
        groups: Sequence[tuple[Tensor, Tensor]],
        project: Callable[[list[Tensor], list[list[Tensor]]], list[Tensor]],
    ) -> None:
        self.closure, self.model, self.groups, self.project = closure, context.model, groups, project
        self.ranks = context.ranks

    def __call__(self) -> float:
        value = self.closure()
        moving = [p for p in self.model.parameters() if p.grad is not None]
        gradient = [p.grad for p in moving if p.grad is not None]
        references = [self._reference(x, y, moving) for x, y in self.groups]
        for p, g in zip(moving, self.project(gradient, references), strict=True):
            p.grad = g
        return value

    def _reference(self, x: Tensor, y: Tensor, moving: list[nn.Parameter]) -> list[Tensor]:
        """Return the gradient of the samples' loss; each rank computes its samples' share."""
        ranks = self.ranks if len(y) >= self.ranks.size else SINGLE  # too few to split: each rank takes all
        rows, total = ranks.rows(len(y)), len(y)
        x, y = x[rows], y[rows]
        with preserve_model(self.model), choose_heads(self.model, y):  # keeps batch statistics
            loss = nn.functional.cross_entropy(self.model(x), y) * (len(y) / total)
            sharded = any(map(is_sharded, moving))
            if sharded:  # its backward pass shards .grad and takes the mean over all ranks
                (loss * ranks.size).backward()
                found: Sequence[Tensor | None] = [p.grad for p in moving]
            else:
                found = torch.autograd.grad(loss, moving, allow_unused=True)
        reference = [torch.zeros_like(p) if r is None else r for p, r in zip(moving, found, strict=True)]
        if not sharded:
            ranks.sum_tensors_(reference)
        return reference
