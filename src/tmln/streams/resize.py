"""Resizing of image batches [B, H, W, C], bilinear, antialiased: a box of each image, or all of it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def interpolation(start: Tensor, length: Tensor, inputs: int, outputs: int) -> Tensor:
    """Weights [B, outputs, inputs] that resize start..start+length of an axis to ``outputs`` pixels.

    The triangle filter: output k is centred on start + (k + 1/2) * length / outputs, as wide as the
    scale where an image shrinks. Beyond the box nothing is read: the remaining weights are scaled to sum
    to 1, which repeats the edge pixel.
    """
    scale = (length / outputs).unsqueeze(1)
    centres = start.unsqueeze(1) + (torch.arange(outputs, device=scale.device) + 0.5) * scale
    pixels = torch.arange(inputs, device=scale.device) + 0.5
    weights = (pixels - centres.unsqueeze(2)).abs_()
    weights.div_(scale.clamp(min=1.0).unsqueeze(2)).neg_().add_(1.0).clamp_(min=0.0)
    inside = (pixels > start.unsqueeze(1)) & (pixels < (start + length).unsqueeze(1))
    weights.mul_(inside.unsqueeze(1))
    return weights.div_(weights.sum(2, keepdim=True))


def resized_crops(x: Tensor, boxes: Tensor, size: int) -> Tensor:
    """Cut boxes [4, B] (top, left, height, width) and resize each to ``size`` x ``size``.

    Two batched matrix products, one an axis, on any device. uint8 on a CPU goes crop by crop through torch's
    own uint8 kernel, 17x faster for 128x128 -> 224x224 on one core, and stays uint8, rounded as PIL rounds.
    """
    batch, height, width, channels = x.shape
    if x.dtype == torch.uint8 and x.device.type == "cpu":
        out = torch.empty(batch, size, size, channels, dtype=x.dtype)
        for image, target, box in zip(x, out, boxes.T.long().tolist(), strict=True):
            top, left, tall, wide = box
            target.copy_(resized(image[None, top : top + tall, left : left + wide], (size, size))[0])
        return out
    top, left, tall, wide = boxes.float()
    down, across = interpolation(top, tall, height, size), interpolation(left, wide, width, size)
    planes = x.permute(0, 3, 1, 2).to(down.dtype).reshape(batch, channels * height, width)
    narrow = torch.bmm(planes, across.transpose(1, 2)).view(batch, channels, height, size)
    flat = narrow.permute(0, 2, 3, 1).reshape(batch, height, size * channels)
    return torch.bmm(down, flat).view(batch, size, size, channels)


def resized(x: Tensor, size: tuple[int, int]) -> Tensor:
    """All of each image resized to ``size``; uint8 stays uint8 on a CPU and becomes float elsewhere."""
    if x.dtype == torch.uint8 and x.device.type != "cpu":
        x = x.float()
    out = F.interpolate(x.permute(0, 3, 1, 2), size=size, mode="bilinear", antialias=True, align_corners=False)
    return out.permute(0, 2, 3, 1)


def resized_centre(x: Tensor, shorter: int, size: int) -> Tensor:
    """Resize the shorter side to ``shorter`` pixels, then cut ``size`` x ``size`` from the centre."""
    height, width = x.shape[1:3]
    short = min(height, width)
    tall, wide = shorter * height // short, shorter * width // short
    top, left = round((tall - size) / 2.0), round((wide - size) / 2.0)
    whole = x if (tall, wide) == (height, width) else resized(x, (tall, wide))
    return whole[:, top : top + size, left : left + size]
