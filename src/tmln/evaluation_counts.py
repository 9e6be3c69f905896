"""Counts of a test, and what follows from them: confusions, calibration, accuracies within tasks.

Needs no torch. A confusion matrix C[i][j] counts the test samples of class i that were predicted as
class j; it is stored as text, some hundred letters for ten classes. R[k][j] is, as in
:mod:`tmln.metrics`, the accuracy on task j after task k.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

BINS = 15  # of confidence, equally wide: Guo et al. 2017
MOST_BYTES = 1 << 26  # of a confusion matrix that is unpacked: 4,096 classes
COUNT = np.dtype("<u4")
MOST_NUMBERS = 1 << 28  # of rows that are unpacked: a matrix of 16,384 tasks


def pack_confusion(counts: ArrayLike) -> str:
    """Return a confusion matrix as text: rows of 32-bit numbers, little endian, zlib, base64.

    >>> unpack_confusion(pack_confusion([[3, 1], [0, 4]])).tolist()
    [[3, 1], [0, 4]]
    """
    matrix = np.asarray(counts)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"a confusion matrix is square, a row for each class; got shape {matrix.shape}")
    return base64.b64encode(zlib.compress(matrix.astype(COUNT).tobytes(), 9)).decode()


def unpack_confusion(text: str) -> NDArray[np.int64]:
    """Return the counts, [true class][predicted class]; raise a ValueError for other text."""
    try:
        unpacking = zlib.decompressobj()
        found = unpacking.decompress(base64.b64decode(text, validate=True), MOST_BYTES)
    except (binascii.Error, zlib.error, ValueError, TypeError) as error:
        raise ValueError(f"no confusion matrix: {error}") from None
    classes = math.isqrt(len(found) // COUNT.itemsize)
    if not unpacking.eof or not classes or classes**2 * COUNT.itemsize != len(found):
        raise ValueError(f"no confusion matrix: {len(found)} bytes are not those of a square of numbers")
    return np.frombuffer(found, COUNT).astype(np.int64).reshape(classes, classes)


def pack_rows(rows: Sequence[Sequence[float | None]]) -> dict[str, Any]:
    """Return rows of numbers in a compact form: lengths, distinct values, and a code for each.

    Accuracies are fractions of a test's samples: few are distinct, and a code takes a byte or two
    before compression.

    >>> unpack_rows(pack_rows([[0.5, 1.0], [0.25]]))
    [[0.5, 1.0], [0.25]]
    """
    values = np.empty(0)
    for row in rows:
        values = np.union1d(values, np.asarray(row, dtype=np.float64))
    packing = zlib.compressobj()
    dtype = _code(len(values))
    codes = [
        packing.compress(np.searchsorted(values, np.asarray(row, np.float64)).astype(dtype).tobytes()) for row in rows
    ]
    text = base64.b64encode(b"".join([*codes, packing.flush()])).decode()
    return {"lengths": [len(row) for row in rows], "values": values.tolist(), "codes": text}


def unpack_rows(packed: Any) -> list[list[float]]:
    """Return the rows, null as NaN; raise a ValueError for what :func:`pack_rows` did not make."""
    lengths, values, codes = (packed.get(key) for key in ("lengths", "values", "codes"))
    if not (isinstance(lengths, list) and all(type(n) is int and 0 <= n <= MOST_NUMBERS for n in lengths)):
        raise ValueError("no packed rows: their lengths are no whole numbers")
    if not isinstance(values, list) or not _are_numbers([[value for value in values if value is not None]]):
        raise ValueError("no packed rows: their values are no numbers")
    if sum(lengths) > MOST_NUMBERS:
        raise ValueError(f"{sum(lengths):,} packed numbers, more than the {MOST_NUMBERS:,} that are read")
    dtype = _code(len(values))
    try:
        unpacking = zlib.decompressobj()
        found = unpacking.decompress(base64.b64decode(codes, validate=True), sum(lengths) * dtype.itemsize + 1)
    except (binascii.Error, zlib.error, ValueError, TypeError) as error:
        raise ValueError(f"no packed rows: {error}") from None
    places = np.frombuffer(found[: len(found) // dtype.itemsize * dtype.itemsize], dtype)
    if not unpacking.eof or len(found) != sum(lengths) * dtype.itemsize or (places >= len(values)).any():
        raise ValueError("no packed rows: lengths, values and codes do not fit together")
    numbers = [math.nan if value is None else float(value) for value in values]
    ends = np.cumsum([0, *lengths])
    return [[numbers[code] for code in places[a:b].tolist()] for a, b in itertools.pairwise(ends.tolist())]


def _code(values: int) -> np.dtype[Any]:
    return np.dtype("<u1" if values <= 1 << 8 else "<u2" if values <= 1 << 16 else "<u4")


def class_accuracies(counts: ArrayLike) -> NDArray[np.float64]:
    """Return C[i][i] / sum_j C[i][j] for each class; NaN for one that was not tested."""
    matrix = np.asarray(counts, dtype=np.float64)
    tested = matrix.sum(axis=1)
    return np.asarray(np.divide(matrix.diagonal(), tested, out=np.full(len(matrix), np.nan), where=tested > 0))


def worst_class_accuracy(confusions: Sequence[str]) -> float:
    """Return the lowest accuracy of a class at the end."""
    found = class_accuracies(unpack_confusion(confusions[-1]))
    return float("nan") if np.isnan(found).all() else float(np.nanmin(found))


def calibration_error(calibration: Mapping[str, Sequence[Sequence[float]]]) -> float:
    """Return the ECE (Guo et al. 2017) at the end: sum over bins of |right - confidence| / samples.

    Each bin of confidence has the number of samples (``count``), how many were right, and the sum
    of their confidences.
    """
    count, right, confidence = (np.asarray(calibration[key][-1], dtype=np.float64) for key in CALIBRATION)
    return float(np.abs(right - confidence).sum() / count.sum()) if count.sum() else float("nan")


CALIBRATION = ("count", "right", "confidence")


def anytime_rows(R: ArrayLike, within: Mapping[str, Any]) -> Iterator[tuple[int, list[float]]]:
    """Yield (task, accuracies on the tasks seen by then), in order of time.

    A task's last row is R's.
    """
    matrix = np.asarray(R, dtype=np.float64)
    rows = list(zip(within["task"], within["accuracy"], strict=True))
    for task in range(len(matrix)):
        yield from ((task, list(row)) for which, row in rows if which == task)
        yield task, matrix[task, : task + 1].tolist()


def anytime_accuracy(R: ArrayLike, within: Mapping[str, Any]) -> float:
    """Return AAA: the mean over all tests of the mean accuracy on tasks seen by then."""
    return float(np.mean([np.mean(row) for _, row in anytime_rows(R, within)]))


def minimum_accuracy(R: ArrayLike, within: Mapping[str, Any]) -> float:
    """Return min-ACC (De Lange et al. 2023).

    The mean over earlier tasks of the lowest accuracy after they were learned.
    """
    rows = list(anytime_rows(R, within))
    lowest = [min(row[j] for task, row in rows if task > j) for j in range(rows[-1][0])]
    return float(np.mean(lowest)) if lowest else float("nan")


def worst_case_accuracy(R: ArrayLike, within: Mapping[str, Any]) -> float:
    """Return WC-ACC (De Lange et al. 2023): R[K][K] / K + (1 - 1/K) min-ACC, of K tasks."""
    matrix = np.asarray(R, dtype=np.float64)
    tasks, last = len(matrix), float(matrix[-1, -1])
    return last if tasks == 1 else last / tasks + (1 - 1 / tasks) * minimum_accuracy(R, within)


WINDOWS = 100  # of a task in a curve of test-then-train accuracies


def add_online(online: Mapping[str, Any], task: int, samples: int, right: int, of_task: int) -> dict[str, list[int]]:
    """Return the counts of a test-then-train curve with one more batch.

    A window has consecutive batches of one task, a hundredth of its ``of_task`` samples or more.
    """
    found = {key: list(online.get(key, ())) for key in ONLINE}
    if found["task"] and found["task"][-1] == task and found["samples"][-1] * WINDOWS < of_task:
        found["samples"][-1] += samples
        found["right"][-1] += right
        return found
    return {key: [*found[key], value] for key, value in zip(ONLINE, (task, samples, right), strict=True)}


ONLINE = ("task", "samples", "right")


def online_accuracy(online: Mapping[str, Sequence[int]]) -> float:
    """Return the share of samples that were predicted rightly before they were trained on."""
    return sum(online["right"]) / sum(online["samples"])


def online_accuracies(online: Mapping[str, Sequence[int]]) -> list[float]:
    """Return the test-then-train accuracy of each task.

    >>> online_accuracies({"task": [0, 0, 1], "samples": [10, 10, 4], "right": [5, 9, 1]})
    [0.7, 0.25]
    """
    rows = list(zip(*(online[key] for key in ONLINE), strict=True))
    tasks = dict.fromkeys(task for task, _, _ in rows)
    counts = [[(right, samples) for which, samples, right in rows if which == task] for task in tasks]
    return [sum(right for right, _ in one) / sum(samples for _, samples in one) for one in counts]


def complaint_about(observed: Mapping[str, Any], tasks: int) -> str:
    """Return why a file's counts make no sense; empty if they do, or if there are none."""
    confusion, calibration, within = (observed.get(key) for key in ("confusion", "calibration", "within"))
    online = observed.get("online")
    if confusion:
        try:
            unpack_confusion(confusion[-1])
        except ValueError as error:
            return str(error)
    if calibration and not _are_bins([calibration.get(key) for key in CALIBRATION]):
        return "its calibration is not three rows of numbers for each task"
    if online:
        columns = [online.get(key) for key in ONLINE]
        if not _are_numbers(columns, least=1) or len({len(column) for column in columns}) > 1 or not columns[0]:
            return "its test-then-train counts are not three rows of numbers"
        rows = zip(*columns, strict=True)
        if not all(type(task) is int and 0 <= task < tasks and 0 <= right <= count > 0 for task, count, right in rows):
            return "its test-then-train counts are not of its tasks"
    if within:
        at, rows = within.get("task"), within.get("accuracy")
        if not (isinstance(at, list) and _are_numbers(rows, fractions=True) and len(at) == len(rows)):
            return "its accuracies within tasks are no rows of fractions"
        if not all(type(k) is int and 0 <= k < tasks and len(row) == k + 1 for k, row in zip(at, rows, strict=True)):
            return "its accuracies within tasks are not of the tasks seen by then"
    return ""


def _are_bins(tables: Sequence[Any]) -> bool:
    return all(_are_numbers(rows, least=1) for rows in tables) and len({len(rows[-1]) for rows in tables}) == 1


def _are_numbers(rows: Any, least: int = 0, fractions: bool = False) -> bool:
    if not isinstance(rows, list) or len(rows) < least or not all(isinstance(row, list) for row in rows):
        return False
    values = [value for row in rows for value in row]
    if not all(isinstance(value, (int, float)) and abs(value) < 1e100 for value in values):
        return False
    return not fractions or all(0 <= value <= 1 for value in values)
