"""Transforms of image batches, uint8 0..255 or float 0..1: normalised to floats, varied for training."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Generator, Tensor

from tmln.data.dataset import Colour
from tmln.streams.crops import draw_boxes, draw_offsets, flipped, resized_centre, resized_crops, shifted, uniform
from tmln.streams.stream import Augment

PADDING = 4  # pixels by which CIFAR's images are shifted at most


def white_of(x: Tensor) -> float:
    """The value of a fully lit pixel."""
    return 1.0 if x.is_floating_point() else 255.0


def pixels(x: Tensor) -> Tensor:
    """Images [B, C, H, W] as contiguous [B, H, W, C]: free where they are channels_last already."""
    return x.permute(0, 2, 3, 1).contiguous()


@lru_cache(maxsize=32)
def _row(
    mean: Colour, std: Colour, white: float, length: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Factor and offset of every number in a row of pixels; kept, since small batches would notice."""
    with torch.inference_mode(False):  # a test may be the first to ask, training then gets the same
        scale = torch.tensor([1.0 / (white * value) for value in std], dtype=torch.float64)
        shift = torch.tensor([m / s for m, s in zip(mean, std, strict=True)], dtype=torch.float64)
        repeats = length // len(scale)
        return scale.repeat(repeats).to(device, dtype), shift.repeat(repeats).to(device, dtype)


def finished(x: Tensor, white: float, brightness: Tensor | None, mean: Colour, std: Colour) -> Tensor:
    """Scale [B, H, W, C] by ``brightness`` up to ``white``, normalise; gives [B, C, H, W], channels_last."""
    batch, height, width, channels = x.shape
    # Rows of W*C numbers, not of C=3: CPU loops run over the last dimension, 10x faster (CIFAR, batch 128).
    rows = x.reshape(batch, height, width * channels)
    out = rows.clone() if rows.is_floating_point() else rows.float()
    if brightness is not None:
        out.mul_(brightness.to(out).view(-1, 1, 1)).clamp_(max=white)
    scale, shift = _row(mean, std, white, width * channels, out.dtype, out.device)
    out.mul_(scale).sub_(shift)
    return out.view(batch, height, width, channels).permute(0, 3, 1, 2)


def normalise(x: Tensor, mean: Colour, std: Colour) -> Tensor:
    """(x - mean) / std along dimension 1, uint8 scaled to 0..1 first."""
    if x.is_floating_point() and not any(mean) and set(std) == {1.0}:
        return x
    if x.dim() == 4:
        return finished(pixels(x), white_of(x), None, mean, std)
    shape = (-1, *[1] * (x.dim() - 2))
    values = x if x.is_floating_point() else x.float() / white_of(x)
    return (values - torch.tensor(mean).to(values).view(shape)) / torch.tensor(std).to(values).view(shape)


@dataclass(frozen=True)
class Normalise:
    """A ``prepare`` of images tested as they are, and an ``augment`` that varies nothing."""

    mean: Colour = (0.0,)
    std: Colour = (1.0,)

    def __call__(self, x: Tensor, generator: Generator | None = None) -> Tensor:
        return normalise(x, self.mean, self.std)


def draw_brightness(batch: int, strength: float, generator: Generator) -> Tensor:
    """Factors uniform in [max(0, 1 - strength), 1 + strength]."""
    low = max(0.0, 1.0 - strength)
    return low + (1.0 + strength - low) * uniform((batch,), generator)


@dataclass(frozen=True)
class ShiftFlip:
    """Pad and crop back, flip half of the images, vary the brightness: CIFAR and its like."""

    mean: Colour
    std: Colour
    padding: int = PADDING
    flip: float = 0.5
    brightness: float = 0.0

    def __call__(self, x: Tensor, generator: Generator) -> Tensor:
        offsets = draw_offsets(len(x), self.padding, generator).to(x.device)
        chosen = (uniform((len(x),), generator) < self.flip).to(x.device)
        factors = draw_brightness(len(x), self.brightness, generator) if self.brightness else None
        moved = flipped(shifted(pixels(x), offsets, self.padding), chosen)
        return finished(moved, white_of(x), factors, self.mean, self.std)


@dataclass(frozen=True)
class ResizedCropFlip:
    """A random part of each image resized to ``size``, half of them flipped, varied brightness: CORe50."""

    size: int
    mean: Colour
    std: Colour
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    brightness: float = 0.0

    def __call__(self, x: Tensor, generator: Generator) -> Tensor:
        height, width = x.shape[2:]
        boxes = draw_boxes(len(x), height, width, generator, self.scale, self.ratio).to(x.device)
        chosen = (uniform((len(x),), generator) < self.flip).to(x.device)
        factors = draw_brightness(len(x), self.brightness, generator) if self.brightness else None
        cut = resized_crops(pixels(x), boxes, self.size)
        return finished(flipped(cut, chosen), white_of(x), factors, self.mean, self.std)


@dataclass(frozen=True)
class ResizeCentre:
    """Resize the shorter side to ``shorter`` (else ``size``), cut the centre, normalise: a test transform."""

    size: int
    mean: Colour
    std: Colour
    shorter: int | None = None

    def __call__(self, x: Tensor) -> Tensor:
        cut = resized_centre(pixels(x), self.shorter or self.size, self.size)
        return finished(cut, white_of(x), None, self.mean, self.std)


def augment_of(
    kind: str, shape: tuple[int, ...], mean: Colour, std: Colour, brightness: float = 0.0, shrink: int = 1
) -> Augment | None:
    """How training images are varied, by name, for a model that takes inputs of ``shape``; None for ``none``.

    Images that were shrunk are shifted by as much less, one pixel at least.
    """
    if kind == "none":
        return None
    if kind == "shift-flip":
        return ShiftFlip(mean, std, padding=max(1, PADDING // shrink), brightness=brightness)
    _, height, width = shape
    if height != width:
        raise ValueError(f"resized-crop makes square images, these are {height}x{width}: give a size")
    return ResizedCropFlip(height, mean, std, brightness=brightness)
