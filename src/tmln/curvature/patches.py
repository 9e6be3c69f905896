"""What a convolution multiplies by its weight: the patches of its input, as a view that copies nothing but padding."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


def patches(layer: nn.Conv1d | nn.Conv2d, inputs: Tensor) -> Tensor:
    """[n, height, width, kh, kw, channels] for every output position; a Conv1d has height = kh = 1.

    Channels come last: reading whole pixels makes copies of this view several times faster than ``F.unfold``.
    """
    flat = inputs.dim() == 3
    around: tuple[int, ...] = tuple(layer._reversed_padding_repeated_twice)
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
