"""Per-sample weight gradients of convolutions, by unfolded inputs or by groups."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.curvature.lazy_gradients import Computed, Piece


def _pad_amounts(layer: Conv) -> tuple[int, ...]:
    """Return the padding on both sides of each dimension, in the order of ``F.pad``."""
    amounts: list[int] = []
    for i in reversed(range(len(layer.kernel_size))):
        if isinstance(layer.padding, str):
            total = layer.dilation[i] * (layer.kernel_size[i] - 1) if layer.padding == "same" else 0
            amounts += [total // 2, total - total // 2]
        else:
            amounts += [layer.padding[i]] * 2
    return tuple(amounts)


def view_patches(layer: nn.Conv1d | nn.Conv2d, inputs: Tensor) -> Tensor:
    """Return a view [n, height, width, kh, kw, channels] of the input patches of all positions.

    Copies nothing but padding. A Conv1d has height = kh = 1. Channels come last: copies of this
    view are then several times faster than ``F.unfold``.
    """
    flat = inputs.dim() == 3
    around = _pad_amounts(layer)
    if layer.padding_mode != "zeros":
        inputs, around = F.pad(inputs, around, mode=layer.padding_mode), (0,) * len(around)
    if flat:
        inputs, around = inputs.unsqueeze(2), (*around, 0, 0)
    padded = F.pad(inputs.permute(0, 2, 3, 1), (0, 0, *around)).contiguous()
    kernel, steps, gaps = (
        ((1, *sizes) if flat else sizes) for sizes in (layer.kernel_size, layer.stride, layer.dilation)
    )
    height, width = (
        (padded.shape[side] - gap * (size - 1) - 1) // step + 1
        for side, size, step, gap in zip((1, 2), kernel, steps, gaps, strict=True)
    )
    n, rows, columns, channel = padded.stride()
    return padded.as_strided(
        (len(padded), height, width, *kernel, padded.shape[3]),
        (n, rows * steps[0], columns * steps[1], rows * gaps[0], columns * gaps[1], channel),
    )


# Up to this many input x output channels a grouped convolution mostly beats the unfolded product:
# 1.2 to 4.5x on a 2-core Zen 4 for 3x3 kernels from 4x4 to 16x16 channels; not for 3x20 channels on
# 32x32 images (0.4x), nor above the limit (20x20 channels: 0.3x).
THIN = 256
Conv = nn.Conv1d | nn.Conv2d | nn.Conv3d
Transposed = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d


def conv_weight(module: Conv, a: Tensor, g: Tensor) -> Piece:
    """Return per-sample gradients of a convolution's weight."""
    if isinstance(module, nn.Conv3d) or module.groups > 1 or module.in_channels * module.out_channels <= THIN:
        return Computed(lambda n: conv_by_groups(module, a[n], g[n]), module.weight.numel() + 2 * a[0].numel())
    unfolded = a[0].numel() * module.weight[0, 0].numel() // module.stride[0] ** (a.dim() - 2)
    return Computed(lambda n: conv_by_product(module, a[n], g[n]), module.weight.numel() + int(unfolded))


def conv_bias(module: Conv | Transposed, a: Tensor, g: Tensor) -> Piece:
    """Return per-sample gradients of a convolution's bias."""
    return Computed(lambda n: g[n].flatten(2).sum(2), g[0].numel())


def transposed_weight(module: Transposed, a: Tensor, g: Tensor) -> Piece:
    """Return per-sample weight gradients of a transposed convolution.

    <g, transposed(a; W)> = <convolved(g; W), a>: those of a convolution whose input is g.
    """
    return Computed(
        lambda n: _convolve_groups(module, g[n], a[n], module.padding), module.weight.numel() + 2 * g[0].numel()
    )


def fits_transposed(module: Transposed) -> bool:
    """Return whether output paddings are below the strides, as the convolution needs."""
    return all(extra < stride for extra, stride in zip(module.output_padding, module.stride, strict=True))


def conv_by_product(module: nn.Conv1d | nn.Conv2d, a: Tensor, g: Tensor) -> Tensor:
    """Compute per-sample weight gradients as products of unfolded inputs and output gradients."""
    g = (g.unsqueeze(2) if g.dim() == 3 else g).permute(0, 2, 3, 1)
    n, height, width, outputs = g.shape
    view = view_patches(module, a)
    kh, kw, inputs = view.shape[3:]
    # columns^T g rather than g^T columns: up to 3x faster in MKL for the short, wide products of
    # late layers
    columns = view.reshape(n, height * width, kh * kw * inputs)
    product = columns.transpose(1, 2) @ g.reshape(n, height * width, outputs)
    gradient = product.view(n, kh, kw, inputs, outputs).permute(0, 4, 3, 1, 2)
    return gradient.squeeze(3) if a.dim() == 3 else gradient


def conv_by_groups(module: Conv, a: Tensor, g: Tensor) -> Tensor:
    """Compute per-sample weight gradients by one convolution with a group for each sample."""
    padding: Any = module.padding
    if module.padding_mode != "zeros" or isinstance(padding, str):
        mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
        a, padding = F.pad(a, _pad_amounts(module), mode=mode), [0] * (a.dim() - 2)
    return _convolve_groups(module, a, g, padding)


def _convolve_groups(module: Conv | Transposed, a: Tensor, g: Tensor, padding: Any) -> Tensor:
    """Compute one weight gradient with all samples side by side as channels of one image."""
    shape = module.weight.shape
    weight = module.weight.new_empty(1).expand(len(a) * shape[0], *shape[1:])
    gradient: Tensor = torch.ops.aten.convolution_backward(
        g.reshape(1, -1, *g.shape[2:]),
        a.reshape(1, -1, *a.shape[2:]),
        weight,
        None,
        module.stride,
        padding,
        module.dilation,
        False,
        [0] * (a.dim() - 2),
        len(a) * module.groups,
        [False, True, False],
    )[1]
    return gradient.view(len(a), *shape)
