"""EfficientNet-Lite (Tan & Le 2019; TensorFlow's Lite variants): no squeeze-and-excitation, ReLU6.

Convolutions pad as TensorFlow's "same": as little as possible, the odd pixel below and to the
right. Stem, head and the number of blocks in the first and the last stage do not scale.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.models.mobilenet import scale_channels

EPS, MOMENTUM = 1e-3, 0.01  # of batch normalisation
STEM, FEATURES = 32, 1280
PIECE = 32  # images in a pass without gradients, whose activations take 150 MB a layer at 224 pixels


class Stage(NamedTuple):
    """A row of table 1 of Tan & Le (2019)."""

    kernel: int
    stride: int
    expansion: int
    outputs: int
    blocks: int


STAGES = (
    Stage(3, 1, 1, 16, 1),
    Stage(3, 2, 6, 24, 2),
    Stage(5, 2, 6, 40, 2),
    Stage(3, 2, 6, 80, 3),
    Stage(5, 1, 6, 112, 3),
    Stage(5, 2, 6, 192, 4),
    Stage(3, 1, 6, 320, 1),
)


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return the pixels to add before and after ``size``, so that ceil(size / stride) come out.

    >>> same_padding(224, 3, 2), same_padding(15, 5, 2), same_padding(7, 3, 1)
    ((0, 1), (2, 2), (1, 1))
    """
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


class SamePad(nn.Module):
    """Zeros around images, for a convolution without padding of its own."""

    def __init__(self, kernel: int, stride: int) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride

    def forward(self, x: Tensor) -> Tensor:
        top, bottom = same_padding(x.shape[2], self.kernel, self.stride)
        left, right = same_padding(x.shape[3], self.kernel, self.stride)
        return F.pad(x, (left, right, top, bottom))


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """Return a convolution with "same" padding and without bias, and its batch normalisation."""
    pad = [SamePad(kernel, stride)] if stride > 1 else []
    inside = 0 if pad else kernel // 2
    conv = nn.Conv2d(inputs, outputs, kernel, stride, inside, groups=groups, bias=False)
    return [*pad, conv, nn.BatchNorm2d(outputs, eps=EPS, momentum=MOMENTUM)]


class LiteBlock(nn.Module):
    """Expand, filter each channel, project; add the input where the shape allows it."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        self.residual = stride == 1 and inputs == outputs
        inner = inputs * expansion
        layers: list[nn.Module] = [] if expansion == 1 else [*convolution(inputs, inner, 1), nn.ReLU6()]
        layers += [*convolution(inner, inner, kernel, stride, groups=inner), nn.ReLU6()]
        layers += convolution(inner, outputs, 1)
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return x + out if self.residual else out


class EfficientNetLite(nn.Module):
    """Images [B, 3, H, W], normalised, to logits [B, classes].

    Args:
        classes: outputs of the last layer, ``linear``.
        width: factor of the channels of every stage.
        depth: factor of the number of blocks of the stages between the first and the last.
        dropout: share of the features that training drops.

    ``inputs`` is where pictures are resized and normalised, if they are not yet.
    With width and depth 1 and 1,000 classes (lite0) it has 4,652,008 parameters.
    """

    def __init__(self, classes: int, width: float = 1.0, depth: float = 1.0, dropout: float = 0.2) -> None:
        super().__init__()
        self.inputs: nn.Module = nn.Identity()
        inputs = STEM
        layers: list[nn.Module] = [*convolution(3, inputs, 3, stride=2), nn.ReLU6()]
        for number, stage in enumerate(STAGES):
            is_fixed = number in (0, len(STAGES) - 1)
            outputs = scale_channels(stage.outputs, width)
            for block in range(stage.blocks if is_fixed else math.ceil(depth * stage.blocks)):
                stride = stage.stride if block == 0 else 1
                layers.append(LiteBlock(inputs, outputs, stage.kernel, stride, stage.expansion))
                inputs = outputs
        layers += [*convolution(inputs, FEATURES, 1), nn.ReLU6()]
        self.features = nn.Sequential(*layers)
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(FEATURES, classes)

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() or torch.compiler.is_compiling() or len(x) <= PIECE:
            out = self._pool(x)
        else:
            out = torch.cat([self._pool(piece) for piece in x.split(PIECE)])
        logits: Tensor = self.linear(self.dropout(out))
        return logits

    def _pool(self, x: Tensor) -> Tensor:
        return torch.flatten(F.adaptive_avg_pool2d(self.features(self.inputs(x)), 1), 1)
