"""Reduced ResNet18 for 32x32 images (GEM, Lopez-Paz and Ranzato 2017): 3x3 stem, no max-pooling."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.models.memory_format import MIN_CHANNELS


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a 1x1 convolution if the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        self.subsample = 1
        if stride != 1 or inputs != outputs:
            if inputs < MIN_CHANNELS:  # subsampled without a strided convolution: see tmln.models.memory_format
                self.subsample, stride = stride, 1
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        shortcut_input = x if self.subsample == 1 else x[:, :, :: self.subsample, :: self.subsample]
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(shortcut_input))


class ReducedResNet18(nn.Module):
    """Reduced ResNet18: images [B, channels, H, W] to logits [B, classes].

    Its four stages have ``width`` times 1, 2, 4 and 8 channels. For 100 classes it has 1,109,240
    parameters with ``width=20`` and 11,220,132 with ``width=64``.
    """

    def __init__(self, classes: int, width: int = 64, channels: int = 3) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        blocks: list[nn.Module] = []
        inputs = width
        for factor, stride in ((1, 1), (2, 2), (4, 2), (8, 2)):
            outputs = width * factor
            blocks += [BasicBlock(inputs, outputs, stride), BasicBlock(outputs, outputs, 1)]
            inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.linear = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        out = self.blocks(F.relu(self.bn1(self.conv1(x))))
        logits: Tensor = self.linear(torch.flatten(F.adaptive_avg_pool2d(out, 1), 1))
        return logits
