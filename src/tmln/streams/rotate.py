"""Rotation of a batch of images about their centre, bilinear, with black corners."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


def rotate(x: Tensor, degrees: float) -> Tensor:
    """Images [B, C, H, W], uint8 or float, turned counter-clockwise; an angle of 0 changes nothing."""
    if degrees % 360.0 == 0.0:
        return x
    height, width = x.shape[-2:]
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    # Output to input coordinates, in units of half an image: hence the aspect ratios off the diagonal.
    matrix = torch.tensor([[cos, -sin * height / width, 0.0], [sin * width / height, cos, 0.0]], device=x.device)
    grid = F.affine_grid(matrix.expand(len(x), 2, 3), list(x.shape), align_corners=False)
    turned = F.grid_sample(x.float(), grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return turned.round().to(torch.uint8) if x.dtype == torch.uint8 else turned.to(x.dtype)


@dataclass(frozen=True)
class Rotation:
    """``rotate`` by one angle, as a function of a batch."""

    degrees: float

    def __call__(self, x: Tensor) -> Tensor:
        return rotate(x, self.degrees)
