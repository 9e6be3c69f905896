"""Replay of features that are drawn from a Gaussian of every class: no sample is stored.

The Gaussians are those of SLCA (Zhang et al. 2023); here they join every batch, at the last layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from tmln.methods import (
    Batch,
    BuildContext,
    Features,
    Guide,
    MemoryConditions,
    MemoryTerm,
    Replay,
    Settings,
    TaskContext,
)
from tmln.methods.gaussians import ClassGaussians, add_task, gaussian_terms


class GaussianSettings(Settings):
    """Settings of class Gaussians."""

    covariance: Literal["full", "diagonal", "low-rank"] = Field(
        "low-rank",
        description="what is kept of a class's covariance: d^2 numbers, d, or the `rank` leading directions and d",
        json_schema_extra={"search": ["diagonal", "low-rank"]},
    )
    rank: int = Field(16, ge=1, description="directions of `low-rank`")
    layer: str | None = Field(
        None, description="name of the layer whose input is the features; the last linear layer unless given"
    )


class FeatureReplaySettings(GaussianSettings):
    """Settings of ``features``."""

    batch: int | None = Field(None, ge=0, description="draws in a step; as many as new samples unless given")


class FeatureReplay(Replay[FeatureReplaySettings]):
    """Mean cross entropy of the batch and of features drawn from Gaussians of earlier classes."""

    name = "features"
    Settings = FeatureReplaySettings
    state_names: ClassVar[tuple[str, ...]] = ("gaussians",)
    off_settings: ClassVar[Mapping[str, Any] | None] = {"batch": 0}
    active_settings: ClassVar[Mapping[str, Any]] = {"rank": 2, "batch": 1}
    changed_settings: ClassVar[Mapping[str, Any]] = {"batch": 9}
    needs_boundary = True
    guide = Guide(
        equation=r"\mathcal{L} = \frac{1}{n+m} \left( \sum_{i \in \text{batch}} \mathrm{CE}(f(x_i), y_i) + "
        r"\sum_{j=1}^{m} \mathrm{CE}(h(\varphi_j), c_j) \right), \quad \varphi_j \sim N(\mu_{c_j}, S_{c_j})",
        origin="The Gaussians: SLCA, Zhang et al. 2023; the head h alone learns from them.",
        cost="A pass over each task's samples; for every class a mean, variances and `rank` directions.",
        use="Where no sample may be stored: on a backbone that is frozen or moves little.",
        avoid="Where the features move: the Gaussians are of the features as they were at the task's end.",
    )

    def __init__(self, settings: FeatureReplaySettings, seed: int) -> None:
        super().__init__(settings, seed)
        self.gaussians = ClassGaussians(settings.covariance, settings.rank, seed)
        self.features = Features(settings.layer, "replay.layer")
        self.model: nn.Module

    @classmethod
    def make(cls, settings: Any, context: BuildContext) -> FeatureReplay:
        made = cls(settings, context.seed)
        made.model = context.model
        return made

    @classmethod
    def refuse_task_heads(cls, settings: Any) -> str:
        return "draws features of classes of other tasks"

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        return gaussian_terms(settings.covariance, settings.rank)

    def begin(self, context: TaskContext) -> None:
        self.features.find(self.model, context.example_inputs())  # an error before training

    def draw(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Mapping[str, Tensor]]:
        count = len(x) if self.settings.batch is None else self.settings.batch
        if not count or not len(self.gaussians):
            return x[:0], y[:0], {}
        drawn, labels = self.gaussians.draw_any(count)
        return x[:0], y[:0], {"features": drawn, "labels": labels}

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        output: Tensor = model(batch.x)
        if "features" not in batch.fields:
            return F.cross_entropy(output, batch.y), output
        head = self.features.get_layer(self.model, batch.x)
        drawn = batch.fields["features"].to(next(head.parameters()).dtype)
        logits = head(drawn).to(output.dtype).masked_fill(output.detach().isneginf().all(0), -torch.inf)
        labels = torch.cat([batch.y, batch.fields["labels"]])
        return F.cross_entropy(torch.cat([output, logits]), labels), output

    def end(self, context: TaskContext) -> None:
        add_task(self.gaussians, self.features, self.model, context)
