"""Random crops and flips of a batch [B, H, W, C], every image with its own draw from the given generator."""

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
