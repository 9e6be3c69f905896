"""Labelled samples before they are tasks, and what all ways of making tasks of them share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tmln.data import Arrays, BadData, ImageFiles, data_root, read_data
from tmln.data.dataset import Colour
from tmln.streams.augment import Normalise
from tmln.streams.benchmarks import Benchmark
from tmln.streams.boundaries import blur, repeat
from tmln.streams.options import Options
from tmln.streams.samples import Rows, Samples, of_classes
from tmln.streams.stream import Augment, Prepare, Stream, Task
from tmln.streams.validation import with_validation


@dataclass(frozen=True, eq=False)
class Pool:
    """Training and test samples of one data set, all of them and those of each group."""

    train: Samples
    test: Samples
    class_names: tuple[str, ...]
    mean: Colour = (0.0,)
    std: Colour = (1.0,)
    groups: Mapping[str, tuple[Samples, Samples]] = field(default_factory=dict)
    videos: torch.Tensor | None = None  # of every row of the source, where neighbours are alike

    @classmethod
    def of(cls, arrays: Arrays, in_order: bool = False) -> Pool:
        """What was read, as samples that share one source; ``in_order`` of files that are alike in each folder."""
        pixels, is_test = torch.from_numpy(arrays.pixels), torch.from_numpy(arrays.is_test)
        source = Rows(pixels, channels_last=True) if pixels.dim() == 4 else Rows(pixels.unsqueeze(1))
        rows = torch.arange(len(source)) if arrays.rows is None else torch.from_numpy(arrays.rows)
        samples = Samples(source, torch.from_numpy(arrays.labels), rows)

        def parts(mine: torch.Tensor) -> tuple[Samples, Samples]:
            train, test = ((mine & (is_test == role)).nonzero().squeeze(1) for role in (False, True))
            return samples.subset(train), samples.subset(test)

        train, test = parts(torch.ones_like(is_test))
        groups = {
            name: parts(torch.from_numpy(arrays.groups) == index)
            for index, name in enumerate(arrays.group_names)
            if arrays.groups is not None
        }
        videos = None
        if in_order and arrays.folders is not None:
            videos = torch.zeros(len(source), dtype=torch.int64)
            videos[rows] = torch.from_numpy(arrays.folders)
        return cls(train, test, arrays.class_names, arrays.mean, arrays.std, groups, videos)


def read_pool(name: str, row: Benchmark, options: Options) -> Pool:
    """The samples of a benchmark's data set; of image files, those that are wanted are read."""
    with BadData(name, options.skip_bad) as bad:
        held = read_data(str(row.data), bad, options.root)
        arrays = load(held, str(row.data), options, bad) if isinstance(held, ImageFiles) else held
        return Pool.of(shrunk(arrays, getattr(options, "shrink", 1), name))


def shrunk(arrays: Arrays, factor: int, name: str) -> Arrays:
    """The images with blocks of ``factor`` x ``factor`` pixels averaged into one, rounded, halves to even."""
    if factor == 1:
        return arrays
    count, height, width = arrays.pixels.shape[:3]
    if height % factor or width % factor:
        raise ValueError(
            f"{name}: images of {height}x{width} pixels have no blocks of {factor}x{factor}; shrink={factor}"
        )
    pixels = np.empty((count, height // factor, width // factor, *arrays.pixels.shape[3:]), np.uint8)
    for start in range(0, count, 128):  # as many images as a processor's cache holds
        part = arrays.pixels[start : start + 128]
        rows = _summed(part, 1, factor, np.min_scalar_type(255 * factor**2))
        sums = _summed(rows, 2, factor, rows.dtype)
        pixels[start : start + 128] = np.rint(np.divide(sums, factor**2, dtype=np.float32))
    return replace(arrays, pixels=pixels)


def _summed(images: NDArray[Any], axis: int, factor: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """``factor`` neighbours along the axis added up: slice by slice, ten times as fast as numpy's sum over an axis."""
    along = [(slice(None),) * axis + (slice(first, None, factor),) for first in range(factor)]
    total = images[along[0]].astype(dtype)
    for neighbours in along[1:]:
        total += images[neighbours]
    return total


def load(files: ImageFiles, data: str, options: Options, bad: BadData) -> Arrays:
    """The files that the options leave, read; those that do not fit into memory go to the data set's cache."""
    cache = data_root(options.root) / "prepared" / data
    wanted = files.limit_per_class(options.per_class, options.per_class_test)
    return wanted.load(bad, cache, getattr(options, "memory_limit", None))


def assemble(
    name: str,
    pool: Pool,
    options: Options,
    tasks: Iterable[Task],
    metadata: Mapping[str, object],
    *,
    augment: Augment | None = None,
    prepare: Prepare | None = None,
    shape: tuple[int, ...] | None = None,
    extra_tests: Mapping[str, Samples] | None = None,
) -> Stream:
    """A stream of complete tasks, with the validation split and the repeated and blurry boundaries asked for."""
    with BadData(name, options.skip_bad) as bad:
        sound = complete(tasks, pool.class_names, bad)
    sound = with_validation(sound, options.validation, options.seed, pool.videos)
    plain = Normalise(pool.mean, pool.std)
    return Stream(
        name,
        blur(repeat(sound, options.repeats), options.blurry, options.seed),
        pool.class_names,
        shape or pool.train.shape,
        augment or plain,
        prepare or plain,
        pool.mean,
        pool.std,
        extra_tests or {},
        metadata,
    )


def complete(tasks: Iterable[Task], class_names: Sequence[str], bad: BadData) -> tuple[Task, ...]:
    """The tasks, checked; a class without training or without test samples is a complaint, then left out."""
    checked = []
    for task in tasks:
        trained, is_test = set(task.train.classes), set(task.test.classes)
        classes = []
        for label in task.classes:
            where = f"{task.name}, class {class_names[label]!r}"
            if label not in trained:
                bad.add(where, "no training samples")
            elif label not in is_test:
                bad.add(where, "missing from the task's test set")
            else:
                classes.append(label)
        if len(classes) < len(task.classes):
            train, test = of_classes(task.train, classes), of_classes(task.test, classes)
            task = replace(task, train=train, test=test, classes=tuple(classes))
        if classes:
            checked.append(task)
        else:
            bad.add(task.name, "no class with training and test samples")
    return tuple(checked)
