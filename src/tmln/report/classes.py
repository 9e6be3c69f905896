"""What a row's runs took each class for, summed over its seeds, in as few numbers as the page needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tmln.lab.result import Result
from tmln.tallies import class_accuracies, unpack_confusion

MOST = 400  # classes that a page draws
DIGITS = 4


def classes_of(results: Sequence[Result]) -> dict[str, Any] | None:
    """``accuracy`` after each task of each class, ``confusion`` at the end as true, predicted, count, and so on.

    Of the runs that came to their end and counted; None where none did, or where they do not fit together.
    """
    counted = [one for one in results if one.confusion and not one.diverged and len(one.confusion) == len(one.accuracy)]
    try:
        tables = np.array([[unpack_confusion(text) for text in one.confusion] for one in counted])
    except ValueError:  # damaged, or of different sizes
        return None
    if tables.ndim != 4 or tables.shape[-1] > MOST:
        return None
    sums = tables.sum(axis=0)
    places = np.argwhere(sums[-1])
    return {
        "names": _names(counted, sums.shape[-1]),
        "seeds": len(counted),
        "accuracy": [[_rounded(value) for value in class_accuracies(table)] for table in sums],
        "confusion": [int(number) for t, p in places for number in (t, p, sums[-1, t, p])],
    }


def _names(results: Sequence[Result], classes: int) -> list[str]:
    """As the data have them; numbers where they do not, or where runs differ in them."""
    found = {tuple(map(str, one.class_names)) for one in results}
    names = found.pop() if len(found) == 1 else ()
    return list(names) if len(names) == classes else [str(number) for number in range(classes)]


def _rounded(value: float) -> float | None:
    return None if math.isnan(value) else round(float(value), DIGITS)
