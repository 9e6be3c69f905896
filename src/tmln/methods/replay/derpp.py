"""DER++ (Buzzega et al. 2020, Dark Experience for General Continual Learning, equation 6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from tmln.curvature.preserve_state import preserve_model
from tmln.methods import Batch, Guide, MemoryConditions, MemoryTerm, TaskContext
from tmln.methods.replay.memory_replay import MemoryReplay, MemorySettings


class DERSettings(MemorySettings):
    """Settings of loss + alpha * MSE(f(x'), z') + beta * CE(f(x''), y'')."""

    # Chosen on validation data of Split-Digits and CIFAR-10 against 0.1 and 0.5 (docs/methods.md).
    alpha: float = Field(
        0.3,
        ge=0,
        description="weight of the stored logits",
        json_schema_extra={"search": {"low": 0.01, "high": 1.0, "log": True}},
    )
    beta: float = Field(
        1.0,
        ge=0,
        description="weight of the stored labels",
        json_schema_extra={"search": {"low": 0.1, "high": 2.0, "log": True}},
    )
    fill: Literal["end", "online", "every-epoch"] = Field(
        "every-epoch",
        description="samples are stored with the model's logits, step by step; or at the task's end, with the "
        "logits of the weights that predict, in eval mode",
    )


def compute_dark_loss(
    output: Tensor,
    y: Tensor,
    current: int,
    logits: Tensor,
    alpha: float,
    beta: float,
    adjust: Callable[[Tensor, Tensor, int], Tensor] = lambda output, y, current: output,
) -> Tensor:
    """Return CE of current samples + alpha * MSE(logits) of one draw + beta * CE of another.

    Classes that were closed when the logits were stored (-inf) are not compared. ``adjust(output,
    labels, current)`` returns the logits for CE.
    """
    labelled = current + len(logits)
    labels = torch.cat([y[:current], y[labelled:]])
    scored = adjust(torch.cat([output[:current], output[labelled:]]), labels, current)
    loss = F.cross_entropy(scored[:current], labels[:current])
    if len(logits):
        kept, now = logits != float("-inf"), output[current:labelled]
        now, logits = (now, logits) if bool(kept.all()) else (now[kept], logits[kept])
        loss = loss + alpha * F.mse_loss(now, logits)
    if len(y) > labelled:
        loss = loss + beta * F.cross_entropy(scored[current:], labels[current:])
    return loss


class DERpp(MemoryReplay[DERSettings]):
    """One replayed draw must keep its logits, a second one its labels."""

    name = "der++"
    supports_fsdp = True
    Settings = DERSettings
    per_class_fields = ("logits",)
    off_settings: ClassVar[Mapping[str, Any] | None] = {"alpha": 0.0, "beta": 0.0}
    changed_settings: ClassVar[Mapping[str, Any]] = {"alpha": 2.0}
    guide = Guide(
        equation=r"\mathcal{L} = \mathrm{CE}(f(x), y) + \alpha \, \mathrm{MSE}(f(x'), z') + \beta \, "
        r"\mathrm{CE}(f(x''), y'')",
        origin="Buzzega et al. 2020, Dark Experience for General Continual Learning, equation 6.",
        cost="Two draws join every batch, three passes where one was; the memory holds logits besides.",
        use="Where a memory is small and more passes are affordable: stored logits hold more about a sample "
        "than its label.",
        avoid="Where the outputs change their meaning, or three times the samples a step are too slow.",
    )

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        return [MemoryTerm("memory", "samples", settings.capacity), MemoryTerm("memory", "logits", settings.capacity)]

    def draw(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Mapping[str, Tensor]]:
        dark = self._draw_fields(len(x)) if self.settings.alpha else {}
        labelled = self._draw_fields(len(x)) if self.settings.beta else {}
        parts = [drawn for drawn in (dark, labelled) if drawn]
        if not parts:
            return x[:0], y[:0], {}
        fields = {"logits": dark["logits"]} if dark else {}
        return torch.cat([p["x"] for p in parts]), torch.cat([p["y"] for p in parts]), fields

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        n, stored = batch.current, batch.fields.get("logits")
        output = self._forward(model, batch, 0 if stored is None else len(stored))
        logits = output[:0] if stored is None else stored
        loss = compute_dark_loss(
            output, batch.y, n, logits, self.settings.alpha, self.settings.beta, self._adjust_logits
        )
        return loss, output

    def _get_fields(self, output: Tensor) -> dict[str, Any]:
        return {"logits": output}

    @torch.no_grad()
    def _get_fields_at_end(self, context: TaskContext, x: Tensor, y: Tensor) -> dict[str, Any]:
        with preserve_model(context.model, training=False):
            return {"logits": context.model(context.prepare_batch(x, y)[0]).to(x.device)}
