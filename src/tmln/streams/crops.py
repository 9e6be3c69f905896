"""Crops, flips and resizing of a batch [B, H, W, C], every image with its own draw from the given generator."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor


def uniform(shape: tuple[int, ...], generator: Generator) -> Tensor:
    """Numbers in [0, 1), drawn where the generator lives: the images' device changes nothing."""
    return torch.rand(shape, generator=generator, device=generator.device)


def shifted(x: Tensor, offsets: Tensor, padding: int) -> Tensor:
    """Pad with black on all sides, then cut the original size at ``offsets`` [2, B] (rows, columns)."""
    batch, height, width, channels = x.shape
    padded = F.pad(x, (0, 0, padding, padding, padding, padding)).flatten(2)
    # All windows as a view [B, 2p+1, 2p+1, H, W*C]: choosing one an image copies whole rows of pixels.
    windows = padded.unfold(2, width * channels, channels).unfold(1, height, 1).transpose(3, 4)
    rows, columns = offsets
    return windows[torch.arange(batch, device=x.device), rows, columns].view(x.shape)


def draw_offsets(batch: int, padding: int, generator: Generator) -> Tensor:
    """Rows and columns, each from 0 to 2 * padding: where an image's window begins in its padded self."""
    return torch.randint(0, 2 * padding + 1, (2, batch), generator=generator, device=generator.device)


def flipped(x: Tensor, chosen: Tensor) -> Tensor:
    """Mirror the images where ``chosen`` [B] is true; changes and returns ``x``."""
    rows = chosen.nonzero().squeeze(1)
    x[rows] = x[rows].flip(2)
    return x


def draw_boxes(
    batch: int,
    height: int,
    width: int,
    generator: Generator,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    attempts: int = 10,
) -> Tensor:
    """Boxes [4, B] of a random resized crop: top, left, height, width in whole pixels.

    Area uniform within ``scale``, aspect ratio log-uniform within ``ratio``; of ``attempts`` the first that
    fits, else the largest central box within ``ratio``. How much is drawn does not depend on what is drawn.
    """
    area = height * width * (scale[0] + (scale[1] - scale[0]) * uniform((attempts, batch), generator))
    low, high = math.log(ratio[0]), math.log(ratio[1])
    aspect = torch.exp(low + (high - low) * uniform((attempts, batch), generator))
    place = uniform((2, batch), generator)
    wide, tall = torch.round(torch.sqrt(area * aspect)), torch.round(torch.sqrt(area / aspect))
    fits = (wide > 0) & (wide <= width) & (tall > 0) & (tall <= height)
    first = fits.int().argmax(0, keepdim=True)
    central_width = min(width, round(height * ratio[1]))
    central_height = min(height, round(width / ratio[0]))
    any_fits = fits.any(0)
    wide = torch.where(any_fits, wide.gather(0, first).squeeze(0), float(central_width))
    tall = torch.where(any_fits, tall.gather(0, first).squeeze(0), float(central_height))
    top = torch.where(any_fits, torch.floor(place[0] * (height - tall + 1)), (height - tall) // 2)
    left = torch.where(any_fits, torch.floor(place[1] * (width - wide + 1)), (width - wide) // 2)
    return torch.stack((top, left, tall, wide))


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
