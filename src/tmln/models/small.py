"""Small networks: a multilayer perceptron, two convolutional networks, and ResNet18."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.models.memory_format import MIN_CHANNELS

DEEPEST = 1024  # hidden layers of a perceptron: a depth in a file of others must not fill the memory


class MLP(nn.Module):
    """Multilayer perceptron: inputs [B, ...] of ``inputs`` numbers each to logits [B, classes].

    ``MLP(64, 128, 10)`` has one hidden layer, ``MLP(784, (256, 256), 10)`` two, as has ``MLP(784,
    256, 10, depth=2)``, ``MLP(64, (), 10)`` none. ReLU follows every hidden layer, then dropout.
    """

    def __init__(
        self, inputs: int, hidden: int | Sequence[int], classes: int, depth: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        if not 1 <= depth <= DEEPEST:
            raise ValueError(f"depth={depth}: a network has 1 to {DEEPEST} hidden layers; hidden=[] makes none")
        if depth > 1 and not isinstance(hidden, int):
            raise ValueError(f"depth={depth} is for hidden layers of one width, not for hidden={list(hidden)}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout={dropout} is no share from 0 up to 1")
        self.dropout = dropout
        widths = [inputs, *([hidden] * depth if isinstance(hidden, int) else hidden)]
        self.hidden = nn.ModuleList(nn.Linear(before, after) for before, after in itertools.pairwise(widths))
        self.linear = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        out = torch.flatten(x, 1)
        for layer in self.hidden:
            out = F.relu(layer(out))
            if self.dropout:
                out = F.dropout(out, self.dropout, self.training)
        logits: Tensor = self.linear(out)
        return logits


class SmallCNN(nn.Module):
    """Two convolutions with pooling, then two linear layers: a network for digits.

    Maps images [B, channels, size, size] of at least 4x4 pixels to logits [B, classes].
    """

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


class ConvNet(nn.Module):
    """Three convolutions with batch normalisation and pooling: a network for small colour images.

    Maps images [B, channels, H, W] of at least 8x8 pixels to logits [B, classes]. The head sees
    ``4 * width`` features, averaged over the image.
    """

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
