"""Strided 1x1 convolutions of few channels, whose weight gradient can write past its memory (docs/cpu.md)."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

# Floats in an AVX2 register. oneDNN 3.12 gathers the pixels that such a layer looks at into memory of its own, a
# register for each, but allots that memory by the layer's channels.
FEW = 8


def is_narrow(layer: nn.Module) -> bool:
    """Whether oneDNN's AVX2 kernel for this layer is at fault, where input or weight is channels_last."""
    return (
        isinstance(layer, nn.Conv2d)
        and layer.in_channels < FEW
        and layer.kernel_size == (1, 1)
        and layer.stride != (1, 1)
        and layer.groups == 1
    )


def to_channels_last(network: nn.Module) -> nn.Module:
    """channels_last weights make CPU and GPU convolutions pick their fast kernels; narrow layers forbid it.

    Batches of images are channels_last too and carry that from layer to layer, so narrow layers are given their input
    in the usual format. On every CPU alike: what a run computes depends on the machine as little as it can.
    """
    narrow = {name or "the network": layer for name, layer in network.named_modules() if is_narrow(layer)}
    if not narrow:
        return network.to(memory_format=torch.channels_last)  # type: ignore[no-any-return, call-overload]
    warnings.warn(_reason(narrow), stacklevel=4)
    for layer in narrow.values():
        layer.register_forward_pre_hook(_usual_format)
    return network.to(memory_format=torch.contiguous_format)  # type: ignore[no-any-return, call-overload]


def _usual_format(layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(x.contiguous() for x in inputs)


def _reason(narrow: dict[str, nn.Module]) -> str:
    name, layer = next(iter(narrow.items()))
    others = f" and {len(narrow) - 1} more like it" if len(narrow) > 1 else ""
    return (
        f"the network keeps torch's usual memory format, which is slower than channels_last: in that, {name} "
        f"({layer}){others} would write past its memory on CPUs with AVX2 (a fault of oneDNN, see docs/cpu.md); "
        f"give it {FEW} input channels or more, or x[:, :, ::stride, ::stride] and no stride, which is the same"
    )
