"""The 1,797 8x8 digits that ship with scikit-learn: no download."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tmln.data.bad_data import BadData
from tmln.data.dataset import Arrays, DataSet


@cache
def bundled() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Images and labels, as they ship: from the file, for to import scikit-learn takes longer than a run."""
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
