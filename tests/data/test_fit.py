"""How pictures become squares: placements by hand, and against Pillow's own operations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from tmln.data.images import FITS, PAD_VALUE, DraftReader, ImageReader, Placement, fit_picture, place_picture


def noise(width: int, height: int, mode: str = "RGB") -> Image.Image:
    shape = (height, width) if mode == "L" else (height, width, 3)
    return Image.fromarray(np.random.RandomState(0).randint(0, 256, shape).astype(np.uint8))


def test_placements_by_hand() -> None:
    whole = (0.0, 0.0, 30.0, 20.0)
    assert place_picture(30, 20, 15, "pad") == Placement(whole, (15, 10), (0, 2))
    assert place_picture(20, 30, 15, "pad") == Placement((0.0, 0.0, 20.0, 30.0), (10, 15), (2, 0))
    assert place_picture(1000, 2, 16, "pad").size == (16, 1)  # never nothing
    assert place_picture(30, 20, 15, "stretch") == Placement(whole, (15, 15), (0, 0))
    assert place_picture(30, 20, 15, "crop") == Placement((5.0, 0.0, 25.0, 20.0), (15, 15), (0, 0))
    with pytest.raises(ValueError, match="fit must be one of pad, stretch, crop; got 'fill'"):
        place_picture(30, 20, 15, "fill")  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize(("width", "height"), [(30, 20), (20, 30), (31, 17), (12, 12), (9, 64), (16, 16)])
def test_pictures_equal_those_of_pillow(mode: str, width: int, height: int) -> None:
    image, side, how = noise(width, height, mode), 16, Image.Resampling.BILINEAR
    gray = PAD_VALUE if mode == "L" else (PAD_VALUE,) * 3
    oracle = {
        "pad": ImageOps.pad(image, (side, side), how, gray),
        "stretch": image.resize((side, side), how),
        "crop": ImageOps.fit(image, (side, side), how),
    }
    for fit in FITS:
        found = np.asarray(fit_picture(image, side, fit)).astype(int)
        assert found.shape[:2] == (side, side)
        if fit != "pad":
            assert np.array_equal(found, np.asarray(oracle[fit]))
        else:  # Pillow places an odd rest half a pixel elsewhere
            rows, columns = ((found != PAD_VALUE).reshape(side, side, -1).any(2).sum(axis) for axis in (0, 1))
            expected = np.asarray(oracle[fit])
            other = (expected != PAD_VALUE).reshape(side, side, -1).any(2)
            assert (rows.max(), columns.max()) == (other.sum(0).max(), other.sum(1).max())


@pytest.mark.parametrize("reader", [ImageReader, DraftReader])
def test_a_mark_at_the_end_of_a_wide_picture_is_seen_unless_cropped(reader: type[ImageReader], tmp_path: Path) -> None:
    pixels = np.full((100, 400, 3), 60, np.uint8)
    pixels[:, 380:] = 250
    Image.fromarray(pixels).save(tmp_path / "part.jpg", quality=95)
    brightest = {fit: int(reader("RGB", 32, fit=fit)(tmp_path / "part.jpg").max()) for fit in FITS}
    assert brightest["crop"] < 80
    assert min(brightest["pad"], brightest["stretch"]) > 200


def test_a_rotated_picture_is_padded_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # a camera held upright
    noise(40, 20).save(tmp_path / "turned.jpg", exif=exif)
    found = DraftReader("RGB", 16, fit="pad")(tmp_path / "turned.jpg")
    assert (found[:, 0] == PAD_VALUE).all()
    assert not (found[0] == PAD_VALUE).all(1)[4:12].any()
