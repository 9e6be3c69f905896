"""Image files of every mode, sound and broken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.streams import made
from tmln.streams import DataError
from tmln.streams.images import ImageReader


def saved(folder: Path, mode: str, value: object, name: str = "image.png") -> Path:
    path = folder / name
    Image.new(mode, (4, 3), value).save(path)  # type: ignore[arg-type]
    return path


def test_plain_modes_as_they_are(tmp_path: Path) -> None:
    assert ImageReader()(saved(tmp_path, "RGB", (1, 2, 3)))[2, 3].tolist() == [1, 2, 3]
    grey = ImageReader()(saved(tmp_path, "L", 9))
    assert grey.shape == (3, 4, 1)
    assert grey.dtype == np.uint8
    assert int(grey[0, 0, 0]) == 9


STRANGE = {
    "1": (1, [255, 255, 255]),
    "P": (0, [0, 0, 0]),
    "LA": ((9, 255), [9, 9, 9]),
    "RGBA": ((1, 2, 3, 255), [1, 2, 3]),
    "I;16": (0x1234, [0x12, 0x12, 0x12]),
}


@pytest.mark.parametrize("mode", STRANGE)
def test_other_modes_need_a_conversion(mode: str, tmp_path: Path) -> None:
    value, expected = STRANGE[mode]
    path = saved(tmp_path, mode, value)
    with pytest.raises(DataError, match=r"image.png: mode .*mode=RGB converts") as caught:
        ImageReader()(path)
    assert str(path) in str(caught.value)
    assert ImageReader(mode="RGB")(path)[0, 0].tolist() == expected
    assert ImageReader(mode="L")(path).shape == (3, 4, 1)


def test_more_than_sixteen_bits(tmp_path: Path) -> None:
    path = saved(tmp_path, "I", 70_000, "image.tiff")
    with pytest.raises(DataError, match="more than 16 bits"):
        ImageReader(mode="L")(path)


def test_size_cuts_the_centre(tmp_path: Path) -> None:
    pixels = np.zeros((4, 8, 3), np.uint8)
    pixels[:, 2:6] = 200
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    assert ImageReader(size=4)(tmp_path / "wide.png").tolist() == [[[200] * 3] * 4] * 4
    assert ImageReader(size=2)(tmp_path / "wide.png").shape == (2, 2, 3)


def test_camera_orientation_is_followed(tmp_path: Path) -> None:
    pixels = np.zeros((2, 3, 3), np.uint8)
    pixels[0, 0] = 255
    tags = Image.Exif()
    tags[0x0112] = 6  # turn a quarter clockwise to see it upright
    Image.fromarray(pixels).save(tmp_path / "turned.png", exif=tags)
    upright = ImageReader()(tmp_path / "turned.png")
    assert upright.shape == (3, 2, 3)
    assert upright[0, 1].tolist() == [255, 255, 255]


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP"])
@pytest.mark.parametrize("keep", [0.0, 0.2, 0.9])
def test_truncated(kind: str, keep: float, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (32, 32, 3)).astype(np.uint8)
    path = tmp_path / "image"
    Image.fromarray(noise).save(path, kind)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(DataError, match=r"image: (cannot be read|not an image)"):
        ImageReader()(path)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP"])
def test_cut_near_its_end_an_image_is_whole_or_refused(kind: str, tmp_path: Path) -> None:
    """An end mark may be lost; a pixel may not."""
    noise = np.random.default_rng(0).integers(0, 256, (24, 24, 3)).astype(np.uint8)
    path = tmp_path / "image"
    Image.fromarray(noise).save(path, kind)
    data, whole = path.read_bytes(), ImageReader()(path)
    refused = 0
    for cut in range(1, 80):
        path.write_bytes(data[:-cut])
        try:
            assert np.array_equal(ImageReader()(path), whole)
        except DataError:
            refused += 1
    assert refused > 40


def test_corrupt_not_an_image_not_there(tmp_path: Path) -> None:
    data = bytearray(made.encoded((1, 2, 3), (32, 32)))
    data[60] ^= 0xFF
    (tmp_path / "corrupt.png").write_bytes(data)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(DataError, match=r"corrupt.png: cannot be read"):
        ImageReader()(tmp_path / "corrupt.png")
    with pytest.raises(DataError, match=r"notes.txt: not an image"):
        ImageReader()(tmp_path / "notes.txt")
    with pytest.raises(DataError, match=r"gone.png: cannot be read"):
        ImageReader()(tmp_path / "gone.png")


def test_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    path = saved(tmp_path, "L", 1)
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(DataError, match=r"image.png: cannot be read \(.*Permission denied"):
        ImageReader()(path)
