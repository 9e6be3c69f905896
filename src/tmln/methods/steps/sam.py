"""Sharpness-aware minimisation (Foret et al. 2021, equations 2 and 3) around any other step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from tmln.distributed.process_group import ShardValue, is_sharded, local_part, reduce_parts
from tmln.methods import Closure, Guide, TaskContext
from tmln.methods.steps.wrapping import Wrapping, WrappingSettings
from tmln.optim.state import state_dtype


class SAMSettings(WrappingSettings):
    """Settings of the gradient at theta + rho * g / ||g||, which the inner step gets at theta."""

    rho: float = Field(
        0.05,
        ge=0,
        allow_inf_nan=False,
        description="distance of the ascent step; 0 is the inner step alone",
        json_schema_extra={"search": {"low": 0.01, "high": 0.5, "log": True}},
    )


def ascent(gradients: list[Tensor], rho: float) -> list[Tensor]:
    """Return e = rho*g/||g||, with one norm over all tensors; zero where the gradient is."""
    wide = [g if (dtype := state_dtype(g)) is g.dtype else g.to(dtype) for g in gradients]
    norms = [norm.to(wide[0].device) for norm in torch._foreach_norm([local_part(g) for g in wide])]
    norm = float(torch.linalg.vector_norm(torch.stack(norms)))
    if any(map(is_sharded, wide)):
        pairs = zip(wide, torch.stack(norms).tolist(), strict=True)
        norm = math.sqrt(sum(reduce_parts([ShardValue(g, value**2) for g, value in pairs], "sum")))
    return list(torch._foreach_mul(wide, rho / norm if norm > 0 else 0.0))


class SAMStep(Wrapping[SAMSettings]):
    """The inner step with the gradient at theta + rho*g/||g||, where the loss is highest nearby.

    Both gradients include the penalty's. Path integrals (the inner step ``tmln``, the penalties
    ``si`` and ``rwalk``) use the task's gradient at theta, from the first call of the closure.
    """

    name = "sam"
    supports_fsdp = True
    Settings = SAMSettings
    off_settings: ClassVar[Mapping[str, Any] | None] = {"rho": 0.0}
    active_settings: ClassVar[Mapping[str, Any]] = {"rho": 0.05}
    changed_settings: ClassVar[Mapping[str, Any]] = {"rho": 0.5}
    guide = Guide(
        equation=r"\theta \leftarrow \text{inner step along } \nabla L\left(\theta + \rho \frac{g}{\| g \|}\right)",
        origin="Foret et al. 2021, equations 2 and 3.",
        cost="Two forward and backward passes a step.",
        use="Around any step, where a flat solution is hoped to bear later tasks better; compare at equal time.",
        avoid="Alone against forgetting: without replay it ends where naive training does.",
    )

    @property
    def modifies_gradient(self) -> bool:  # type: ignore[override]  # it depends on rho
        return self.settings.rho > 0 or self.inner.modifies_gradient

    def step(self, closure: Closure, context: TaskContext) -> None:
        self.inner.step(_Sharp(closure, self.optimizer, self.settings.rho) if self.settings.rho else closure, context)


class _Sharp:
    """A closure with the gradient at the ascent point and the loss at the current weights."""

    def __init__(self, closure: Closure, optimizer: torch.optim.Optimizer, rho: float) -> None:
        self.closure, self.optimizer, self.rho = closure, optimizer, rho

    def __call__(self) -> float:
        value = self.closure()
        moving: list[Tensor] = [
            p for group in self.optimizer.param_groups for p in group["params"] if p.grad is not None
        ]
        if not moving:
            return value
        here = [p.detach().clone() for p in moving]
        try:
            with torch.no_grad():
                torch._foreach_add_(moving, ascent([p.grad for p in moving if p.grad is not None], self.rho))
            self.closure()
        finally:
            with torch.no_grad():
                torch._foreach_copy_([local_part(p) for p in moving], [local_part(p) for p in here])
        return value
