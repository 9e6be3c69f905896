"""MobileNetV2 (Sandler et al. 2018): inverted residuals, linear bottlenecks, ReLU6."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Table 2 of the paper: expansion factor, output channels, repetitions, first stride.
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def scale_channels(channels: int, width: float) -> int:
    """Return the multiple of 8 nearest to ``channels * width``, at most 10% below it."""
    wanted = channels * width
    nearest = max(8, int(wanted + 4) // 8 * 8)
    return nearest if nearest >= 0.9 * wanted else nearest + 8


def build_conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """Return a bias-free convolution with "same" padding, followed by batch normalisation."""
    padding = kernel // 2
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]


class InvertedResidual(nn.Module):
    """Inverted residual block: expand, filter each channel, project linearly.

    The input is added to the output if both have the same shape.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        self.residual = stride == 1 and inputs == outputs
        inner = inputs * expansion
        layers: list[nn.Module] = []
        if expansion != 1:
            layers += [*build_conv_norm(inputs, inner, 1), nn.ReLU6()]
        layers += [*build_conv_norm(inner, inner, 3, stride, groups=inner), nn.ReLU6()]
        layers += build_conv_norm(inner, outputs, 1)
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return x + out if self.residual else out


class MobileNetV2(nn.Module):
    """MobileNetV2: images [B, channels, H, W] of at least 32x32 pixels to logits [B, classes].

    With 3 channels, width 1 and 10 classes it has 2,236,682 parameters.
    """

    def __init__(self, classes: int, width: float = 1.0, channels: int = 3, dropout: float = 0.2) -> None:
        super().__init__()
        inputs = scale_channels(32, width)
        layers: list[nn.Module] = [*build_conv_norm(channels, inputs, 3, stride=2), nn.ReLU6()]
        for expansion, base, repetitions, first_stride in STAGES:
            outputs = scale_channels(base, width)
            for repetition in range(repetitions):
                stride = first_stride if repetition == 0 else 1
                layers.append(InvertedResidual(inputs, outputs, stride, expansion))
                inputs = outputs
        features = scale_channels(1280, max(1.0, width))
        layers += [*build_conv_norm(inputs, features, 1), nn.ReLU6()]
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
