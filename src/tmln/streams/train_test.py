"""Training and test samples of one data set, read, shrunk and grouped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tmln.data import Arrays, BadData, ImageFiles, data_root, read_data
from tmln.data.dataset import Colour
from tmln.data.images import ImageReader
from tmln.data.texts import Texts
from tmln.models.text_model import read_tokenizer, tokenise
from tmln.streams.benchmarks import Benchmark
from tmln.streams.options import Options, PictureOptions, TextOptions
from tmln.streams.samples import UNKNOWN_LABEL, Samples, TensorSource


@dataclass(frozen=True, eq=False)
class TrainTestData:
    """Training and test samples of one data set, all of them and those of each group."""

    train: Samples
    test: Samples
    class_names: tuple[str, ...]
    mean: Colour = (0.0,)
    std: Colour = (1.0,)
    groups: Mapping[str, tuple[Samples, Samples]] = field(default_factory=dict)
    videos: torch.Tensor | None = None  # the video of every row of the source
    unknown: Samples | None = None  # of no class, for tests alone

    @classmethod
    def from_arrays(cls, arrays: Arrays, in_order: bool = False) -> TrainTestData:
        """Make samples that share one source.

        ``in_order`` says that the files of a folder are similar to their neighbours, like frames.
        """
        pixels = torch.from_numpy(arrays.pixels)
        source = TensorSource(pixels, channels_last=True) if pixels.dim() == 4 else TensorSource(pixels.unsqueeze(1))
        rows = torch.arange(len(source)) if arrays.rows is None else torch.from_numpy(arrays.rows)
        pool = cls._from_source(source, rows, arrays)
        if in_order and arrays.folders is not None:
            videos = torch.zeros(len(source), dtype=torch.int64)
            videos[rows] = torch.from_numpy(arrays.folders)
            pool = replace(pool, videos=videos)
        return replace(pool, mean=arrays.mean, std=arrays.std)

    @classmethod
    def from_texts(cls, texts: Texts, length: int, tokenizer: str) -> TrainTestData:
        """Make samples of ``length`` tokens that share one source."""
        source = TensorSource(tokenise(texts.texts, length, tokenizer))
        pool = cls._from_source(source, torch.arange(len(source)), texts)
        if not texts.unknown:
            return pool
        labels = torch.full((len(texts.unknown),), UNKNOWN_LABEL)
        return replace(pool, unknown=Samples.of(tokenise(texts.unknown, length, tokenizer), labels))

    @classmethod
    def _from_source(cls, source: TensorSource, rows: torch.Tensor, data: Arrays | Texts) -> TrainTestData:
        samples, is_test = Samples(source, torch.from_numpy(data.labels), rows), torch.from_numpy(data.is_test)

        def parts(mine: torch.Tensor) -> tuple[Samples, Samples]:
            train, test = ((mine & (is_test == role)).nonzero().squeeze(1) for role in (False, True))
            return samples.subset(train), samples.subset(test)

        train, test = parts(torch.ones_like(is_test))
        groups = {
            name: parts(torch.from_numpy(data.groups) == index)
            for index, name in enumerate(data.group_names)
            if data.groups is not None
        }
        return cls(train, test, data.class_names, groups=groups)


def read_train_test(name: str, row: Benchmark, options: Options) -> TrainTestData:
    """Read the data set of a benchmark; of image files, only those that the options select."""
    with BadData(name, options.skip_bad) as bad:
        held = read_data(str(row.data), bad, options.root)
        if isinstance(held, ImageFiles):
            files = read_at_size(held, options.size) if isinstance(options, PictureOptions) else held
            arrays = load_files(files, str(row.data), options, bad)
        elif isinstance(held, Texts):
            if not isinstance(options, TextOptions):
                raise TypeError(f"{name}: its options are not those of texts")
            return TrainTestData.from_texts(held, options.length, read_tokenizer(options.tokenizer))
        else:
            arrays = held
        return TrainTestData.from_arrays(shrink_images(arrays, getattr(options, "shrink", 1), name))


def shrink_images(arrays: Arrays, factor: int, name: str) -> Arrays:
    """Average blocks of ``factor`` x ``factor`` pixels, rounded half to even."""
    if factor == 1:
        return arrays
    count, height, width = arrays.pixels.shape[:3]
    if height % factor or width % factor:
        raise ValueError(
            f"{name}: images of {height}x{width} pixels have no blocks of {factor}x{factor}; shrink={factor}"
        )
    pixels = np.empty((count, height // factor, width // factor, *arrays.pixels.shape[3:]), np.uint8)
    for start in range(0, count, 128):  # images that fit into a processor's cache
        part = arrays.pixels[start : start + 128]
        rows = _sum_neighbours(part, 1, factor, np.min_scalar_type(255 * factor**2))
        sums = _sum_neighbours(rows, 2, factor, rows.dtype)
        pixels[start : start + 128] = np.rint(np.divide(sums, factor**2, dtype=np.float32))
    return replace(arrays, pixels=pixels)


def _sum_neighbours(images: NDArray[Any], axis: int, factor: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Sum ``factor`` neighbours along an axis: slices are ten times as fast as numpy's sum."""
    along = [(slice(None),) * axis + (slice(first, None, factor),) for first in range(factor)]
    total = images[along[0]].astype(dtype)
    for neighbours in along[1:]:
        total += images[neighbours]
    return total


def read_at_size(files: ImageFiles, size: int) -> ImageFiles:
    """Return the files with a reader that gives ``size`` x ``size`` pixels."""
    if not isinstance(files.read, ImageReader):
        raise TypeError(f"images are resized by an ImageReader, not by {files.read!r}")
    return replace(files, read=replace(files.read, size=size))


def load_files(files: ImageFiles, data: str, options: Options, bad: BadData) -> Arrays:
    """Read the files that the options select; if memory is short, into the data set's cache."""
    cache = data_root(options.root) / "prepared" / data
    wanted = files.limit_per_class(options.per_class, options.per_class_test)
    return wanted.load(bad, cache, getattr(options, "memory_limit", None))
