"""Reduced ResNet18: sizes and shapes."""

from __future__ import annotations

import pytest
import torch

from tmln.models import ReducedResNet18


@pytest.mark.parametrize(
    ("width", "classes", "parameters"),
    [(20, 100, 1_109_240), (20, 10, 1_094_750), (64, 100, 11_220_132), (64, 10, 11_173_962)],
)
def test_parameters(width: int, classes: int, parameters: int) -> None:
    with torch.device("meta"):
        model = ReducedResNet18(classes, width)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_no_early_downsampling() -> None:
    model = ReducedResNet18(10, width=4, channels=1).eval()
    x = torch.zeros(2, 1, 32, 32)
    assert model.conv1(x).shape == (2, 4, 32, 32)
    assert model.blocks(model.bn1(model.conv1(x))).shape == (2, 32, 4, 4)
    assert model(x).shape == (2, 10)
