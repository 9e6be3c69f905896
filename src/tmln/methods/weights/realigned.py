"""A head that is realigned with class Gaussians at a task's end (SLCA: Zhang et al. 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from tmln.methods import BuildContext, Features, Guide, MemoryConditions, MemoryTerm, TaskContext, Weights
from tmln.methods.gaussians import ClassGaussians, add_task, gaussian_terms
from tmln.methods.replay.features import GaussianSettings
from tmln.methods.weight_copies import check_finite, trained_tensors
from tmln.progress import track


class RealignedSettings(GaussianSettings):
    """Settings of ``realigned``."""

    draws: int = Field(256, ge=1, description="draws from the Gaussian of each class in an epoch")
    epochs: int = Field(
        5, ge=0, description="epochs of the head on draws; 0 is off", json_schema_extra={"search": [0, 5, 10]}
    )
    batch: int = Field(128, ge=1, description="draws in a step")
    lr: float = Field(
        0.01,
        gt=0,
        allow_inf_nan=False,
        description="learning rate of the head's steps, with momentum 0.9, down to zero by a cosine",
        json_schema_extra={"search": {"low": 0.001, "high": 0.1, "log": True}},
    )
    scale: float = Field(
        10.0,
        ge=0,
        allow_inf_nan=False,
        description="logits are divided by their norm and multiplied by it in the loss; 0 leaves them as they are",
    )


def normalise_logits(logits: Tensor, scale: float) -> Tensor:
    """Return ``scale * logits / |logits|``, row by row; with ``scale`` 0 the logits.

    >>> normalise_logits(torch.tensor([[3.0, 4.0]]), 10.0)
    tensor([[6., 8.]])
    """
    return logits * (scale / logits.norm(dim=1, keepdim=True).clamp_min(1e-7)) if scale else logits


class RealignedHead(Weights[RealignedSettings]):
    """The last layer, trained at a task's end on draws from a Gaussian of each class met."""

    name = "realigned"
    Settings = RealignedSettings
    state_names = ("gaussians",)
    needs_boundary = True
    off_settings: ClassVar[Mapping[str, Any] | None] = {"epochs": 0}
    active_settings: ClassVar[Mapping[str, Any]] = {"draws": 16, "rank": 2}
    changed_settings: ClassVar[Mapping[str, Any]] = {"lr": 0.1}
    guide = Guide(
        equation=r"w \leftarrow \arg\min_w \sum_c \sum_{j=1}^{256} \mathrm{CE}\left(s \frac{h_w(\varphi_{cj})}"
        r"{\| h_w(\varphi_{cj}) \|}, c\right), \quad \varphi_{cj} \sim N(\mu_c, S_c)",
        origin="SLCA: Zhang et al. 2023.",
        cost="A pass over each task's samples and the head's epochs on draws, which grow with the classes; for every "
        "class a mean, variances and `rank` directions.",
        use="On a pre-trained backbone that learns slowly (`step.scale`, or `model.backbone_lr_scale`).",
        avoid="Where features move far in a task: earlier Gaussians no longer fit.",
    )

    def __init__(self, settings: RealignedSettings, context: BuildContext) -> None:
        super().__init__(settings, context)
        self.gaussians = ClassGaussians(settings.covariance, settings.rank, context.seed)
        self.features = Features(settings.layer, "weights.layer", linear=True)

    @classmethod
    def memory_terms(cls, settings: Any, conditions: MemoryConditions) -> list[MemoryTerm] | None:
        return gaussian_terms(settings.covariance, settings.rank) if settings.epochs else []

    def begin(self, context: TaskContext) -> None:
        self.features.find(self.model, context.example_inputs())

    def end(self, context: TaskContext) -> None:
        check_finite(trained_tensors(self.model), "the solution")
        if not self.settings.epochs:
            return
        add_task(self.gaussians, self.features, self.model, context)
        head = self.features.get_layer(self.model, context.example_inputs())
        self._train(head)

    @torch.enable_grad()
    def _train(self, head: nn.Module) -> None:
        """Train the rows of the classes met; those of others keep their values."""
        settings, gaussians = self.settings, self.gaussians
        first = next(head.parameters())
        parameters = [p for p in head.parameters() if p.requires_grad]
        gradients = [p.grad for p in parameters]
        optimizer = torch.optim.SGD(parameters, settings.lr, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.epochs)
        columns = torch.tensor(gaussians.labels, device=first.device)
        loss = torch.zeros(())
        for _ in track(range(settings.epochs), "epochs of the head"):
            places = torch.arange(len(gaussians)).repeat(settings.draws)
            places = places[torch.randperm(len(places), generator=gaussians.generator)]
            for rows in places.split(settings.batch):
                drawn, _ = gaussians.draw(rows)
                logits = head(drawn.to(first.device, first.dtype))[:, columns]
                loss = F.cross_entropy(normalise_logits(logits, settings.scale), rows.to(first.device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            scheduler.step()
        for p, gradient in zip(parameters, gradients, strict=True):
            p.grad = gradient
        self.diagnostics = {"loss on draws": float(loss.detach())}
