"""Multilayer perceptron: flatten, then linear layers with ReLU between them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MLP(nn.Module):
    """Inputs [B, ...] of ``inputs`` numbers each -> logits [B, classes].

    ``MLP(64, 128, 10)`` has one hidden layer, ``MLP(784, (256, 256), 10)`` two, ``MLP(64, (), 10)`` none.
    """

    def __init__(self, inputs: int, hidden: int | Sequence[int], classes: int) -> None:
        super().__init__()
        widths = [inputs, *([hidden] if isinstance(hidden, int) else hidden)]
        self.hidden = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(widths))
        self.linear = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        out = torch.flatten(x, 1)
        for layer in self.hidden:
            out = F.relu(layer(out))
        logits: Tensor = self.linear(out)
        return logits
