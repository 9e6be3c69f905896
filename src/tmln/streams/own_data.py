"""The user's own data as samples, with the names of its classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tmln.data.images import Fit, Pixels
from tmln.data.own_data import (
    DEFAULT_SIDE,
    OwnData,
    choose_reader,
    find_pictures,
    read_inputs,
    read_own_data,
    read_pictures,
)
from tmln.streams.arrays import as_samples
from tmln.streams.samples import Samples


@dataclass(frozen=True, eq=False)
class OwnSamples:
    """Samples to train on, samples for tests only (None if there are none), and class names.

    ``fit`` is how pictures became squares, None of arrays; ``left_out`` names bad files.
    """

    train: Samples
    test: Samples | None
    names: tuple[str, ...] | None
    fit: Fit | None = None
    left_out: tuple[str, ...] = ()


def read_own_samples(
    place: str | Path,
    shape: Sequence[int] | None = None,
    side: int | None = None,
    largest: int = DEFAULT_SIDE,
    fit: Fit = "pad",
    skip_bad: bool = False,
) -> OwnSamples:
    """Read a folder of classes or domains, or an ``.npz``.

    See :func:`tmln.data.own_data.read_own_data`.
    """
    found = read_own_data(place, shape, side, largest, fit, skip_bad)
    samples = _samples(found)
    is_test, applied = torch.from_numpy(found.is_test), fit if found.pictures else None
    if not is_test.any():
        return OwnSamples(samples, None, found.names, applied, found.left_out)
    train, test = (samples.subset((is_test == role).nonzero().squeeze(1)) for role in (False, True))
    return OwnSamples(train, test, found.names, applied, found.left_out)


def _samples(found: OwnData) -> Samples:
    if not found.pictures:
        return as_samples((found.inputs, found.labels))
    return Samples.of(torch.from_numpy(found.inputs), torch.from_numpy(found.labels), channels_last=True)


def read_own_inputs(
    places: Sequence[str | Path], shape: Sequence[int], fit: Fit = "pad", skip_bad: bool = False
) -> tuple[Samples, list[Path]]:
    """Read images, or the rows of ``.npz`` files, without labels (all are 0), and their names."""
    files = [Path(place).expanduser() for place in places]
    if any(file.suffix == ".npz" for file in files):
        if odd := [file for file in files if file.suffix != ".npz"]:
            raise ValueError(f"{odd[0]} among files of arrays: predict pictures or arrays, not both at once")
        arrays = [read_inputs(file, shape) for file in files]
        rows = [Path(f"{file}[{row}]") for file, x in zip(files, arrays, strict=True) for row in range(len(x))]
        return as_samples((np.concatenate(arrays), np.zeros(len(rows), np.int64))), rows
    paths = find_pictures(places)
    if not paths:
        raise ValueError(f"no pictures in {', '.join(map(str, places)) or 'nothing'}")
    pixels, paths = read_pictures(paths, shape, fit, skip_bad)
    return _make_unlabelled(pixels), paths


def find_decoded(data: Any, shape: Sequence[int]) -> list[Any] | None:
    """Return pictures that are no files: Pillow images, encoded bytes, uint8 arrays [H, W, C].

    None: ``data`` is something else, such as a batch of inputs of ``shape``.
    """
    if len(shape) != 3:
        return None
    if is_picture(data):
        return [data]
    if isinstance(data, np.ndarray):
        whole = data.dtype == np.uint8 and data.ndim == 4 and data.shape[1:] != tuple(shape)
        return list(data) if whole and len(data) and is_picture(data[0]) else None
    if isinstance(data, (list, tuple)) and data and all(map(is_picture, data)):
        return list(data)
    return None


def is_picture(value: Any) -> bool:
    """Return whether this is one picture: a Pillow image, encoded bytes, a uint8 array."""
    if isinstance(value, np.ndarray):
        fits = value.ndim == 2 or (value.ndim == 3 and value.shape[-1] in (1, 3, 4))
        return value.dtype == np.uint8 and fits and value.size > 0
    return isinstance(value, bytes) or type(value).__module__.partition(".")[0] == "PIL"


def read_decoded(pictures: Sequence[Any], shape: Sequence[int], fit: Fit) -> Samples:
    """Prepare pictures that are no files as those of files are; labels are all 0."""
    read = choose_reader((), shape, None, fit=fit)
    made = [
        read.decode(picture, f"picture {number}")
        if isinstance(picture, bytes)
        else read.convert(picture, f"picture {number}")
        for number, picture in enumerate(pictures)
    ]
    return _make_unlabelled(np.stack(made))


def _make_unlabelled(pixels: Pixels) -> Samples:
    return Samples.of(torch.from_numpy(pixels), torch.zeros(len(pixels), dtype=torch.int64), channels_last=True)
