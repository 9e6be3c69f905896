"""MobileNetV2 (Sandler et al. 2018) in its usual layout: inverted residuals, linear bottlenecks, ReLU6."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Table 2 of the paper: expansion factor, output channels, repetitions, stride of the first repetition.
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def scaled(channels: int, width: float) -> int:
    """The multiple of 8 nearest to channels * width, never more than a tenth below it."""
    wanted = channels * width
    nearest = max(8, int(wanted + 4) // 8 * 8)
    return nearest if nearest >= 0.9 * wanted else nearest + 8


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """Bias-free convolution of unchanged size (before the stride), then batch normalisation."""
    padding = kernel // 2
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]


class InvertedResidual(nn.Module):
    """Expand, filter each channel, project linearly; add the input where the shape allows it."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        self.residual = stride == 1 and inputs == outputs
        inner = inputs * expansion
        layers: list[nn.Module] = []
        if expansion != 1:
            layers += [*convolution(inputs, inner, 1), nn.ReLU6()]
        layers += [*convolution(inner, inner, 3, stride, groups=inner), nn.ReLU6()]
        layers += convolution(inner, outputs, 1)
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return x + out if self.residual else out


class MobileNetV2(nn.Module):
    """Images [B, channels, H, W] of 32x32 pixels or more -> logits [B, classes].

    With 3 channels, width 1 and 10 classes it has 2,236,682 parameters.
    """

    def __init__(self, classes: int, width: float = 1.0, channels: int = 3, dropout: float = 0.2) -> None:
        super().__init__()
        inputs = scaled(32, width)
        layers: list[nn.Module] = [*convolution(channels, inputs, 3, stride=2), nn.ReLU6()]
        for expansion, base, repetitions, first_stride in STAGES:
            outputs = scaled(base, width)
            for repetition in range(repetitions):
                stride = first_stride if repetition == 0 else 1
                layers.append(InvertedResidual(inputs, outputs, stride, expansion))
                inputs = outputs
        features = scaled(1280, max(1.0, width))
        layers += [*convolution(inputs, features, 1), nn.ReLU6()]
        self.features = nn.Sequential(*layers)
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(features, classes)
        self._initialise()

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
        nn.init.normal_(self.linear.weight, std=0.01)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        out = torch.flatten(F.adaptive_avg_pool2d(self.features(x), 1), 1)
        logits: Tensor = self.linear(self.dropout(out))
        return logits
