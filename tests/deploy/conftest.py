"""A shop whose pictures are patterns of its classes, so that a small network tells them apart."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

KINDS = {"ant": (0, 1), "bee": (1, 0), "owl": (0, 0), "cat": (1, 1)}  # which quarters are lit


def draw(folder: Path, name: str, count: int, size: int = 12, dark: int = 20, offset: int = 0) -> None:
    """Noisy pictures in which one quarter is lit: the class's."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    noise = np.random.RandomState(zlib.crc32(f"{folder.name}{name}{offset}".encode()))
    half = size // 2
    for number in range(count):
        pixels = noise.randint(0, 40, (size, size, 3)) + dark
        row, column = KINDS[name]
        pixels[row * half : (row + 1) * half, column * half : (column + 1) * half] += 150
        Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{offset + number}.png")


@pytest.fixture(scope="session")
def weeks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """week1 has bee and owl, week2 ant, which comes first in the alphabet, and owl in another size."""
    root = tmp_path_factory.mktemp("shop")
    for name in ("bee", "owl"):
        draw(root / "week1", name, 30)
        draw(root / "test", name, 10)
    draw(root / "week2", "ant", 30)
    draw(root / "week2", "owl", 30, size=20)
    draw(root / "test", "ant", 10)
    draw(root / "photos", "ant", 2, size=31)
    return root
