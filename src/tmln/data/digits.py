"""The 1,797 8x8 digits that ship with scikit-learn: no download."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tmln.data.bad import BadData
from tmln.data.dataset import Arrays, DataSet


@cache  # to read the text takes longer than a small run of it
def bundled() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Images and labels, as they ship."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return np.asarray(found.images, dtype=np.float64), np.asarray(found.target, dtype=np.int64)


def read_digits(folder: Path, bad: BadData) -> Arrays:
    """Every fifth digit of a class is a test digit; grey levels 0..16 are spread over 0..255."""
    images, labels = (part.copy() for part in bundled())
    tested = np.zeros(len(labels), np.bool_)
    for label in range(10):
        tested[np.flatnonzero(labels == label)[4::5]] = True
    pixels = np.round(images * (255 / 16)).astype(np.uint8)
    names = tuple(str(label) for label in range(10))
    return Arrays(pixels, labels, tested, names, mean=(0.3052,), std=(0.3760,))  # of the training digits


DIGITS = DataSet(
    "Digits",
    "1,797 8x8 handwritten digits, part of scikit-learn",
    read_digits,
    {"training": 1442, "test": 355},
    package="sklearn",
)
