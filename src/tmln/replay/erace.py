"""ER-ACE (Caccia et al. 2022, New Insights on Reducing Abrupt Representation Change): asymmetric cross entropy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from tmln.parts import Batch
from tmln.replay.er import ERSettings, MemoryReplay


class ERACESettings(ERSettings):
    fill: Literal["end", "online", "every-epoch"] = Field(
        "online",
        description="step by step, so that replay lets new classes compete with old ones; filled at task ends only, "
        "new tasks would not be learned",
    )
    asymmetric: bool = Field(True, description="current samples compete among the classes of their own batch only")


def among_present(output: Tensor, y: Tensor) -> Tensor:
    """Cross entropy in which only the classes that occur in y compete."""
    absent = torch.ones(output.shape[1], dtype=torch.bool, device=output.device)
    absent[y] = False
    return F.cross_entropy(output.masked_fill(absent, float("-inf")), y)


class ERACE(MemoryReplay[ERACESettings]):
    """Current samples among their own classes + replayed samples among all classes."""

    name = "er-ace"
    Settings = ERACESettings
    off: ClassVar[Mapping[str, Any] | None] = {"batch": 0, "asymmetric": False}

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        output, n = model(batch.x), batch.current
        score = among_present if self.settings.asymmetric else F.cross_entropy
        loss = score(output[:n], batch.y[:n])
        if len(batch.y) > n:
            loss = loss + F.cross_entropy(output[n:], batch.y[n:])
        return loss, output
