"""The perceptron, by hand."""

from __future__ import annotations

import torch

from tmln.models import MLP


def test_by_hand() -> None:
    model = MLP(2, 2, 1)
    with torch.no_grad():
        model.hidden[0].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, -1.0]]))  # type: ignore[operator]
        model.hidden[0].bias.zero_()  # type: ignore[operator]
        model.linear.weight.copy_(torch.tensor([[2.0, 3.0]]))
        model.linear.bias.fill_(0.5)
    assert model(torch.tensor([[4.0, 5.0], [-1.0, -2.0]])).tolist() == [[8.5], [6.5]]


def test_layers() -> None:
    def count(model: MLP) -> int:
        return sum(parameter.numel() for parameter in model.parameters())

    assert count(MLP(64, 128, 10)) == 64 * 128 + 128 + 128 * 10 + 10
    assert count(MLP(784, (256, 256), 10)) == 784 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10
    assert count(MLP(64, (), 10)) == 650
    assert MLP(64, 8, 10)(torch.zeros(3, 1, 8, 8)).shape == (3, 10)
