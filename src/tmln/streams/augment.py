"""Transforms of image batches: normalisation, crops, flips, resizing, brightness.

Every image has its own draw from the given generator. Images are uint8 0..255 or float 0..1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from tmln.data.dataset import Colour
from tmln.streams.stream import Augment


def draw_uniform(shape: tuple[int, ...], generator: Generator) -> Tensor:
    """Return numbers in [0, 1), drawn on the generator's device whatever the images' device."""
    return torch.rand(shape, generator=generator, device=generator.device)


def shift_images(x: Tensor, offsets: Tensor, padding: int) -> Tensor:
    """Pad with black, then cut the original size at ``offsets`` [2, B] (rows, columns)."""
    batch, height, width, channels = x.shape
    padded = F.pad(x, (0, 0, padding, padding, padding, padding)).flatten(2)
    # All windows as a view [B, 2p+1, 2p+1, H, W*C]: selecting one per image copies whole rows.
    windows = padded.unfold(2, width * channels, channels).unfold(1, height, 1).transpose(3, 4)
    rows, columns = offsets
    return windows[torch.arange(batch, device=x.device), rows, columns].view(x.shape)


def draw_offsets(batch: int, padding: int, generator: Generator) -> Tensor:
    """Draw rows and columns from 0 to 2 * padding: the origin of each image's window."""
    return torch.randint(0, 2 * padding + 1, (2, batch), generator=generator, device=generator.device)


def flip_images(x: Tensor, chosen: Tensor) -> Tensor:
    """Mirror the images where ``chosen`` [B] is true, in place; return ``x``."""
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
    """Draw boxes [4, B] of a random resized crop: top, left, height, width in whole pixels.

    The area is uniform within ``scale``, the aspect ratio log-uniform within ``ratio``. The first
    of ``attempts`` that fits is taken, else the largest central box within ``ratio``. The number of
    draws does not depend on their values.
    """
    area = height * width * (scale[0] + (scale[1] - scale[0]) * draw_uniform((attempts, batch), generator))
    low, high = math.log(ratio[0]), math.log(ratio[1])
    aspect = torch.exp(low + (high - low) * draw_uniform((attempts, batch), generator))
    place = draw_uniform((2, batch), generator)
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


def compute_interpolation(start: Tensor, length: Tensor, inputs: int, outputs: int) -> Tensor:
    """Return weights [B, outputs, inputs] that resize start..start+length to ``outputs`` pixels.

    Triangle filter: output k is centred on start + (k + 1/2) * length / outputs and as wide as the
    scale where an image shrinks. Nothing outside the box is read: the remaining weights are scaled
    to sum to 1, which repeats the edge pixel.
    """
    scale = (length / outputs).unsqueeze(1)
    centres = start.unsqueeze(1) + (torch.arange(outputs, device=scale.device) + 0.5) * scale
    pixels = torch.arange(inputs, device=scale.device) + 0.5
    weights = (pixels - centres.unsqueeze(2)).abs_()
    weights.div_(scale.clamp(min=1.0).unsqueeze(2)).neg_().add_(1.0).clamp_(min=0.0)
    inside = (pixels > start.unsqueeze(1)) & (pixels < (start + length).unsqueeze(1))
    weights.mul_(inside.unsqueeze(1))
    return weights.div_(weights.sum(2, keepdim=True))


def resize_crops(x: Tensor, boxes: Tensor, size: int) -> Tensor:
    """Cut boxes [4, B] (top, left, height, width) and resize each to ``size`` x ``size``.

    Two batched matrix products, one per axis, on any device. On a CPU, uint8 images go one by one
    through torch's uint8 kernel (17x faster for 128x128 to 224x224 on one core) and stay uint8,
    rounded as by PIL.
    """
    batch, height, width, channels = x.shape
    if x.dtype == torch.uint8 and x.device.type == "cpu":
        out = torch.empty(batch, size, size, channels, dtype=x.dtype)
        for image, target, box in zip(x, out, boxes.T.long().tolist(), strict=True):
            top, left, tall, wide = box
            target.copy_(resize_images(image[None, top : top + tall, left : left + wide], (size, size))[0])
        return out
    top, left, tall, wide = boxes.float()
    down, across = compute_interpolation(top, tall, height, size), compute_interpolation(left, wide, width, size)
    planes = x.permute(0, 3, 1, 2).to(down.dtype).reshape(batch, channels * height, width)
    narrow = torch.bmm(planes, across.transpose(1, 2)).view(batch, channels, height, size)
    flat = narrow.permute(0, 2, 3, 1).reshape(batch, height, size * channels)
    return torch.bmm(down, flat).view(batch, size, size, channels)


def resize_images(x: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize whole images; uint8 stays uint8 on a CPU and becomes float elsewhere."""
    if x.dtype == torch.uint8 and x.device.type != "cpu":
        x = x.float()
    out = F.interpolate(x.permute(0, 3, 1, 2), size=size, mode="bilinear", antialias=True, align_corners=False)
    return out.permute(0, 2, 3, 1)


def resize_centre(x: Tensor, shorter: int, size: int) -> Tensor:
    """Resize the shorter side to ``shorter`` pixels, then cut the centre of ``size`` x ``size``."""
    height, width = x.shape[1:3]
    short = min(height, width)
    tall, wide = shorter * height // short, shorter * width // short
    top, left = round((tall - size) / 2.0), round((wide - size) / 2.0)
    whole = x if (tall, wide) == (height, width) else resize_images(x, (tall, wide))
    return whole[:, top : top + size, left : left + size]


PADDING = 4  # pixels by which CIFAR's images are shifted at most
BRIGHTNESS = 63 / 255  # a factor in 1 +- 63/255, as in PyCIL


def get_white(x: Tensor) -> float:
    """Return the value of a white pixel."""
    return 1.0 if x.is_floating_point() else 255.0


def to_nhwc(x: Tensor) -> Tensor:
    """Return images [B, C, H, W] as contiguous [B, H, W, C]; no copy if they are channels_last."""
    return x.permute(0, 2, 3, 1).contiguous()


@lru_cache(maxsize=32)
def _make_scale_row(
    mean: Colour, std: Colour, white: float, length: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return factor and offset of every number in a row of pixels; cached for small batches."""
    with torch.inference_mode(False):  # may be called first in inference mode, then in training
        scale = torch.tensor([1.0 / (white * value) for value in std], dtype=torch.float64)
        shift = torch.tensor([m / s for m, s in zip(mean, std, strict=True)], dtype=torch.float64)
        repeats = length // len(scale)
        return scale.repeat(repeats).to(device, dtype), shift.repeat(repeats).to(device, dtype)


def finish_batch(x: Tensor, white: float, brightness: Tensor | None, mean: Colour, std: Colour) -> Tensor:
    """Scale [B, H, W, C] by ``brightness`` up to ``white`` and normalise; return [B, C, H, W]."""
    batch, height, width, channels = x.shape
    # Rows of W*C numbers, not of C=3: CPU loops run over the last dimension, 10x faster
    # (CIFAR, batch 128).
    rows = x.reshape(batch, height, width * channels)
    out = rows.clone() if rows.is_floating_point() else rows.float()
    if brightness is not None:
        out.mul_(brightness.to(out).view(-1, 1, 1)).clamp_(max=white)
    scale, shift = _make_scale_row(mean, std, white, width * channels, out.dtype, out.device)
    out.mul_(scale).sub_(shift)
    return out.view(batch, height, width, channels).permute(0, 3, 1, 2)


def normalise(x: Tensor, mean: Colour, std: Colour) -> Tensor:
    """Return (x - mean) / std along dimension 1; uint8 is scaled to 0..1 first, tokens stay."""
    if x.dtype == torch.int32:
        return x
    if x.is_floating_point() and not any(mean) and set(std) == {1.0}:
        return x
    if x.dim() == 4:
        return finish_batch(to_nhwc(x), get_white(x), None, mean, std)
    shape = (-1, *[1] * (x.dim() - 2))
    values = x if x.is_floating_point() else x.float() / get_white(x)
    return (values - torch.tensor(mean).to(values).view(shape)) / torch.tensor(std).to(values).view(shape)


@dataclass(frozen=True)
class Normalise:
    """Normalisation alone: a ``prepare`` for test images, an ``augment`` without variation."""

    mean: Colour = (0.0,)
    std: Colour = (1.0,)

    def __call__(self, x: Tensor, generator: Generator | None = None) -> Tensor:
        return normalise(x, self.mean, self.std)


def draw_brightness(batch: int, strength: float, generator: Generator) -> Tensor:
    """Draw factors uniform in [max(0, 1 - strength), 1 + strength]."""
    low = max(0.0, 1.0 - strength)
    return low + (1.0 + strength - low) * draw_uniform((batch,), generator)


@dataclass(frozen=True)
class ShiftFlip:
    """Random shift, horizontal flip and brightness: augmentation for CIFAR and similar images."""

    mean: Colour
    std: Colour
    padding: int = PADDING
    flip: float = 0.5
    brightness: float = 0.0

    def __call__(self, x: Tensor, generator: Generator) -> Tensor:
        offsets = draw_offsets(len(x), self.padding, generator).to(x.device)
        chosen = (draw_uniform((len(x),), generator) < self.flip).to(x.device)
        factors = draw_brightness(len(x), self.brightness, generator) if self.brightness else None
        moved = flip_images(shift_images(to_nhwc(x), offsets, self.padding), chosen)
        return finish_batch(moved, get_white(x), factors, self.mean, self.std)


@dataclass(frozen=True)
class ResizedCropFlip:
    """Random resized crop, horizontal flip and brightness: augmentation for CORe50."""

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
        chosen = (draw_uniform((len(x),), generator) < self.flip).to(x.device)
        factors = draw_brightness(len(x), self.brightness, generator) if self.brightness else None
        cut = resize_crops(to_nhwc(x), boxes, self.size)
        return finish_batch(flip_images(cut, chosen), get_white(x), factors, self.mean, self.std)


@dataclass(frozen=True)
class ResizeCentre:
    """Resized centre crop and normalisation; ``shorter`` is the shorter side before the crop."""

    size: int
    mean: Colour
    std: Colour
    shorter: int | None = None

    def __call__(self, x: Tensor, generator: Generator | None = None) -> Tensor:
        cut = resize_centre(to_nhwc(x), self.shorter or self.size, self.size)
        return finish_batch(cut, get_white(x), None, self.mean, self.std)


def make_augment(
    kind: str, shape: tuple[int, ...], mean: Colour, std: Colour, *, crop: str = "shift-flip", shrink: int = 1
) -> Augment | None:
    """Return the named augmentation for inputs of ``shape``; None for ``none``.

    Args:
        kind: ``none``; ``shift-flip``, ``resized-crop``; ``crop-flip``, which is ``crop``;
            ``paper``, which varies brightness, too.
        shape: the shape of inputs, [C, H, W].
        mean: of normalisation.
        std: of normalisation.
        crop: ``shift-flip`` or ``resized-crop``.
        shrink: images that were shrunk by this factor are shifted by less in proportion.
    """
    if kind == "none":
        return None
    _, height, width = shape
    brightness, padding = BRIGHTNESS if kind == "paper" else 0.0, PADDING // shrink
    if kind in ("crop-flip", "paper"):
        kind, padding = crop, min(padding, min(height, width) // 8)
    if kind == "shift-flip":
        return ShiftFlip(mean, std, padding=max(1, padding), brightness=brightness)
    if height != width:
        raise ValueError(f"resized-crop makes square images, these are {height}x{width}: give a size")
    return ResizedCropFlip(height, mean, std, brightness=brightness)
