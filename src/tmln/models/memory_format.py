"""channels_last for images, except for strided 1x1 convolutions with few channels (docs/cpu.md).

The weight gradient of such a layer can write outside its memory on CPUs with AVX2.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

# Floats in an AVX2 register. oneDNN 3.12 copies the pixels that such a layer reads into a buffer,
# one register per pixel, but sizes the buffer by the layer's channels.
MIN_CHANNELS = 8


def is_narrow(layer: nn.Module) -> bool:
    """Return whether oneDNN's AVX2 kernel for this layer is broken with channels_last tensors."""
    return (
        isinstance(layer, nn.Conv2d)
        and layer.in_channels < MIN_CHANNELS
        and layer.kernel_size == (1, 1)
        and layer.stride != (1, 1)
        and layer.groups == 1
    )


def to_channels_last(network: nn.Module) -> nn.Module:
    """Convert a network to channels_last, which selects faster convolution kernels.

    Batches of images are channels_last as well. A network with a layer that :func:`is_narrow` keeps
    the contiguous format, and that layer gets contiguous inputs. This holds on every CPU, so that
    results depend on the machine as little as possible.
    """
    narrow = {name or "the network": layer for name, layer in network.named_modules() if is_narrow(layer)}
    if not narrow:
        return network.to(memory_format=torch.channels_last)  # type: ignore[no-any-return, call-overload]
    warnings.warn(_warning_text(narrow), stacklevel=4)
    for layer in narrow.values():
        layer.register_forward_pre_hook(_make_contiguous)
    return network.to(memory_format=torch.contiguous_format)  # type: ignore[no-any-return, call-overload]


def _make_contiguous(layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(x.contiguous() for x in inputs)


def _warning_text(narrow: dict[str, nn.Module]) -> str:
    name, layer = next(iter(narrow.items()))
    others = f" and {len(narrow) - 1} more like it" if len(narrow) > 1 else ""
    return (
        "the network keeps the contiguous memory format, which is slower than channels_last: with channels_last, "
        f"{name} ({layer}){others} would write outside its memory on CPUs with AVX2 (a oneDNN bug, docs/cpu.md); give "
        f"it at least {MIN_CHANNELS} input channels, or pass x[:, :, ::stride, ::stride] to a layer without stride"
    )
