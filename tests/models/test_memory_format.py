"""No network of ours takes the convolution that writes past its memory; a user's that has it is kept from it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import warnings
from collections.abc import Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tmln.models import BACKBONES, MODELS, ReducedResNet18, make_model
from tmln.models.memory_format import is_narrow, to_channels_last
from tmln.models.small import BasicBlock

IMAGES = [name for name, row in MODELS.items() if row.images]
LAST = torch.channels_last


class Convolutions(TorchDispatchMode):
    """Notes the strided 1x1 convolutions of fewer than 8 input channels, whoever calls them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.strided: list[tuple[int, ...]] = []
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten.convolution.default:
            x, weight, _, stride, *_ = args
            self.count += 1
            if x.shape[1] < 8 and tuple(weight.shape[2:]) == (1, 1) and max(stride) > 1:
                self.strided.append((*weight.shape, *stride))
        return func(*args, **(kwargs or {}))


def calls(model: nn.Module, x: Tensor) -> Convolutions:
    found = Convolutions()
    with found, torch.no_grad():
        model(x)
    return found


@pytest.mark.parametrize("name", IMAGES)
def test_no_width_and_no_number_of_channels_takes_it(name: str) -> None:
    widths = (0.01, 0.2, 0.5) if name == "mobilenetv2" else range(1, 9)
    cases = [(width, 3) for width in widths] + [(widths[1], channels) for channels in (1, 2, 4, 7, 8)]
    options: list[tuple[dict[str, object], int]] = [({"width": width}, channels) for width, channels in cases]
    if name in BACKBONES:
        options = [({"size": 32, "pretrained": False}, channels) for channels in (1, 3)]
    for given, channels in options:
        found = calls(make_model(name, (channels, 8, 8), 3, **given).eval(), torch.zeros(1, channels, 8, 8))
        assert found.count > 1
        assert found.strided == [], (given, channels)


def test_that_would_be_noticed() -> None:
    assert calls(nn.Conv2d(7, 4, 1, stride=(1, 2)), torch.zeros(2, 7, 8, 8)).strided == [(4, 7, 1, 1, 1, 2)]


# -- the narrow shortcut -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(8, 8), (7, 9), (1, 2)])
@pytest.mark.parametrize("inputs", range(1, 10))
def test_the_shortcut_is_the_strided_convolution(inputs: int, size: tuple[int, int]) -> None:
    torch.manual_seed(inputs)
    block, x = BasicBlock(inputs, 2 * inputs, 2).eval(), torch.randn(3, inputs, *size)
    conv, bn = block.shortcut
    assert isinstance(conv, nn.Conv2d)
    out = F.relu(block.bn1(F.conv2d(x, block.conv1.weight, stride=2, padding=1)))
    expected = F.relu(block.bn2(block.conv2(out)) + bn(F.conv2d(x, conv.weight, stride=2)))
    torch.testing.assert_close(block(x), expected)
    assert (conv.stride, block.subsample) == (((1, 1), 2) if inputs < 8 else ((2, 2), 1))


def test_all_widths_have_the_same_parameters() -> None:
    """Only their sizes differ: checkpoints of narrow networks written before are read as ever."""
    shapes = [
        {
            key: [size // width for size in value.shape[:1]]
            for key, value in ReducedResNet18(8 * width, width).state_dict().items()
        }
        for width in (1, 4, 7, 8, 20)
    ]
    assert all(found == shapes[0] for found in shapes)
    assert tuple(ReducedResNet18(3, 4).state_dict()["blocks.2.shortcut.0.weight"].shape) == (8, 4, 1, 1)


# -- the user's own ----------------------------------------------------------------------------------------------------


class Own(nn.Module):
    """Something wide, then a strided 1x1 convolution."""

    def __init__(self, inputs: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, inputs, 3, padding=1)
        self.branch = nn.Sequential(nn.ReLU(), nn.Conv2d(inputs, 10, 1, stride=2))
        self.linear = nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(self.branch(self.stem(x)).mean((2, 3)))
        return out


def test_which_layers_are_narrow() -> None:
    narrow = [nn.Conv2d(7, 1, 1, 2), nn.Conv2d(2, 64, 1, (1, 2)), nn.Conv2d(3, 6, 1, 4, dilation=2)]
    safe = [
        nn.Conv2d(8, 16, 1, 2),
        nn.Conv2d(3, 6, 1),
        nn.Conv2d(3, 6, 3, 2),
        nn.Conv2d(3, 6, (1, 3), 2),
        nn.Conv2d(4, 8, 1, 2, groups=2),
        nn.Conv1d(3, 6, 1, 2),
        nn.Conv3d(3, 6, 1, 2),
        nn.ConvTranspose2d(3, 6, 1, 2),
        nn.Linear(3, 6),
    ]
    assert all(is_narrow(layer) for layer in narrow)
    assert not any(is_narrow(layer) for layer in safe)


def last(model: nn.Module) -> nn.Module:
    return model.to(memory_format=LAST)  # type: ignore[no-any-return, call-overload]


@pytest.mark.parametrize("model", [Own(), last(Own())], ids=["as torch makes it", "channels_last already"])
def test_a_narrow_layer_keeps_the_usual_format_and_says_why(model: nn.Module) -> None:
    with pytest.warns(UserWarning, match="contiguous memory format") as said:
        found = to_channels_last(model)
    assert len(said) == 1
    text = str(said[0].message)
    assert "branch.1 (Conv2d(4, 10, kernel_size=(1, 1), stride=(2, 2)))" in text
    assert "8 input channels" in text
    assert found is model
    assert all(p.stride() == torch.empty(p.shape).stride() for p in model.parameters())


def test_what_goes_into_a_narrow_layer_is_in_the_usual_format() -> None:
    """Batches of images are channels_last, and a convolution's output is laid out as its input."""
    with pytest.warns(UserWarning, match=r"branch\.1"):
        model = to_channels_last(Own())
    seen: list[Tensor] = []
    model.get_submodule("branch.1").register_forward_hook(lambda layer, inputs, out: seen.append(inputs[0]))
    x = torch.randn(2, 3, 8, 8).contiguous(memory_format=LAST)
    assert not model.get_submodule("stem")(x).is_contiguous()
    model(x)
    assert [value.is_contiguous() for value in seen] == [True]


def test_several_are_one_warning_and_the_network_itself_can_be_one() -> None:
    with pytest.warns(UserWarning, match=r"stem\.0 \(.*\) and 1 more like it would write") as said:
        to_channels_last(nn.ModuleDict({"stem": nn.Sequential(nn.Conv2d(3, 4, 1, 2)), "other": nn.Conv2d(4, 8, 1, 2)}))
    assert len(said) == 1
    with pytest.warns(UserWarning, match=r"the network \(Conv2d"):
        to_channels_last(nn.Conv2d(3, 4, 1, 2))


def test_without_one_it_is_channels_last_and_silent() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = to_channels_last(Own(8))
    assert all(p.is_contiguous(memory_format=LAST) for p in model.parameters() if p.dim() == 4)
    assert not any(layer._forward_pre_hooks for layer in model.modules())


def test_models_by_name_are_looked_through() -> None:
    with pytest.warns(UserWarning, match=r"branch\.1") as said:
        make_model(f"{__name__}:Own", (3, 8, 8), 3)
    assert said[0].filename == __file__


# -- under the fault itself --------------------------------------------------------------------------------------------

# Forward and backward in every mixture of formats; the allocator looks at what lies behind a block when it is freed.
CHECKED = """
import torch, warnings
from tests.models.test_memory_format import Own
from tmln.models import make_model
from tmln.models.memory_format import to_channels_last
warnings.simplefilter("ignore")
torch.manual_seed(0)
torch.set_num_threads(1)
last, usual = torch.channels_last, torch.contiguous_format
def learn(model, channels, format):
    x = torch.randn(16, channels, 16, 16).contiguous(memory_format=format).requires_grad_()
    model(x).square().sum().backward()
for width in range(1, 9):
    model = make_model("resnet18", (3, 16, 16), 3, width=width)
    for weights, images in ((last, last), (last, usual), (usual, last)):
        learn(model.to(memory_format=weights), 3, images)
for channels in range(1, 9):
    learn(make_model("resnet18-slim", (channels, 16, 16), 3, width=2), channels, last)
for name in ("cnn", "mobilenetv2"):
    learn(make_model(name, (3, 16, 16), 3, width=1), 3, last)
for inputs in range(1, 9):
    for model in (Own(inputs), Own(inputs).to(memory_format=last)):
        for images in (last, usual):
            learn(to_channels_last(model), 3, images)
print("whole")
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="AVX2 is of x86")
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
def test_narrow_networks_leave_the_memory_whole() -> None:
    checks = {"LD_PRELOAD": "libc_malloc_debug.so.0", "MALLOC_CHECK_": "3", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    environment = {**os.environ, **checks, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    probe = subprocess.run([sys.executable, "-c", ""], env=environment, capture_output=True, text=True, check=True)
    if probe.stderr:
        pytest.skip(f"no checking allocator here: {probe.stderr.strip()}")
    done = subprocess.run([sys.executable, "-c", CHECKED], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr
