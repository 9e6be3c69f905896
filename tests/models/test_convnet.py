"""The network of three convolutions."""

from __future__ import annotations

import pytest
import torch

from tmln.models import make_model
from tmln.models.convnet import ConvNet


@pytest.mark.parametrize(("channels", "size"), [(3, 8), (3, 16), (1, 28)])
def test_shapes(channels: int, size: int) -> None:
    assert ConvNet(10, channels)(torch.zeros(2, channels, size, size)).shape == (2, 10)


def test_parameters() -> None:
    counted = sum(parameter.numel() for parameter in ConvNet(10, width=4).parameters())
    assert counted == 9 * (3 * 4 + 4 * 8 + 8 * 16) + 2 * (4 + 8 + 16) + (16 * 10 + 10)


def test_too_small() -> None:
    with pytest.raises(ValueError, match="8x8 pixels or more, not 7x8"):
        make_model("convnet", (3, 7, 8), 10)
