"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009), python or binary version."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tmln.data.dataset import Arrays, Colour, DataSet, RemoteFile
from tmln.data.reading import BadData, DataError, read_bounded
from tmln.data.safe_pickle import MAX_BYTES, read_pickle

PIXELS = 3 * 32 * 32
BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))


@dataclass(frozen=True)
class Cifar:
    """What differs between CIFAR-10 and CIFAR-100.

    ``train`` and ``test`` map a file's name (with .bin in the binary version) to its number of
    images.
    """

    classes: int
    train: dict[str, int]
    test: dict[str, int]
    label_key: bytes
    label_bytes: int
    meta: tuple[str, bytes]
    names: str
    mean: Colour
    std: Colour


def read_cifar(folder: Path, bad: BadData, kind: Cifar) -> Arrays:
    """Read all images of an unpacked copy; numbers, sizes and labels are checked."""
    binary = (folder / f"{next(iter(kind.test))}.bin").exists()
    read: list[tuple[NDArray[np.uint8], NDArray[np.int64]]] = []
    is_test: list[bool] = []
    for split in (kind.train, kind.test):
        found = [_read_file(folder, name, count, kind, binary, bad) for name, count in split.items()]
        if not any(len(y) for _, y in found):
            raise DataError(f"{folder}: no sound file among {', '.join(split)}")
        read += found
        is_test += [split is kind.test] * sum(len(y) for _, y in found)
    # Pixel by pixel, not plane by plane: the layout of augmentation and convolutions.
    pixels = np.empty((len(is_test), 32, 32, 3), np.uint8)
    end = 0
    for x, _ in read:
        start, end = end, end + len(x)
        for colour, plane in enumerate(x.reshape(-1, 3, 32, 32).swapaxes(0, 1)):
            pixels[start:end, ..., colour] = plane
    labels = np.concatenate([y for _, y in read])
    return Arrays(pixels, labels, np.array(is_test), _class_names(folder, kind, binary), kind.mean, kind.std)


def _read_file(
    folder: Path, name: str, count: int, kind: Cifar, binary: bool, bad: BadData
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the pixels and labels of one file; empty arrays if the file as a whole is bad."""
    path = folder / (f"{name}.bin" if binary else name)
    try:
        x, y = _read_binary(path, kind.label_bytes) if binary else _read_python(path, kind.label_key)
    except DataError as error:
        bad.add(str(error))
        return np.empty((0, PIXELS), np.uint8), np.empty(0, np.int64)
    if len(x) != count:
        bad.add(path, f"{len(x):,} images, not {count:,}: truncated?")
        return x[:0], y[:0]
    valid = bad.check_labels(y, kind.classes, path)
    return (x, y) if valid.all() else (x[valid], y[valid])


def _read_python(path: Path, label_key: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    content = read_pickle(path)
    try:
        x, labels = content[b"data"], content[label_key]
    except (KeyError, TypeError):
        raise DataError(f"{path}: holds no {label_key.decode()} or no data") from None
    if not isinstance(x, np.ndarray) or x.dtype != np.uint8 or x.ndim != 2 or x.shape[1] != PIXELS:
        raise DataError(f"{path}: its data are not rows of {PIXELS} bytes")
    if not isinstance(labels, np.ndarray):
        # Checked before numpy expands nested lists, which can be few bytes in the file.
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
    raw = np.frombuffer(read_bounded(path, MAX_BYTES), np.uint8)
    record = label_bytes + PIXELS
    if raw.size == 0 or raw.size % record:
        raise DataError(f"{path}: {raw.size:,} bytes are no whole number of records of {record}: truncated?")
    records = raw.reshape(-1, record)
    return records[:, label_bytes:], records[:, label_bytes - 1].astype(np.int64)


def _class_names(folder: Path, kind: Cifar, binary: bool) -> tuple[str, ...]:
    """Return the names if the file that lists them is there, else the numbers."""
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


def _toronto(name: str, size: int, md5: str) -> RemoteFile:
    return RemoteFile(name, (f"https://www.cs.toronto.edu/~kriz/{name}",), size, md5)


def _data_set(title: str, kind: Cifar, python: str, binary: str, archives: tuple[RemoteFile, RemoteFile]) -> DataSet:
    """Make a row of the table; a copy may lie under the data root or in a folder of its own."""
    names, own = (*kind.train, *kind.test), title.lower().replace("-", "")
    return DataSet(
        title,
        f"60,000 32x32 colour images, {kind.classes} classes",
        partial(read_cifar, kind=kind),
        {"training": 50_000, "test": 10_000},
        archives[:1],
        {
            **dict.fromkeys((python, f"{own}/{python}"), names),
            **dict.fromkeys((binary, f"{own}/{binary}"), tuple(f"{name}.bin" for name in names)),
        },
        archives[1:],
    )


# Means and deviations as in PyCIL and Avalanche; CIFAR-10's deviations are those of single images
# there, the deviation over all pixels is (.2470, .2435, .2616).
KIND10 = Cifar(
    10, dict.fromkeys(BATCHES, 10_000), {"test_batch": 10_000}, b"labels", 1,
    ("batches.meta", b"label_names"), "batches.meta.txt", (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010),
)  # fmt: skip
KIND100 = Cifar(
    100, {"train": 50_000}, {"test": 10_000}, b"fine_labels", 2,
    ("meta", b"fine_label_names"), "fine_label_names.txt", (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761),
)  # fmt: skip
CIFAR10 = _data_set(
    "CIFAR-10", KIND10, "cifar-10-batches-py", "cifar-10-batches-bin",
    (
        _toronto("cifar-10-python.tar.gz", 170498071, "c58f30108f718f92721af3b95e74349a"),
        _toronto("cifar-10-binary.tar.gz", 170052171, "c32a1d4ab5d03f1284b67883e8d87530"),
    ),
)  # fmt: skip
CIFAR100 = _data_set(
    "CIFAR-100", KIND100, "cifar-100-python", "cifar-100-binary",
    (
        _toronto("cifar-100-python.tar.gz", 169001437, "eb9058c3a382ffc7106e4002c42a8d85"),
        _toronto("cifar-100-binary.tar.gz", 168513733, "03b5dce01913d631647c71ecec9e9cb8"),
    ),
)  # fmt: skip
