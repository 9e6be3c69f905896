"""MIR (Aljundi et al. 2019, Online Continual Learning with Maximal Interfered Retrieval)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from tmln.curvature.preserve_state import preserve_model
from tmln.methods import Batch, Guide, TaskContext, choose_heads
from tmln.methods.replay.memory_replay import MemoryReplay, MemorySettings


class MIRSettings(MemorySettings):
    """Settings of the memory, and of the samples among which the most interfered are found."""

    candidates: int = Field(
        50,
        ge=1,
        description="stored samples drawn a step, of which those are replayed whose loss would rise most",
        json_schema_extra={"search": [20, 50, 100]},
    )


def find_most_interfered(
    model: nn.Module, current: tuple[Tensor, Tensor], candidates: tuple[Tensor, Tensor], lr: float, count: int
) -> Tensor:
    """Return the indices of the candidates whose loss rises most if the current batch is learned.

    The rise is l(theta - lr * g) - l(theta), with g the gradient of the current batch's loss. The
    model is left as it was.

    Args:
        model: Inputs [B, ...] to logits [B, classes].
        current: Inputs and labels of the current batch.
        candidates: Inputs and labels of the stored samples to choose from.
        lr: The length of the virtual step.
        count: How many to choose.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    with preserve_model(model):
        with choose_heads(model, current[1]):
            loss = F.cross_entropy(model(current[0]), current[1])
        gradient = torch.autograd.grad(loss, parameters, allow_unused=True)
        with torch.no_grad(), choose_heads(model, candidates[1]):
            before = F.cross_entropy(model(candidates[0]), candidates[1], reduction="none")
            own = [p.clone() for p in parameters]
            for p, g in zip(parameters, gradient, strict=True):
                if g is not None:
                    p.sub_(g, alpha=lr)
            after = F.cross_entropy(model(candidates[0]), candidates[1], reduction="none")
            for p, value in zip(parameters, own, strict=True):
                p.copy_(value)
    return (after - before).topk(count).indices


class MIR(MemoryReplay[MIRSettings]):
    """Replay of the stored samples whose loss the current batch would raise most."""

    name = "mir"
    Settings = MIRSettings
    off_settings: ClassVar[Mapping[str, Any] | None] = {"batch": 0}
    changed_settings: ClassVar[Mapping[str, Any]] = {"batch": 3}
    guide = Guide(
        equation=r"\text{replay } \operatorname{top}_m \left\{ \ell_j(\theta - \eta \nabla L_{\text{batch}})"
        r" - \ell_j(\theta) \right\}, \quad j \in \text{candidates}",
        origin="Aljundi et al. 2019, Online Continual Learning with Maximal Interfered Retrieval (ER-MIR).",
        cost="Besides that of `er`, a forward and backward pass of the current batch and two forward passes of the "
        "candidates in every step.",
        use="In streams of one pass, with few replayed samples a step.",
        avoid="Where steps are expensive: about three times those of `er`, for a small gain.",
    )

    def draw(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Mapping[str, Tensor]]:
        if self._count(len(x)) == 0 or not len(self.memory):
            return x[:0], y[:0], {}
        drawn = self.memory.draw(max(self.settings.candidates, self._count(len(x))))
        return drawn["x"], drawn["y"], {}

    def select(self, batch: Batch, context: TaskContext) -> Batch:
        n, count = batch.current, self._count(batch.current)
        if len(batch.y) - n <= count:
            return batch
        current, candidates = (batch.x[:n], batch.y[:n]), (batch.x[n:], batch.y[n:])
        found = find_most_interfered(context.model, current, candidates, context.effective_lr, count)
        rows = torch.cat([torch.arange(n, device=found.device), n + found])
        return Batch(batch.x[rows], batch.y[rows], n)

    def _count(self, current: int) -> int:
        return current if self.settings.batch is None else self.settings.batch
