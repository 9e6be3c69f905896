"""One image file -> uint8 pixels [H, W, C], or a complaint: nothing doubtful passes in silence."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tmln.data.bad_data import DataError
from tmln.data.files import read_bounded

if TYPE_CHECKING:
    from PIL.Image import Image as Picture
    from PIL.ImageFile import ImageFile

Pixels: TypeAlias = NDArray[np.uint8]

PLAIN = ("L", "RGB")
# Those that Pillow decodes by itself: for others, EPS among them, it starts programs.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "PPM", "TIFF")
MOST_PIXELS = 1 << 26
"""Of one image, 200 MB of colours; a file of 35 bytes can ask for two gigabytes."""
MOST_BYTES = 1 << 29
TILE = (322, 323)  # TIFF's tags for width and height of its tiles, which need not be those of the image


@dataclass(frozen=True)
class ImageReader:
    """Reads images as they are; ``mode`` converts their colours, ``size`` cuts the centre and resizes it.

    Grey and colour images of 8 bits need no conversion; palettes, transparency and 16 bits need a ``mode``. Where a
    data set has images of one ``shape`` (rows, columns, channels), others are refused.
    """

    mode: Literal["L", "RGB"] | None = None
    size: int | None = None
    shape: tuple[int, int, int] | None = None

    def __call__(self, path: Path) -> Pixels:
        try:
            from PIL import Image, ImageOps, UnidentifiedImageError
        except ImportError as error:
            raise ImportError("image files are read with Pillow: pip install 'tmln[images]'") from error
        data = read_bounded(path, MOST_BYTES)
        try:
            with Image.open(io.BytesIO(data), formats=FORMATS) as file:
                _check_size(path, file)
                if verified := file.format == "PNG":
                    file.verify()  # checksums of parts that decoding would not look at; other formats have none
                else:
                    image = self._decoded(file)
            if verified:  # after which Pillow wants it opened anew
                with Image.open(io.BytesIO(data), formats=FORMATS) as file:
                    image = self._decoded(file)
            image = ImageOps.exif_transpose(image)
        except DataError:
            raise
        except UnidentifiedImageError:
            raise DataError(f"{path}: not an image of a format that is read ({', '.join(FORMATS)})") from None
        except (Image.DecompressionBombError, Image.DecompressionBombWarning):
            raise DataError(f"{path}: cannot be read (more than {MOST_PIXELS:,} pixels; make it smaller)") from None
        except Exception as error:  # decoders of a broken file can raise almost anything
            raise DataError(f"{path}: cannot be read ({' '.join(str(error).split())})") from error
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
        pixels = pixels if pixels.ndim == 3 else pixels[:, :, None]
        if self.shape not in (None, pixels.shape):
            raise DataError(f"{path}: {pixels.shape} pixels and channels, an image of this data set has {self.shape}")
        return pixels

    def _decoded(self, file: ImageFile) -> Picture:
        file.load()
        return file


class QuickReader(ImageReader):
    """As :class:`ImageReader`, but JPEGs of at least twice the ``size`` are decoded at a half, a quarter or an eighth.

    Their pixels differ a little from those of a full decoding, so that data sets with results keep to the other.
    """

    def _decoded(self, file: ImageFile) -> Picture:
        if self.size is not None:
            file.draft(None, (self.size, self.size))
        return super()._decoded(file)


def _check_size(path: Path, file: ImageFile) -> None:
    """Before any memory is taken for its pixels."""
    tags = getattr(file, "tag_v2", {})
    tile = tuple(side for tag in TILE if isinstance(side := tags.get(tag), int))
    shapes: list[tuple[int, ...]] = [file.size, tile]
    for shape in shapes:
        if math.prod(shape) > MOST_PIXELS:
            raise DataError(
                f"{path}: cannot be read ({'x'.join(map(str, shape))} pixels, more than the {MOST_PIXELS:,} that one "
                "image may have; make it smaller)"
            )


def _eight_bits(path: Path, pixels: NDArray[np.integer]) -> Pixels:
    """The upper half of 16 bits, whatever integer type the file's reader chose for them."""
    if pixels.min() < 0 or pixels.max() > 0xFFFF:
        raise DataError(f"{path}: grey values of more than 16 bits")
    return (pixels.astype(np.uint32) >> 8).astype(np.uint8)
