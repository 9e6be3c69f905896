"""Transforms of image batches: uint8 or float [B, C, H, W] -> normalised float, channels_last."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Generator, Tensor

from tmln.data.dataset import Colour
from tmln.streams.crops import draw_boxes, draw_offsets, flipped, shifted, uniform
from tmln.streams.normalise import finished, pixels, white_of
from tmln.streams.resize import resized_centre, resized_crops
from tmln.streams.stream import Augment


def draw_brightness(batch: int, strength: float, generator: Generator) -> Tensor:
    """Factors uniform in [max(0, 1 - strength), 1 + strength]."""
    low = max(0.0, 1.0 - strength)
    return low + (1.0 + strength - low) * uniform((batch,), generator)


@dataclass(frozen=True)
class ShiftFlip:
    """Pad and crop back, flip half of the images, vary the brightness: CIFAR and its like."""

    mean: Colour
    std: Colour
    padding: int = 4
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


def augment_of(kind: str, shape: tuple[int, ...], mean: Colour, std: Colour, brightness: float = 0.0) -> Augment | None:
    """How training images are varied, by name, for a model that takes inputs of ``shape``; None for ``none``."""
    if kind == "none":
        return None
    if kind == "shift-flip":
        return ShiftFlip(mean, std, brightness=brightness)
    _, height, width = shape
    if height != width:
        raise ValueError(f"resized-crop makes square images, these are {height}x{width}: give a size")
    return ResizedCropFlip(height, mean, std, brightness=brightness)
