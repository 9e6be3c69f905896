"""LUCIR (Hou et al. 2019, Learning a Unified Classifier Incrementally via Rebalancing)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from tmln.methods import Batch, Features, Guide, TaskContext
from tmln.methods.answers.cosine import compute_cosines
from tmln.methods.replay.distill import TaughtReplay
from tmln.methods.replay.memory_replay import MemoryReplay, MemorySettings
from tmln.methods.weight_copies import freeze


class LUCIRSettings(MemorySettings):
    """Settings of the cosine loss, of the less-forget term and of the margin ranking term."""

    scale: float = Field(
        16.0,
        gt=0,
        allow_inf_nan=False,
        description="factor of the cosines in the cross entropy; learned by the authors, fixed here",
        json_schema_extra={"search": {"low": 4.0, "high": 64.0, "log": True}},
    )
    strength: float = Field(
        5.0,
        ge=0,
        allow_inf_nan=False,
        description="lambda_base: weight of 1 - cosine(features, the teacher's), times sqrt(known / new classes)",
        json_schema_extra={"search": {"low": 0.5, "high": 20.0, "log": True}},
    )
    margin: float = Field(
        0.5, ge=0, le=2, description="m: by which the cosine of a replayed sample's class is to be larger than others"
    )
    rivals: int = Field(2, ge=0, description="K: new classes of the largest cosines, which the margin is for; 0 is off")


def compute_margin_ranking(cosines: Tensor, y: Tensor, new: Sequence[int], margin: float, rivals: int) -> Tensor:
    """Return mean max(0, margin - cos_y + cos_k) over samples of earlier classes and rivals k.

    Rivals are the new classes with the ``rivals`` largest cosines; 0 if there is no such sample.
    """
    old = ~torch.isin(y, torch.tensor(list(new), dtype=y.dtype, device=y.device))
    count = min(rivals, len(new))
    if not count or not bool(old.any()):
        return cosines.sum() * 0.0
    top = cosines[old][:, list(new)].topk(count, dim=1).values
    true = cosines[old].gather(1, y[old][:, None])
    return F.relu(margin - true + top).mean()


class LUCIR(TaughtReplay[LUCIRSettings]):
    """Cross entropy of cosines; features stay near the teacher's, replayed samples off new classes.

    Rows of earlier classes are left as they are. Batches pass through the model whole, on every
    process.
    """

    name = "lucir"
    Settings = LUCIRSettings
    state_names: ClassVar[tuple[str, ...]] = (*MemoryReplay.state_names, "known", "new", "teacher_state")
    changed_settings: ClassVar[Mapping[str, Any]] = {"strength": 50.0, "scale": 1.0}
    guide: ClassVar[Guide] = Guide(
        equation=r"\mathcal{L} = \mathrm{CE}(s \cos(w, \varphi), y) + \lambda (1 - \cos(\varphi, \varphi_{\text{old}}))"
        r" + \sum_{k=1}^{K} [m - \cos(w_y, \varphi) + \cos(w_k, \varphi)]_+",
        origin="Hou et al. 2019; lambda grows with known / new classes, as in their code. Without imprinted rows, a "
        "learned scale and the last balanced epochs.",
        cost="As `er`, a frozen copy of the model, and its pass over every batch.",
        use="With the answer `cosine` (or `ncm`), where new classes come in every task.",
        avoid="With `argmax`, whose logits it does not train; beside steps or penalties that take a Fisher of these.",
    )

    def __init__(self, settings: LUCIRSettings, seed: int) -> None:
        super().__init__(settings, seed)
        self._refuse_balance("compares cosines")
        self.new: list[int] = []
        self.head = Features(settings.layer, "replay.layer", linear=True)
        if settings.passes == "separate":
            raise ValueError("replay.passes = 'separate' is not for replay 'lucir', whose batches pass whole")

    def begin(self, context: TaskContext) -> None:
        super().begin(context)
        self.head.find(self.model, context.example_inputs())  # an error before training
        self.known = list(context.known)
        self.new = [label for label in context.classes if label not in context.known]
        self.teacher = freeze(self.model) if self.known and self.settings.strength else None

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        settings = self.settings
        plain, features = self.head.extract(self.model, batch.x)
        layer = self.head.get_layer(self.model, batch.x)
        assert isinstance(layer, nn.Linear)
        rows = layer.weight
        if self.known:
            is_known = torch.zeros(len(rows), 1, dtype=torch.bool, device=rows.device)
            is_known[self.known] = True
            rows = torch.where(is_known, rows.detach(), rows)
        cosines = compute_cosines(features, rows)
        if layer.bias is not None:  # cosines leave it out, and steps expect a gradient of every weight
            cosines = cosines + 0.0 * layer.bias
        output = (settings.scale * cosines).masked_fill(plain.detach().isneginf(), float("-inf"))
        loss = F.cross_entropy(output, batch.y)
        if self.teacher is not None:
            name = next(name for name, module in self.model.named_modules() if module is layer)
            with torch.no_grad():
                taught = Features(name or None, "replay.layer").extract(self.teacher, batch.x)[1]
            weight = settings.strength * math.sqrt(len(self.known) / max(1, len(self.new)))
            loss = loss + weight * (1 - F.cosine_similarity(features, taught)).mean()
        if self.known and self.new:
            loss = loss + compute_margin_ranking(cosines, batch.y, self.new, settings.margin, settings.rivals)
        return loss, output
