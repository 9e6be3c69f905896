"""Three 3x3 convolutions with batch normalisation, each followed by pooling: a small network for coloured images."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ConvNet(nn.Module):
    """Images [B, channels, H, W] of 8x8 pixels or more -> logits [B, classes]; the features are 4 * width means."""

    def __init__(self, classes: int, channels: int = 3, width: int = 16) -> None:
        super().__init__()
        sizes = (channels, width, 2 * width, 4 * width)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, 3, padding=1, bias=False) for before, after in itertools.pairwise(sizes)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(size) for size in sizes[1:])
        self.linear = nn.Linear(sizes[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = F.max_pool2d(F.relu(norm(convolution(x))), 2)
        logits: Tensor = self.linear(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))
        return logits
