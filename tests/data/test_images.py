"""Image files of every mode, sound and broken."""

from __future__ import annotations

import os
import struct
import subprocess
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.data import made
from tmln.data.images import DraftReader, ImageReader
from tmln.streams import DataError


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


def test_no_program_is_started_for_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """EPS is a program for Ghostscript, whatever the file is called."""
    started: list[object] = []
    monkeypatch.setattr(subprocess, "Popen", lambda *words, **more: started.append(words))
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", "gs")
    text = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"
    (tmp_path / "x.png").write_bytes(text)
    with pytest.raises(DataError, match=r"x\.png: not an image of a format that is read \(PNG, JPEG, "):
        ImageReader()(tmp_path / "x.png")
    assert started == []


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "GIF", "WEBP", "PPM", "TIFF"])
def test_every_admitted_format(kind: str, tmp_path: Path) -> None:
    Image.new("RGB", (4, 3), (200, 200, 200)).save(tmp_path / "image", kind)
    assert ImageReader(mode="RGB")(tmp_path / "image").shape == (3, 4, 3)


def gif(width: int, height: int) -> bytes:
    side = struct.pack("<HH", width, height)
    return b"GIF89a" + side + b"\x00\x00\x00," + bytes(4) + side + b"\x00\x02\x02L\x01\x00;"


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    content = zlib.compress(bytes(1 << 20), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", content) + chunk(b"IEND", b"")


def tiff(width: int, height: int, tile: int) -> bytes:
    """One grey tile, deflated."""
    content = zlib.compress(bytes(1 << 16), 9)
    tags = [(256, width), (257, height), (258, 8), (259, 8), (262, 1), (277, 1), (322, tile), (323, tile)]
    tags += [(324, 8), (325, len(content))]
    offset = 8 + len(content)
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return b"II*\0" + struct.pack("<I", offset) + content + struct.pack("<H", len(tags)) + entries + bytes(4)


@pytest.mark.parametrize(
    ("data", "sides"),
    [
        (gif(13300, 13300), "13300x13300"),
        (gif(65535, 65535), "pixels"),
        (png(13300, 13300), "13300x13300"),
        (png(100_000, 100_000), "pixels"),
        (tiff(13000, 13000, 16), "13000x13000"),
        (tiff(16, 16, 40_000), "40000x40000"),
    ],
    ids=["gif", "larger gif", "png", "larger png", "tiff", "tile"],
)
def test_small_files_of_many_pixels_are_refused_unread(
    data: bytes, sides: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*words: object) -> None:
        raise AssertionError("memory was taken for its pixels")

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load_prepare", never)
    (tmp_path / "bomb.png").write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's own, from a smaller number of pixels on
        with pytest.raises(DataError, match=rf"bomb\.png: cannot be read \(.*{sides}.*make it smaller\)"):
            ImageReader()(tmp_path / "bomb.png")
    with pytest.raises(DataError, match=r"bomb\.png: cannot be read \(.*make it smaller\)"):
        ImageReader()(tmp_path / "bomb.png")


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PPM", "TIFF"])
def test_whatever_a_cut_does_it_is_one_line(kind: str, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (16, 16, 3)).astype(np.uint8)
    path = tmp_path / "image"
    Image.fromarray(noise).save(path, kind)
    data = path.read_bytes()
    said = []
    for keep in range(0, len(data), 7):
        path.write_bytes(data[:keep])
        try:
            ImageReader(mode="RGB")(path)
        except DataError as error:
            said.append(str(error))
    assert len(said) > 40
    assert not any("\n" in text for text in said)


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(DataError, match=r"pipe.png: cannot be read \(not a regular file\)"):
        ImageReader()(tmp_path / "pipe.png")


def test_a_large_jpeg_of_ones_own_is_nearly_the_same(tmp_path: Path) -> None:
    """Decoded at a fraction: other bytes, the same picture; a PNG is the same to the byte."""
    coarse = Image.fromarray(np.random.RandomState(0).randint(0, 256, (5, 5, 3)).astype(np.uint8))
    large = coarse.resize((200, 150), Image.Resampling.BICUBIC)
    for name, most in (("a.jpg", 4.0), ("a.png", 0.0)):
        large.save(tmp_path / name)
        slow, quick = (reader("RGB", 32)(tmp_path / name).astype(float) for reader in (ImageReader, DraftReader))
        assert slow.shape == quick.shape == (32, 32, 3)
        assert np.abs(slow - quick).mean() <= most


@pytest.mark.parametrize(
    ("pixels", "expected"),
    [
        (np.array([[0, 4095]], np.uint16), [0, 255]),  # a camera of 12 bits fills 16 with them
        (np.array([[0, 65535]], np.uint16), [0, 255]),
        (np.array([[0, 0]], np.uint16), [0, 0]),
        (np.array([[0.0, 1.0]], np.float32), [0, 255]),
        (np.array([[0.0, 200.4]], np.float32), [0, 200]),
    ],
)
def test_other_ranges_are_not_read_dark(pixels: Any, expected: list[int], tmp_path: Path) -> None:
    Image.fromarray(pixels).save(tmp_path / "a.tif")
    assert ImageReader(mode="L")(tmp_path / "a.tif")[0, :, 0].tolist() == expected


@pytest.mark.parametrize(
    ("pixels", "words"),
    [
        (np.array([[0, 200]], np.uint16), "up to 200 in 16 bits"),
        (np.array([[-1.0, 0.5]], np.float32), "from -1 to 0.5; floats are read from 0 to 1"),
        (np.array([[0.0, 4000.0]], np.float32), "from 0 to 4000"),
        (np.array([[0.0, np.nan]], np.float32), "from nan to nan"),
    ],
)
def test_ranges_that_cannot_be_told_are_refused(pixels: Any, words: str, tmp_path: Path) -> None:
    Image.fromarray(pixels).save(tmp_path / "a.tif")
    with pytest.raises(DataError, match=words):
        ImageReader(mode="L")(tmp_path / "a.tif")
