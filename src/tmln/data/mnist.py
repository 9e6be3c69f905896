"""MNIST (LeCun et al. 1998) and Fashion-MNIST (Xiao et al. 2017) in idx files."""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tmln.data.dataset import Arrays, DataSet, RemoteFile
from tmln.data.reading import BadData, DataError, read_bounded

MAX_BYTES = 1 << 28  # bytes of a file, packed or not; the largest of MNIST has 47e6
IDX_NAMES = (
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte",
)  # fmt: skip
DIGITS = tuple(str(label) for label in range(10))
CLOTHES = (
    "T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Return the uint8 array of an idx file, plain or .gz; its size must match its header."""
    source = path if path.exists() else path.with_name(f"{path.name}.gz")
    raw = read_bounded(source, MAX_BYTES)
    unpacked = gzip.GzipFile(fileobj=io.BytesIO(raw)) if raw[:2] == b"\x1f\x8b" else io.BytesIO(raw)
    header = 4 + 4 * dimensions
    try:
        head = unpacked.read(header)
        if len(head) < header or head[:4] != bytes((0, 0, 8, dimensions)):
            raise DataError(f"{source}: not an idx file of bytes with {dimensions} dimension(s)")
        shape = struct.unpack(f">{dimensions}I", head[4:])
        size = math.prod(shape)
        if size > MAX_BYTES:
            raise DataError(f"{source}: says that it has {size:,} bytes, more than the {MAX_BYTES:,} that are read")
        content = bytearray(unpacked.read(size + 1))  # one byte more than there should be, never the whole file
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{source}: cannot be read ({error})") from error
    if len(content) != size:
        found = f"{len(content):,}" if len(content) < size else f"more than {size:,}"
        raise DataError(f"{source}: {found} bytes for shape {shape}: truncated?")
    return np.frombuffer(content, np.uint8).reshape(shape)


def read_mnist(folder: Path, bad: BadData, class_names: tuple[str, ...], mean: float, std: float) -> Arrays:
    """Read both splits of an unpacked copy; numbers, sizes and labels are checked."""
    pixels, labels = [], []
    for images, names in (IDX_NAMES[:2], IDX_NAMES[2:]):
        x, y = read_idx(folder / images, 3), read_idx(folder / names, 1).astype(np.int64)
        if len(x) != len(y) or len(x) == 0:
            raise DataError(f"{folder / images}: {len(x):,} images but {len(y):,} labels")
        valid = bad.check_labels(y, len(class_names), folder / names)
        pixels.append(x[valid])
        labels.append(y[valid])
    train, test = pixels
    if train.shape[1:] != test.shape[1:]:
        raise DataError(f"{folder}: training images of {train.shape[1:]} pixels, test images of {test.shape[1:]}")
    is_test = np.repeat([False, True], [len(train), len(test)])
    return Arrays(np.concatenate(pixels), np.concatenate(labels), is_test, class_names, (mean,), (std,))


def _data_set(
    title: str,
    summary: str,
    class_names: tuple[str, ...],
    colours: tuple[float, float],
    bases: tuple[str, ...],
    folders: tuple[str, ...],
    sums: tuple[tuple[int, str], ...],
) -> DataSet:
    """Make a row of the table; files are downloaded into the first of the folders.

    ``sums`` are sizes and MD5 sums in the order of the files.
    """
    files = tuple(
        RemoteFile(f"{name}.gz", tuple(f"{base}/{name}.gz" for base in bases), size, md5, folders[0])
        for name, (size, md5) in zip(IDX_NAMES, sums, strict=True)
    )
    read = partial(read_mnist, class_names=class_names, mean=colours[0], std=colours[1])
    counts = {"training": 60_000, "test": 10_000}
    return DataSet(title, summary, read, counts, files, dict.fromkeys(folders, IDX_NAMES))


MNIST = _data_set(
    "MNIST",
    "70,000 28x28 handwritten digits",
    DIGITS,
    (0.1307, 0.3081),
    ("https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist"),
    ("MNIST/raw", "mnist", "mnist/raw"),
    (
        (9912422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        (28881, "d53e105ee54ea40749a09fcbcd1e9432"),
        (1648877, "9fb629c4189551a2d022fa330f9573f3"),
        (4542, "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
)
FASHION_MNIST = _data_set(
    "Fashion-MNIST",
    "70,000 28x28 images of clothes",
    CLOTHES,
    (0.2860, 0.3530),
    (
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    ),
    ("FashionMNIST/raw", "fashion-mnist", "fashion_mnist"),
    (
        (26421880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        (29515, "25c81989df183df01b3e8a0aad5dffbe"),
        (4422102, "bef4ecab320f06d8554ea6380940ec79"),
        (5148, "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
)
