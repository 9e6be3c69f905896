"""The 1,797 8x8 digits that ship with scikit-learn: no download."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tmln.data.dataset import Arrays, DataSet
from tmln.data.reading import BadData


@cache
def read_bundled() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return images and labels as they ship with scikit-learn.

    They are read from the file: importing scikit-learn takes longer than a run.
    """
    package = find_spec("sklearn")
    places = package.submodule_search_locations if package else None
    file = Path((places or [""])[0], "datasets/data/digits.csv.gz")
    if file.is_file():
        rows = np.loadtxt(file, delimiter=",")  # 64 grey levels and the digit
        return rows[:, :-1].reshape(-1, 8, 8), rows[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits

    found = load_digits()
    return np.asarray(found.images, dtype=np.float64), np.asarray(found.target, dtype=np.int64)


def read_digits(folder: Path, bad: BadData) -> Arrays:
    """Read the digits: every fifth of each class is a test image; grey levels scaled to 0..255."""
    images, labels = (part.copy() for part in read_bundled())
    is_test = np.zeros(len(labels), np.bool_)
    for label in range(10):
        is_test[np.flatnonzero(labels == label)[4::5]] = True
    pixels = np.round(images * (255 / 16)).astype(np.uint8)
    names = tuple(str(label) for label in range(10))
    return Arrays(pixels, labels, is_test, names, mean=(0.3052,), std=(0.3760,))  # of the training digits


DIGITS = DataSet(
    "Digits",
    "1,797 8x8 handwritten digits, part of scikit-learn",
    read_digits,
    {"training": 1442, "test": 355},
    package="sklearn",
)
