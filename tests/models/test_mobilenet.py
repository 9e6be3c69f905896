"""MobileNetV2: sizes, strides, residuals."""

from __future__ import annotations

import pytest
import torch

from tmln.models.mobilenet import InvertedResidual, MobileNetV2, scale_channels


def count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_parameters() -> None:
    with torch.device("meta"):
        assert count(MobileNetV2(10)) == 2_236_682
        assert count(MobileNetV2(1000)) == 3_504_872  # the size everyone quotes


def test_the_image_shrinks_32_times() -> None:
    model = MobileNetV2(10, width=0.25).eval()
    assert model.features(torch.zeros(1, 3, 224, 224)).shape == (1, 1280, 7, 7)
    assert model(torch.zeros(2, 3, 64, 64)).shape == (2, 10)


def test_seventeen_blocks_ten_of_them_residual() -> None:
    with torch.device("meta"):
        blocks = [module for module in MobileNetV2(10).modules() if isinstance(module, InvertedResidual)]
    assert (len(blocks), sum(block.residual for block in blocks)) == (17, 10)


@pytest.mark.parametrize(
    ("channels", "width", "expected"),
    [(32, 1.0, 32), (16, 0.25, 8), (24, 0.75, 24), (96, 0.35, 32), (24, 0.5, 16)],
)
def test_scale_channels(channels: int, width: float, expected: int) -> None:
    assert scale_channels(channels, width) == expected


def test_residual_adds_its_input() -> None:
    block = InvertedResidual(8, 8, stride=1, expansion=6).eval()
    torch.nn.init.zeros_(block.layers[-2].weight)  # type: ignore[arg-type]  # the projection
    x = torch.rand(2, 8, 5, 5)
    assert torch.allclose(block(x), x)
    assert not InvertedResidual(8, 8, stride=2, expansion=6).residual
    assert not InvertedResidual(8, 16, stride=1, expansion=6).residual


def test_dropout_only_in_training() -> None:
    model = MobileNetV2(10, width=0.25, dropout=0.9)
    x = torch.rand(2, 3, 32, 32)
    model.eval()
    assert torch.equal(model(x), model(x))
    model.train()
    assert not torch.equal(model(x), model(x))
