"""How a picture of any shape becomes a square: padded, stretched, or its centre cropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

Fit = Literal["pad", "stretch", "crop"]
FITS: tuple[Fit, ...] = get_args(Fit)
PAD_VALUE = 127  # of each channel around a padded picture: middle gray, as 8 bits


@dataclass(frozen=True)
class Placement:
    """Which part of a picture is resized, to how many pixels, and where it lies in the square.

    Attributes:
        box: the part of the picture, (left, top, right, bottom) in its own pixels.
        size: (columns, rows) that this part is resized to.
        offset: (column, row) of its first pixel in the square; around it is ``PAD_VALUE``.
    """

    box: tuple[float, float, float, float]
    size: tuple[int, int]
    offset: tuple[int, int]


def place_picture(width: int, height: int, side: int, fit: Fit) -> Placement:
    """Return how a picture of ``width`` x ``height`` pixels fills a square of ``side`` pixels.

    ``pad`` shows all of it in its proportions, centred, ``stretch`` all of it without them, and
    ``crop`` the largest square around its centre.

    >>> place_picture(200, 100, 50, "pad")
    Placement(box=(0.0, 0.0, 200.0, 100.0), size=(50, 25), offset=(0, 12))
    >>> place_picture(200, 100, 50, "stretch")
    Placement(box=(0.0, 0.0, 200.0, 100.0), size=(50, 50), offset=(0, 0))
    >>> place_picture(200, 100, 50, "crop")
    Placement(box=(50.0, 0.0, 150.0, 100.0), size=(50, 50), offset=(0, 0))
    """
    if fit not in FITS:
        raise ValueError(f"fit must be one of {', '.join(FITS)}; got {fit!r}")
    if fit == "crop":
        shorter = float(min(width, height))
        left, top = (width - shorter) * 0.5, (height - shorter) * 0.5
        return Placement((left, top, left + shorter, top + shorter), (side, side), (0, 0))
    longer = max(width, height)
    columns, rows = (max(1, (2 * side * n + longer) // (2 * longer)) if fit == "pad" else side for n in (width, height))
    return Placement(
        (0.0, 0.0, float(width), float(height)), (columns, rows), ((side - columns) // 2, (side - rows) // 2)
    )


def fit_picture(image: Picture, side: int, fit: Fit) -> Picture:
    """Return a picture as a square, resized bilinearly (smoothed where it shrinks)."""
    from PIL import Image

    if image.size == (side, side):
        return image
    placement = place_picture(*image.size, side, fit)
    part = image.resize(placement.size, Image.Resampling.BILINEAR, box=placement.box)
    if placement.size == (side, side):
        return part
    square = Image.new(image.mode, (side, side), PAD_VALUE if image.mode == "L" else (PAD_VALUE,) * 3)
    square.paste(part, placement.offset)
    return square
