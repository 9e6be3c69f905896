"""Supervised contrastive replay (Mai et al. 2021; the loss: Khosla et al. 2020, equation 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from tmln.methods import Batch, Guide
from tmln.methods.replay.memory_replay import MemoryReplay, MemorySettings


class SCRSettings(MemorySettings):
    """Settings of the memory and of the contrastive loss."""

    temperature: float = Field(
        0.07,
        gt=0,
        allow_inf_nan=False,
        description="tau: below it, the nearest samples of other classes weigh more",
        json_schema_extra={"search": {"low": 0.05, "high": 0.5, "log": True}},
    )
    fill: Literal["end", "online", "every-epoch"] = Field(
        "online", description="when samples are offered to the memory, as for `er`; the paper's streams have one pass"
    )


def compute_contrastive_loss(z: Tensor, y: Tensor, temperature: float) -> Tensor:
    """Return the supervised contrastive loss, mean over samples that have another of their class.

    For sample i, P(i) the others of its class and A(i) all others: -1/|P(i)| sum_{p in P(i)}
    log(exp(z_i z_p / T) / sum_{a in A(i)} exp(z_i z_a / T)).

    Args:
        z: Projections of length 1, [n, d].
        y: Labels, [n].
        temperature: T.
    """
    own = torch.eye(len(z), dtype=torch.bool, device=z.device)
    similarity = (z @ z.T / temperature).masked_fill(own, float("-inf"))
    log_share = similarity.log_softmax(1).masked_fill(own, 0.0)
    positive = (y[:, None] == y) & ~own
    count = positive.sum(1)
    anchors = count > 0
    return -((log_share * positive).sum(1)[anchors] / count[anchors]).mean()


class SCR(MemoryReplay[SCRSettings]):
    """Two views of current and replayed samples attract each other within a class.

    The last layer is the projection: its output, of length 1, is compared in place of being scored.
    The features below it serve the answer.
    """

    name = "scr"
    supports_fsdp = True
    Settings = SCRSettings
    changed_settings: ClassVar[Mapping[str, Any]] = {"temperature": 1.0}
    guide = Guide(
        equation=r"\mathcal{L} = \sum_i \frac{-1}{|P(i)|} \sum_{p \in P(i)} \log \frac{\exp(z_i z_p / \tau)}"
        r"{\sum_{a \neq i} \exp(z_i z_a / \tau)}, \quad z = f(x) / \| f(x) \|",
        origin="Mai et al. 2021, Supervised Contrastive Replay; Khosla et al. 2020, equation 2. Their projection is a "
        "network of its own, ours the last layer.",
        cost="Each sample twice in every step, in two augmented views.",
        use="With the answer `ncm`, in streams of one pass, on images with augmentation.",
        avoid="With the answer `argmax`: the outputs are no logits. Without augmentation both views are the same.",
    )

    def __init__(self, settings: SCRSettings, seed: int) -> None:
        super().__init__(settings, seed)
        self._refuse_balance("compares projections")

    @classmethod
    def refuse_task_heads(cls, settings: Any) -> str:
        return "compares outputs with those of classes of other tasks"

    def draw(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Mapping[str, Tensor]]:
        """Return replayed samples, then all samples again: they are augmented anew."""
        stored, labels, _ = super().draw(x, y)
        return torch.cat([stored, x, stored]), torch.cat([labels, y, labels]), {}

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        n = batch.current
        replayed = len(batch.y) // 2 - n
        output = self._forward(model, batch, *([replayed] if replayed else []), n)
        is_open = ~output.detach().isneginf().any(0)
        return compute_contrastive_loss(F.normalize(output[:, is_open]), batch.y, self.settings.temperature), output
