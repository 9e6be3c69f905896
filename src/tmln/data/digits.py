"""The 1,797 8x8 digits that ship with scikit-learn: no download."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tmln.data.bad import BadData
from tmln.data.dataset import Arrays, DataSet


def read_digits(folder: Path, bad: BadData) -> Arrays:
    """Every fifth digit of a class is a test digit; grey levels 0..16 are spread over 0..255."""
    from sklearn.datasets import load_digits

    bundled = load_digits()
    labels = np.asarray(bundled.target, dtype=np.int64)
    tested = np.zeros(len(labels), np.bool_)
    for label in range(10):
        tested[np.flatnonzero(labels == label)[4::5]] = True
    pixels = np.round(bundled.images * (255 / 16)).astype(np.uint8)
    names = tuple(str(label) for label in range(10))
    return Arrays(pixels, labels, tested, names, mean=(0.3052,), std=(0.3760,))  # of the training digits


DIGITS = DataSet(
    "Digits",
    "1,797 8x8 handwritten digits, part of scikit-learn",
    read_digits,
    {"training": 1442, "test": 355},
    package="sklearn",
)
