"""One image file -> uint8 pixels [H, W, C], or a complaint: nothing doubtful passes in silence."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tmln.streams.bad import DataError

Pixels: TypeAlias = NDArray[np.uint8]

PLAIN = ("L", "RGB")


@dataclass(frozen=True)
class ImageReader:
    """Reads images as they are; ``mode`` converts their colours, ``size`` cuts the centre and resizes it.

    Grey and colour images of 8 bits need no conversion; palettes, transparency and 16 bits need a ``mode``.
    """

    mode: Literal["L", "RGB"] | None = None
    size: int | None = None

    def __call__(self, path: Path) -> Pixels:
        try:
            from PIL import Image, ImageOps, UnidentifiedImageError
        except ImportError as error:
            raise ImportError("image files are read with Pillow: pip install 'tmln[images]'") from error
        try:
            data = path.read_bytes()
            with Image.open(io.BytesIO(data)) as file:
                file.verify()  # checksums of parts that decoding would not look at
            with Image.open(io.BytesIO(data)) as file:
                file.load()
                image = ImageOps.exif_transpose(file)
        except UnidentifiedImageError:
            raise DataError(f"{path}: not an image") from None
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise DataError(f"{path}: cannot be read ({error})") from error
        if image.mode not in PLAIN and self.mode is None:
            raise DataError(f"{path}: mode {image.mode}, not L or RGB; mode=RGB converts images")
        if image.mode.startswith("I"):
            image = Image.fromarray(_eight_bits(path, np.asarray(image)))
        if self.mode is not None and image.mode != self.mode:
            try:
                image = image.convert(self.mode)
            except ValueError as error:
                raise DataError(f"{path}: mode {image.mode} does not become {self.mode} ({error})") from error
        if self.size is not None and image.size != (self.size, self.size):
            image = ImageOps.fit(image, (self.size, self.size), Image.Resampling.BILINEAR)
        pixels = np.asarray(image)
        return pixels if pixels.ndim == 3 else pixels[:, :, None]


def _eight_bits(path: Path, pixels: NDArray[np.integer]) -> Pixels:
    """The upper half of 16 bits, whatever integer type the file's reader chose for them."""
    if pixels.min() < 0 or pixels.max() > 0xFFFF:
        raise DataError(f"{path}: grey values of more than 16 bits")
    return (pixels.astype(np.uint32) >> 8).astype(np.uint8)
