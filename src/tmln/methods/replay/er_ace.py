"""ER-ACE (Caccia et al. 2022, New Insights on Reducing Abrupt Representation Change): asymmetric cross entropy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from tmln.methods import Batch, Guide, TaskContext
from tmln.methods.replay.er import ERSettings, MemoryReplay


class ERACESettings(ERSettings):
    """As ER's, and with whom the classes of the current batch compete."""

    fill: Literal["end", "online", "every-epoch"] = Field(
        "online",
        description="step by step, so that replay lets new classes compete with old ones; filled at task ends only, "
        "new tasks would not be learned",
    )
    asymmetric: bool = Field(True, description="current samples do not compete with every class")
    competitors: Literal["batch", "unseen"] = Field(
        "batch",
        description="with which classes current samples compete: those of their own batch, as the paper writes it, or "
        "also those not met in earlier tasks, as in public code",
    )


def among_present(output: Tensor, y: Tensor) -> Tensor:
    """Cross entropy in which only the classes that occur in y compete."""
    absent = torch.ones(output.shape[1], dtype=torch.bool, device=output.device)
    absent[y] = False
    return F.cross_entropy(output.masked_fill(absent, float("-inf")), y)


def among_unmet(output: Tensor, y: Tensor, known: Sequence[int]) -> Tensor:
    """Cross entropy in which the classes known before compete only where they occur in y, and all others do."""
    closed = torch.zeros(output.shape[1], dtype=torch.bool, device=output.device)
    closed[list(known)] = True
    closed[y] = False
    return F.cross_entropy(output.masked_fill(closed, float("-inf")), y)


class ERACE(MemoryReplay[ERACESettings]):
    """Current samples among their own classes + replayed samples among all classes.

    Their own classes are those of the batch, as in the paper's equation. ``competitors="unseen"`` leaves open what no
    earlier task had, so that the first task is learned with the plain loss.
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
        use="Where new classes come in every task and push the old ones down at its beginning; in streams of one pass.",
        avoid="Where the classes stay the same and their look changes: then nothing is to be held apart.",
    )

    def __init__(self, settings: ERACESettings, seed: int) -> None:
        super().__init__(settings, seed)
        self.known: list[int] = []  # classes of earlier tasks

    def begin(self, context: TaskContext) -> None:
        super().begin(context)
        self.known = list(context.known)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        output, n = model(batch.x), batch.current
        scored = self._scored(output, batch.y, n)
        loss = self._current(scored[:n], batch.y[:n])
        if len(batch.y) > n:
            loss = loss + F.cross_entropy(scored[n:], batch.y[n:])
        return loss, output

    def _current(self, output: Tensor, y: Tensor) -> Tensor:
        if not self.settings.asymmetric:
            return F.cross_entropy(output, y)
        return among_present(output, y) if self.settings.competitors == "batch" else among_unmet(output, y, self.known)
