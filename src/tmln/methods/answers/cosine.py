"""A cosine classifier (LUCIR: Hou et al. 2019, section 3.2)."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from tmln.methods import Answer, BuildContext, Features, Guide, Settings
from tmln.methods.features import replace_layer


class CosineSettings(Settings):
    """Settings of scale * cosine."""

    scale: float = Field(
        16.0,
        gt=0,
        allow_inf_nan=False,
        description="factor of the cosines; it decides probabilities, not predictions",
    )
    layer: str | None = Field(
        None, description="the nn.Linear that gives the output, by name; found by itself unless given"
    )


def compute_cosines(features: Tensor, weight: Tensor) -> Tensor:
    """Return the cosine of every sample's features with every class's row, [n, classes]."""
    return F.linear(F.normalize(features), F.normalize(weight))


class CosineHead(nn.Module):
    """``scale`` times the cosines in place of a last layer, for exports."""

    def __init__(self, layer: nn.Linear, scale: float) -> None:
        super().__init__()
        self.layer, self.scale = layer, scale

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * compute_cosines(x.flatten(1), self.layer.weight)


class CosineAnswer(Answer[CosineSettings]):
    """The class whose row of the last layer has the largest cosine with the features."""

    name = "cosine"
    Settings = CosineSettings
    fixed_memory_terms = ()
    guide = Guide(
        equation=r"\hat y = \arg\max_c \frac{\varphi(x)^\top w_c}{\| \varphi(x) \| \, \| w_c \|}",
        origin="LUCIR: Hou et al. 2019, section 3.2.",
        cost="Nothing.",
        use="With replay `lucir`, which trains for it; or where rows of new classes have become longer than others.",
        avoid="Where the layer's biases matter: they are left out.",
    )

    def __init__(self, settings: CosineSettings, context: BuildContext) -> None:
        super().__init__(settings, context)
        self.features = Features(settings.layer, "answer.layer", linear=True)

    def scores(self, model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        output, features = self.features.extract(model, x)
        layer = self.features.get_layer(model, x)
        assert isinstance(layer, nn.Linear)
        scores = self.settings.scale * compute_cosines(features, layer.weight)
        return output, scores.masked_fill(output.isneginf(), float("-inf"))

    def in_model(self, model: nn.Module, x: Tensor) -> AbstractContextManager[None]:
        """Replace the model's last layer by one whose output is the scores."""
        layer = self.features.get_layer(model, x)
        assert isinstance(layer, nn.Linear)
        return replace_layer(model, layer, CosineHead(layer, self.settings.scale).eval())
