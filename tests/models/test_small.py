"""The small networks: perceptron and convolutional networks."""

from __future__ import annotations

import pytest
import torch

from tmln.models import MLP, ReducedResNet18, SmallCNN, make_model
from tmln.models.small import ConvNet


def test_mlp_by_hand() -> None:
    model = MLP(2, 2, 1)
    with torch.no_grad():
        model.hidden[0].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, -1.0]]))  # type: ignore[operator]
        model.hidden[0].bias.zero_()  # type: ignore[operator]
        model.linear.weight.copy_(torch.tensor([[2.0, 3.0]]))
        model.linear.bias.fill_(0.5)
    assert model(torch.tensor([[4.0, 5.0], [-1.0, -2.0]])).tolist() == [[8.5], [6.5]]


def test_mlp_layers() -> None:
    def count(model: MLP) -> int:
        return sum(parameter.numel() for parameter in model.parameters())

    assert count(MLP(64, 128, 10)) == 64 * 128 + 128 + 128 * 10 + 10
    assert count(MLP(784, (256, 256), 10)) == 784 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10
    assert count(MLP(64, (), 10)) == 650
    assert MLP(64, 8, 10)(torch.zeros(3, 1, 8, 8)).shape == (3, 10)


def test_mlp_of_equal_layers() -> None:
    torch.manual_seed(0)
    one = MLP(6, 4, 3, depth=3)
    torch.manual_seed(0)
    other = MLP(6, (4, 4, 4), 3)
    assert [p.shape for p in one.parameters()] == [p.shape for p in other.parameters()]
    x = torch.randn(5, 6)
    assert torch.equal(one(x), other(x))


def test_mlp_drops_out_in_training_only() -> None:
    """With weights of one, each of 1,000 hidden units gives 0 or, at a rate of 0.75, 4 times its value."""
    model = MLP(1, 1000, 1, dropout=0.75)
    for p in model.parameters():
        torch.nn.init.ones_(p)
    x = torch.ones(400, 1)
    model.eval()
    assert model(x).unique().tolist() == [2001.0]
    model.train()
    found = (model(x) - 1) / 8  # the units that are left
    assert torch.equal(found, found.round())
    assert 240 < found.mean() < 260
    plain = MLP(1, 4, 1)
    before = torch.get_rng_state()
    plain(x)
    assert torch.equal(before, torch.get_rng_state())  # without dropout nothing is drawn


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 0}, "depth=0"),
        ({"depth": 10**9}, "depth=1000000000"),
        ({"depth": 2, "hidden": [4, 4]}, "depth=2 is for hidden layers of one width"),
        ({"dropout": 1.0}, "dropout=1.0 is no share"),
        ({"dropout": -0.1}, "dropout=-0.1 is no share"),
    ],
)
def test_mlp_options_that_make_no_network(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_model("mlp", (1, 8, 8), 10, **options)


@pytest.mark.parametrize(("channels", "size"), [(1, 8), (1, 28), (3, 32), (1, 5)])
def test_cnn_shapes(channels: int, size: int) -> None:
    assert SmallCNN(10, channels, size)(torch.zeros(2, channels, size, size)).shape == (2, 10)


def test_cnn_parameters() -> None:
    counted = sum(parameter.numel() for parameter in SmallCNN(10).parameters())
    assert counted == (9 * 16 + 16) + (16 * 9 * 32 + 32) + (32 * 4 * 64 + 64) + (64 * 10 + 10)


def test_cnn_too_small() -> None:
    with pytest.raises(ValueError, match="at least 4x4 pixels, not 3x3"):
        SmallCNN(10, size=3)


def test_cnn_layout_changes_nothing() -> None:
    model = SmallCNN(10).eval()
    x = torch.rand(4, 1, 8, 8)
    plain = model(x)
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    assert torch.allclose(model(x.contiguous(memory_format=torch.channels_last)), plain, atol=1e-6)


@pytest.mark.parametrize(("channels", "size"), [(3, 8), (3, 16), (1, 28)])
def test_convnet_shapes(channels: int, size: int) -> None:
    assert ConvNet(10, channels)(torch.zeros(2, channels, size, size)).shape == (2, 10)


def test_convnet_parameters() -> None:
    counted = sum(parameter.numel() for parameter in ConvNet(10, width=4).parameters())
    assert counted == 9 * (3 * 4 + 4 * 8 + 8 * 16) + 2 * (4 + 8 + 16) + (16 * 10 + 10)


def test_convnet_too_small() -> None:
    with pytest.raises(ValueError, match="8x8 pixels or more, not 7x8"):
        make_model("convnet", (3, 7, 8), 10)


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
