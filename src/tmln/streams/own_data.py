"""Data of the user's own as samples, with the names of its classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from tmln.data.own_data import OwnData, find_pictures, read_inputs, read_own_data, read_pictures
from tmln.streams.arrays import as_samples
from tmln.streams.samples import Rows, Samples


@dataclass(frozen=True, eq=False)
class Own:
    """Samples to learn, samples that only test (None where the place has none apart), and what labels are called."""

    train: Samples
    test: Samples | None
    names: tuple[str, ...] | None


def own_samples(place: str | Path, shape: Sequence[int] | None = None, side: int | None = None) -> Own:
    """A folder of classes, of domains, or an ``.npz``: see :func:`tmln.data.own_data.read_own_data`."""
    found = read_own_data(place, shape, side)
    samples = _samples(found)
    is_test = torch.from_numpy(found.is_test)
    if not is_test.any():
        return Own(samples, None, found.names)
    train, test = (samples.subset((is_test == role).nonzero().squeeze(1)) for role in (False, True))
    return Own(train, test, found.names)


def _samples(found: OwnData) -> Samples:
    if not found.pictures:
        return as_samples((found.inputs, found.labels))
    return Samples.of(torch.from_numpy(found.inputs), torch.from_numpy(found.labels), channels_last=True)


def own_pictures(places: Sequence[str | Path], shape: Sequence[int]) -> tuple[Samples, list[Path]]:
    """Pictures, or the rows of files ``.npz``, without labels (all are 0), and where each is."""
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
    source = Rows(torch.from_numpy(read_pictures(paths, shape)), channels_last=True)
    return Samples(source, torch.zeros(len(paths), dtype=torch.int64), torch.arange(len(paths))), paths
