"""MNIST and Fashion-MNIST in idx files, as split, permuted and rotated streams."""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tmln.data.bad import BadData, DataError
from tmln.data.bounded import read_bounded
from tmln.data.sources import IDX_NAMES
from tmln.streams.data import locate
from tmln.streams.domain import domain_incremental, permutations, rotations
from tmln.streams.options import Options, SplitOptions
from tmln.streams.samples import Samples
from tmln.streams.split import Pool, class_incremental
from tmln.streams.stream import Stream

LARGEST = 1 << 28  # bytes of a file, packed or not; the largest of MNIST has 47e6
DIGITS = tuple(str(label) for label in range(10))
CLOTHES = (
    "T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """A uint8 array of so many dimensions from an idx file, plain or .gz; its size must be what it says."""
    source = path if path.exists() else path.with_name(f"{path.name}.gz")
    raw = read_bounded(source, LARGEST)
    unpacked = gzip.GzipFile(fileobj=io.BytesIO(raw)) if raw[:2] == b"\x1f\x8b" else io.BytesIO(raw)
    header = 4 + 4 * dimensions
    try:
        head = unpacked.read(header)
        if len(head) < header or head[:4] != bytes((0, 0, 8, dimensions)):
            raise DataError(f"{source}: not an idx file of bytes with {dimensions} dimension(s)")
        shape = struct.unpack(f">{dimensions}I", head[4:])
        size = math.prod(shape)
        if size > LARGEST:
            raise DataError(f"{source}: says that it has {size:,} bytes, more than the {LARGEST:,} that are read")
        content = bytearray(unpacked.read(size + 1))  # one more than there should be, never all that there is
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{source}: cannot be read ({error})") from error
    if len(content) != size:
        found = f"{len(content):,}" if len(content) < size else f"more than {size:,}"
        raise DataError(f"{source}: {found} bytes for shape {shape}: truncated?")
    return np.frombuffer(content, np.uint8).reshape(shape)


def read_mnist(folder: Path, class_names: tuple[str, ...], mean: float, std: float, bad: BadData) -> Pool:
    """Both splits of an unpacked copy, checked: number, size, labels."""
    parts = []
    for images, labels in (IDX_NAMES[:2], IDX_NAMES[2:]):
        x, y = read_idx(folder / images, 3), read_idx(folder / labels, 1).astype(np.int64)
        if len(x) != len(y) or len(x) == 0:
            raise DataError(f"{folder / images}: {len(x):,} images but {len(y):,} labels")
        wrong = y >= len(class_names)
        for row in np.flatnonzero(wrong).tolist():
            bad.add(folder / labels, f"image {row} has label {y[row]}, not one of 0..{len(class_names) - 1}")
        x, y = x[~wrong], y[~wrong]
        parts.append(Samples.of(torch.from_numpy(x).unsqueeze(1), torch.from_numpy(y)))
    return Pool(parts[0], parts[1], class_names, (mean,), (std,))


def load_mnist(name: str, options: Options) -> Pool:
    with BadData(name, options.skip_bad) as bad:
        return read_mnist(locate("mnist", options.root), DIGITS, 0.1307, 0.3081, bad)


def split_mnist(options: SplitOptions) -> Stream:
    """Five tasks of two digits."""
    return class_incremental("split-mnist", load_mnist("split-mnist", options), options, tasks=5)


def permuted_mnist(options: Options) -> Stream:
    """Ten tasks: the digits as they are, then nine fixed shuffles of their pixels."""
    pool = load_mnist("permuted-mnist", options)
    pixels = int(np.prod(pool.train.shape))
    domains = permutations(options.tasks or 10, pixels, options.seed)
    return domain_incremental("permuted-mnist", pool, options, domains)


def rotated_mnist(options: Options) -> Stream:
    """Ten tasks: the digits turned in steps of 18 degrees."""
    pool = load_mnist("rotated-mnist", options)
    return domain_incremental("rotated-mnist", pool, options, rotations(options.tasks or 10))


def split_fashion_mnist(options: SplitOptions) -> Stream:
    """Five tasks of two kinds of clothes."""
    with BadData("split-fashion-mnist", options.skip_bad) as bad:
        pool = read_mnist(locate("fashion-mnist", options.root), CLOTHES, 0.2860, 0.3530, bad)
    return class_incremental("split-fashion-mnist", pool, options, tasks=5)
