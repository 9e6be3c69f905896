"""Pictures drawn on the spot, for a tour of the folder workflow: ``tmln demo --pictures``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tmln.writing import writing

SIDE = 96  # pixels
SHAPES = ("circle", "square", "cross", "ring")
WEEKS = {"week1": (("circle", "square"), 30), "week2": (("cross", "ring"), 20), "test": (SHAPES, 15)}


def draw_shape(name: str, noise: np.random.RandomState, side: int = SIDE) -> NDArray[np.uint8]:
    """Return a noisy picture [side, side, 3] of a shape of any colour, size and place.

    >>> draw_shape("ring", np.random.RandomState(0), 32).shape
    (32, 32, 3)
    """
    rows, columns = np.mgrid[:side, :side]
    radius = noise.uniform(0.2, 0.32) * side
    x, y = noise.uniform(radius, side - radius, 2)
    across, along = np.abs(columns - x), np.abs(rows - y)
    far = np.hypot(across, along)
    inside = {
        "circle": far < radius,
        "square": np.maximum(across, along) < 0.85 * radius,
        "cross": (np.minimum(across, along) < 0.25 * radius) & (np.maximum(across, along) < radius),
        "ring": (far < radius) & (far > 0.6 * radius),
    }[name]
    back, front = noise.uniform(0, 110, 3), noise.uniform(150, 255, 3)
    pixels = np.where(inside[:, :, None], front, back) + noise.normal(0, 12, (side, side, 3))
    return np.clip(pixels, 0, 255).astype(np.uint8)


def draw_weeks(root: Path) -> None:
    """Write the pictures of two weeks and of a test, a folder for each class."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("pictures are written with Pillow: pip install 'tmln[images]'") from error
    noise = np.random.RandomState(0)
    for week, (names, count) in WEEKS.items():
        for name in names:
            folder = root / week / name
            with writing(folder):
                folder.mkdir(parents=True, exist_ok=True)
                for number in range(count):
                    Image.fromarray(draw_shape(name, noise)).save(folder / f"{number}.png")
