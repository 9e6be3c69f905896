"""ER-ACE (Caccia et al. 2022): experience replay with asymmetric cross entropy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from tmln.methods import Batch, Guide, TaskContext
from tmln.methods.replay.memory_replay import MemoryReplay, MemorySettings


class ERACESettings(MemorySettings):
    """Settings of the memory, and of the competitors of the current classes."""

    fill: Literal["end", "online", "every-epoch"] = Field(
        "online",
        description="step by step, so that replayed new classes compete with old ones; with a memory filled at task "
        "ends only, new tasks would not be learned",
    )
    asymmetric: bool = Field(True, description="current samples compete with some classes only")
    competitors: Literal["batch", "unseen"] = Field(
        "batch",
        description="classes that compete for current samples: those of their batch, as in the paper, or also "
        "those of no earlier task, as in public code",
    )


def cross_entropy_among_present(output: Tensor, y: Tensor) -> Tensor:
    """Return the cross entropy over the classes in y."""
    absent = torch.ones(output.shape[1], dtype=torch.bool, device=output.device)
    absent[y] = False
    return F.cross_entropy(output.masked_fill(absent, float("-inf")), y)


def cross_entropy_among_unmet(output: Tensor, y: Tensor, known: Sequence[int]) -> Tensor:
    """Return the cross entropy over the classes in y and those not known before."""
    closed = torch.zeros(output.shape[1], dtype=torch.bool, device=output.device)
    closed[list(known)] = True
    closed[y] = False
    return F.cross_entropy(output.masked_fill(closed, float("-inf")), y)


class ERACE(MemoryReplay[ERACESettings]):
    """Current samples among their own classes + replayed samples among all classes.

    Their own classes are those of the batch, as in the paper's equation. With
    ``competitors="unseen"`` classes of no earlier task compete as well, so that the first task has
    the plain loss.
    """

    name = "er-ace"
    supports_fsdp = True
    Settings = ERACESettings
    off_settings: ClassVar[Mapping[str, Any] | None] = {"batch": 0, "asymmetric": False}
    changed_settings: ClassVar[Mapping[str, Any]] = {"asymmetric": False}
    state_names = (*MemoryReplay.state_names, "known")
    guide = Guide(
        equation=r"\mathcal{L} = \mathrm{CE}_{C(\text{batch})}(f(x), y) + \mathrm{CE}_{\text{all}}(f(x'), y')",
        origin="Caccia et al. 2022, New Insights on Reducing Abrupt Representation Change.",
        cost="As `er`.",
        use="Where new classes in every task suppress the old ones at its beginning; in streams of one pass.",
        avoid="Where the classes stay the same and only the domain changes.",
    )

    def __init__(self, settings: ERACESettings, seed: int) -> None:
        super().__init__(settings, seed)
        self.known: list[int] = []  # classes of earlier tasks

    def begin(self, context: TaskContext) -> None:
        super().begin(context)
        self.known = list(context.known)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        output, n = self._forward(model, batch), batch.current
        scored = self._adjust_logits(output, batch.y, n)
        loss = self._current(scored[:n], batch.y[:n])
        if len(batch.y) > n:
            loss = loss + F.cross_entropy(scored[n:], batch.y[n:])
        return loss, output

    def _current(self, output: Tensor, y: Tensor) -> Tensor:
        if not self.settings.asymmetric:
            return F.cross_entropy(output, y)
        return (
            cross_entropy_among_present(output, y)
            if self.settings.competitors == "batch"
            else cross_entropy_among_unmet(output, y, self.known)
        )
