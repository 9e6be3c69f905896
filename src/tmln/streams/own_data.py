"""The user's own data as samples, with the names of its classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tmln.data.folder import natural_key
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
from tmln.data.reading import DataError
from tmln.data.texts import number_classes, read_table
from tmln.models.text_model import tokenise
from tmln.streams.arrays import as_samples
from tmln.streams.samples import Samples

LENGTH = 128  # tokens read of each text, where nothing was learned yet


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
    tokenizer: str | None = None,
) -> OwnSamples:
    """Read a folder of classes or domains, an ``.npz``, or a table of texts with labels.

    See :func:`tmln.data.own_data.read_own_data`; ``tokenizer`` is that of a model of texts.
    """
    if is_text_table(place):
        return read_own_texts(Path(place).expanduser(), shape, tokenizer)
    found = read_own_data(place, shape, side, largest, fit, skip_bad)
    samples = _samples(found)
    is_test, applied = torch.from_numpy(found.is_test), fit if found.pictures else None
    if not is_test.any():
        return OwnSamples(samples, None, found.names, applied, found.left_out)
    train, test = (samples.subset((is_test == role).nonzero().squeeze(1)) for role in (False, True))
    return OwnSamples(train, test, found.names, applied, found.left_out)


def is_text_table(place: str | Path) -> bool:
    """Return whether a path is that of a table of texts."""
    return Path(place).suffix.lower() == ".csv"


def read_own_texts(path: Path, shape: Sequence[int] | None, tokenizer: str | None) -> OwnSamples:
    """Read a table with the columns text and label; classes are in the order of their names."""
    if tokenizer is None or (shape is not None and len(shape) != 1):
        raise DataError(f"{path} is a table of texts, and the model takes none: use minilm or transformers:FOLDER")
    texts, labels = read_table(path)
    if labels is None or not all(labels):
        raise DataError(f"{path}: every text that is to be learned needs a label, in the column label")
    names = tuple(sorted(set(labels), key=natural_key))
    tokens = tokenise(texts, LENGTH if shape is None else shape[0], tokenizer)
    return OwnSamples(Samples.of(tokens, torch.from_numpy(number_classes(labels, names))), None, names)


def read_own_sentences(given: Sequence[str | Path], shape: Sequence[int], tokenizer: str) -> tuple[Samples, list[str]]:
    """Return texts, and those in the column text of tables that exist, without labels."""
    texts: list[str] = []
    for one in given:
        texts += read_table(Path(one).expanduser())[0] if is_text_table(one) else [str(one)]
    if empty := [number for number, text in enumerate(texts, 1) if not text.strip()]:
        raise ValueError(f"text {empty[0]} of {len(texts)} is empty")
    return Samples.of(tokenise(texts, shape[0], tokenizer), torch.zeros(len(texts), dtype=torch.int64)), texts


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
