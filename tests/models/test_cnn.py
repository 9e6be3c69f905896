"""The small convolutional network."""

from __future__ import annotations

import pytest
import torch

from tmln.models import SmallCNN


@pytest.mark.parametrize(("channels", "size"), [(1, 8), (1, 28), (3, 32), (1, 5)])
def test_shapes(channels: int, size: int) -> None:
    assert SmallCNN(10, channels, size)(torch.zeros(2, channels, size, size)).shape == (2, 10)


def test_parameters() -> None:
    counted = sum(parameter.numel() for parameter in SmallCNN(10).parameters())
    assert counted == (9 * 16 + 16) + (16 * 9 * 32 + 32) + (32 * 4 * 64 + 64) + (64 * 10 + 10)


def test_too_small() -> None:
    with pytest.raises(ValueError, match="at least 4x4 pixels, not 3x3"):
        SmallCNN(10, size=3)


def test_layout_changes_nothing() -> None:
    model = SmallCNN(10).eval()
    x = torch.rand(4, 1, 8, 8)
    plain = model(x)
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    assert torch.allclose(model(x.contiguous(memory_format=torch.channels_last)), plain, atol=1e-6)
