"""Small convolutional network for digits: two 3x3 convolutions with pooling, then two linear layers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SmallCNN(nn.Module):
    """Images [B, channels, size, size] of 4x4 pixels or more -> logits [B, classes]."""

    def __init__(self, classes: int, channels: int = 1, size: int = 8, width: int = 16, hidden: int = 64) -> None:
        super().__init__()
        if size < 4:
            raise ValueError(f"SmallCNN needs images of at least 4x4 pixels, not {size}x{size}")
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.hidden = nn.Linear(2 * width * (size // 4) ** 2, hidden)
        self.linear = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        out = F.max_pool2d(F.relu(self.conv1(x)), 2)
        out = F.max_pool2d(F.relu(self.conv2(out)), 2)
        out = F.relu(self.hidden(torch.flatten(out, 1)))
        logits: Tensor = self.linear(out)
        return logits
