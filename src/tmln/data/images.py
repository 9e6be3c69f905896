"""One image file to uint8 pixels [H, W, C], or an error that names the file."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from tmln.data.reading import DataError, read_bounded

if TYPE_CHECKING:
    from PIL.Image import Image as Picture
    from PIL.ImageFile import ImageFile


Pixels: TypeAlias = NDArray[np.uint8]

PLAIN_MODES = ("L", "RGB")
# Pillow decodes these by itself; for others, such as EPS, it starts programs.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "PPM", "TIFF")
MAX_PIXELS = 1 << 26
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


"""Of one image, 200 MB of colours; a file of 35 bytes can claim two gigabytes."""
MAX_BYTES = 1 << 29
TILE_TAGS = (322, 323)  # TIFF's width and height of tiles, which may be larger than the image


@dataclass(frozen=True)
class ImageReader:
    """Reader of images; ``mode`` converts colours, ``size`` makes squares as ``fit`` says.

    8-bit grey and RGB images need no conversion; palettes, transparency and 16 bits need a
    ``mode``. With ``shape`` (rows, columns, channels), images of other shapes are refused.
    """

    mode: Literal["L", "RGB"] | None = None
    size: int | None = None
    shape: tuple[int, int, int] | None = None
    fit: Fit = "crop"

    def __call__(self, path: Path) -> Pixels:
        return self.decode(read_bounded(path, MAX_BYTES), path)

    def decode(self, data: bytes, path: Path | str) -> Pixels:
        """Return the pixels of an encoded image; errors name it as ``path``."""
        try:
            from PIL import Image, ImageOps, UnidentifiedImageError
        except ImportError as error:
            raise ImportError("image files are read with Pillow: pip install 'tmln[images]'") from error
        try:
            with Image.open(io.BytesIO(data), formats=FORMATS) as file:
                _check_size(path, file)
                if verified := file.format == "PNG":
                    file.verify()  # checksums of parts that decoding does not read; other formats have none
                else:
                    image = self._decode(file)
            if verified:  # after which Pillow has to open it again
                with Image.open(io.BytesIO(data), formats=FORMATS) as file:
                    image = self._decode(file)
            image = ImageOps.exif_transpose(image)
        except DataError:
            raise
        except UnidentifiedImageError:
            raise DataError(f"{path}: not an image of a format that is read ({', '.join(FORMATS)})") from None
        except (Image.DecompressionBombError, Image.DecompressionBombWarning):
            raise DataError(f"{path}: cannot be read (more than {MAX_PIXELS:,} pixels; make it smaller)") from None
        except Exception as error:  # decoders of a broken file can raise almost anything
            raise DataError(f"{path}: cannot be read ({' '.join(str(error).split())})") from error
        return self._convert(image, path)

    def convert(self, picture: Any, name: str) -> Pixels:
        """Return the pixels of a Pillow image, or of an array [H, W] or [H, W, C] of uint8."""
        from PIL import Image, ImageOps

        if isinstance(picture, np.ndarray):
            picture = Image.fromarray(picture.squeeze(-1) if picture.shape[2:] == (1,) else picture)
        _check_size(name, picture)
        return self._convert(ImageOps.exif_transpose(picture), name)

    def _convert(self, image: Picture, path: Path | str) -> Pixels:
        """Return the pixels of a decoded image, in the mode and the size asked for."""
        from PIL import Image

        if image.mode not in PLAIN_MODES and self.mode is None:
            raise DataError(f"{path}: mode {image.mode}, not L or RGB; mode=RGB converts images")
        if image.mode.startswith("I"):
            image = Image.fromarray(_to_8_bits(path, np.asarray(image)))
        elif image.mode == "F":
            image = Image.fromarray(_scale_floats(path, np.asarray(image)))
        if self.mode is not None and image.mode != self.mode:
            try:
                image = image.convert(self.mode)
            except ValueError as error:
                raise DataError(f"{path}: mode {image.mode} does not become {self.mode} ({error})") from error
        if self.size is not None:
            image = fit_picture(image, self.size, self.fit)
        pixels = np.asarray(image)
        pixels = pixels if pixels.ndim == 3 else pixels[:, :, None]
        if self.shape not in (None, pixels.shape):
            raise DataError(f"{path}: {pixels.shape} pixels and channels, an image of this data set has {self.shape}")
        return pixels

    def _decode(self, file: ImageFile) -> Picture:
        file.load()
        return file


class DraftReader(ImageReader):
    """Faster :class:`ImageReader`: large JPEGs are decoded at 1/2, 1/4 or 1/8 of their size.

    Their pixels differ slightly from those of full decoding, so benchmarks use the other reader.
    """

    def _decode(self, file: ImageFile) -> Picture:
        if self.size is not None:
            file.draft(None, place_picture(*file.size, self.size, self.fit).size)
        return super()._decode(file)


def _check_size(path: Path | str, file: Picture) -> None:
    """Raise if an image is too large, before memory is allocated for its pixels."""
    tags = getattr(file, "tag_v2", {})
    tile = tuple(side for tag in TILE_TAGS if isinstance(side := tags.get(tag), int))
    shapes: list[tuple[int, ...]] = [file.size, tile]
    for shape in shapes:
        if math.prod(shape) > MAX_PIXELS:
            raise DataError(
                f"{path}: cannot be read ({'x'.join(map(str, shape))} pixels, more than the {MAX_PIXELS:,} that one "
                "image may have; make it smaller)"
            )


def _to_8_bits(path: Path | str, pixels: NDArray[np.integer]) -> Pixels:
    """Return the upper 8 of 16 bits, or of 12 where no value needs more.

    Cameras of 12 bits fill 16 with them. Values that need 8 bits alone may be any of these.
    """
    most = int(pixels.max())
    if pixels.min() < 0 or most > 0xFFFF:
        raise DataError(f"{path}: grey values of more than 16 bits")
    if 0 < most <= 0xFF:
        raise DataError(f"{path}: grey values up to {most} in 16 bits: black in all of these; save it with 8 bits")
    return (pixels.astype(np.uint32) >> (4 if most <= 0xFFF else 8)).astype(np.uint8)


def _scale_floats(path: Path | str, pixels: NDArray[np.floating]) -> Pixels:
    """Return floats from 0 to 1, or from 0 to 255, as 8 bits; others are refused."""
    low, high = float(pixels.min()), float(pixels.max())
    if not (np.isfinite(pixels).all() and low >= 0 and high <= 0xFF):
        raise DataError(f"{path}: grey values from {low:g} to {high:g}; floats are read from 0 to 1, or from 0 to 255")
    return np.round(pixels * (0xFF if high <= 1 else 1)).astype(np.uint8)
