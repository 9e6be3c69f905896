"""Split CIFAR-10 (5 tasks of 2) and Split CIFAR-100 (10 tasks of 10), python or binary version."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tmln.data.bad import BadData, DataError
from tmln.data.bounded import read_bounded
from tmln.data.sources import BATCHES
from tmln.data.unpickle import LARGEST, read_pickle
from tmln.streams.augment import BRIGHTNESS, ShiftFlip
from tmln.streams.data import locate
from tmln.streams.normalise import Colour
from tmln.streams.options import SplitOptions
from tmln.streams.samples import Samples
from tmln.streams.split import Pool, class_incremental
from tmln.streams.stream import Stream

PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Cifar:
    """What tells CIFAR-10 and CIFAR-100 apart. Files map a name (.bin if binary) to its images."""

    data: str
    classes: int
    train: dict[str, int]
    test: dict[str, int]
    label_key: bytes
    label_bytes: int
    meta: tuple[str, bytes]
    names: str
    mean: Colour
    std: Colour


# Means and deviations as in PyCIL and Avalanche; CIFAR-10's deviations are those of single images there, the
# deviation over all pixels is (.2470, .2435, .2616).
CIFAR10 = Cifar(
    "cifar10", 10, dict.fromkeys(BATCHES, 10_000), {"test_batch": 10_000}, b"labels", 1,
    ("batches.meta", b"label_names"), "batches.meta.txt", (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010),
)  # fmt: skip
CIFAR100 = Cifar(
    "cifar100", 100, {"train": 50_000}, {"test": 10_000}, b"fine_labels", 2,
    ("meta", b"fine_label_names"), "fine_label_names.txt", (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761),
)  # fmt: skip


def read_cifar(folder: Path, kind: Cifar, bad: BadData) -> Pool:
    """All images of an unpacked copy, checked: number, size, labels."""
    binary = (folder / f"{next(iter(kind.test))}.bin").exists()
    parts = []
    for split in (kind.train, kind.test):
        read = [_read_file(folder, name, count, kind, binary, bad) for name, count in split.items()]
        y = np.concatenate([labels for _, labels in read])
        if len(y) == 0:
            raise DataError(f"{folder}: no sound file among {', '.join(split)}")
        # Pixel by pixel rather than plane by plane: what augmentation and convolutions want.
        images = np.empty((len(y), 32, 32, 3), np.uint8)
        end = 0
        for x, _ in read:
            start, end = end, end + len(x)
            images[start:end] = x.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        parts.append(Samples.of(torch.from_numpy(images), torch.from_numpy(y), channels_last=True))
    return Pool(parts[0], parts[1], _class_names(folder, kind, binary), kind.mean, kind.std)


def _read_file(
    folder: Path, name: str, count: int, kind: Cifar, binary: bool, bad: BadData
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Rows of pixels and labels of one file; none where the file as a whole is bad."""
    path = folder / (f"{name}.bin" if binary else name)
    try:
        x, y = _read_binary(path, kind.label_bytes) if binary else _read_python(path, kind.label_key)
    except DataError as error:
        bad.add(path, str(error).removeprefix(f"{path}: "))
        return np.empty((0, PIXELS), np.uint8), np.empty(0, np.int64)
    if len(x) != count:
        bad.add(path, f"{len(x):,} images, not {count:,}: truncated?")
        return x[:0], y[:0]
    wrong = (y < 0) | (y >= kind.classes)
    for row in np.flatnonzero(wrong).tolist():
        bad.add(path, f"image {row} has label {y[row]}, not one of 0..{kind.classes - 1}")
    return (x[~wrong], y[~wrong]) if wrong.any() else (x, y)


def _read_python(path: Path, label_key: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    content = read_pickle(path)
    try:
        x, labels = content[b"data"], content[label_key]
    except (KeyError, TypeError):
        raise DataError(f"{path}: holds no {label_key.decode()} or no data") from None
    if not isinstance(x, np.ndarray) or x.dtype != np.uint8 or x.ndim != 2 or x.shape[1] != PIXELS:
        raise DataError(f"{path}: its data are not rows of {PIXELS} bytes")
    if not isinstance(labels, np.ndarray):
        # Looked at first: lists within lists, which numpy would spread out, can be few bytes in the file.
        if not isinstance(labels, list) or any(type(label) is not int for label in labels):
            raise DataError(f"{path}: its labels are not whole numbers")
    elif labels.dtype.kind not in "iu":
        raise DataError(f"{path}: its labels are not whole numbers")
    try:
        y = np.asarray(labels, dtype=np.int64)
    except OverflowError:
        raise DataError(f"{path}: its labels are not whole numbers") from None
    if y.shape != (len(x),):
        raise DataError(f"{path}: {len(x):,} images but {y.size:,} labels")
    return x, y


def _read_binary(path: Path, label_bytes: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    raw = np.frombuffer(read_bounded(path, LARGEST), np.uint8)
    record = label_bytes + PIXELS
    if raw.size == 0 or raw.size % record:
        raise DataError(f"{path}: {raw.size:,} bytes are no whole number of records of {record}: truncated?")
    records = raw.reshape(-1, record)
    return records[:, label_bytes:], records[:, label_bytes - 1].astype(np.int64)


def _class_names(folder: Path, kind: Cifar, binary: bool) -> tuple[str, ...]:
    """Names where the file that lists them is there, else the numbers."""
    path = folder / (kind.names if binary else kind.meta[0])
    if not path.exists():
        return tuple(str(label) for label in range(kind.classes))
    if binary:
        names = read_bounded(path, 1 << 20).decode(errors="replace").split()
    else:
        listed = read_pickle(path)
        found = listed.get(kind.meta[1], ()) if isinstance(listed, dict) else ()
        if not isinstance(found, (list, tuple)) or any(not isinstance(name, (str, bytes)) for name in found):
            raise DataError(f"{path}: its class names are no list of names")
        names = [name.decode(errors="replace") if isinstance(name, bytes) else name for name in found]
    if len(names) != kind.classes:
        raise DataError(f"{path}: {len(names)} class names, not {kind.classes}")
    return tuple(names)


def _split(name: str, kind: Cifar, tasks: int, options: SplitOptions) -> Stream:
    with BadData(name, options.skip_bad) as bad:
        pool = read_cifar(locate(kind.data, options.root), kind, bad)
    augment = ShiftFlip(kind.mean, kind.std, brightness=BRIGHTNESS)
    return class_incremental(name, pool, options, tasks=tasks, augment=augment)


def split_cifar10(options: SplitOptions) -> Stream:
    """Five tasks of two classes."""
    return _split("split-cifar10", CIFAR10, 5, options)


def split_cifar100(options: SplitOptions) -> Stream:
    """Ten tasks of ten classes."""
    return _split("split-cifar100", CIFAR100, 10, options)
