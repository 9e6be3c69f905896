"""The ways in which data become tasks: by class, in ever new guises, session by session, folder by folder."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from tmln.data import BadData, ImageFile, ImageFiles, read_data
from tmln.data.folder import hold_out, read_folder
from tmln.data.image_files import count_held_out
from tmln.data.images import ImageReader
from tmln.streams.augment import ResizeCentre, augment_of
from tmln.streams.benchmarks import Benchmark
from tmln.streams.domain import domain_incremental, permutations, rotations
from tmln.streams.options import Core50Options, DomainOptions, FolderOptions, ImageOptions, Options, SplitOptions
from tmln.streams.pool import Pool, assemble, load, read_pool, shrunk
from tmln.streams.samples import concat
from tmln.streams.split import class_incremental, class_order
from tmln.streams.stream import Stream, Task


def split(name: str, row: Benchmark, options: SplitOptions) -> Stream:
    """Tasks of classes that follow a stated order."""
    pool = read_pool(name, row, options)
    factor = options.shrink if isinstance(options, ImageOptions) else 1
    augment = augment_of(row.augment, pool.train.shape, pool.mean, pool.std, row.brightness, factor)
    return class_incremental(name, pool, options, tasks=row.tasks or 1, augment=augment)


def permuted(name: str, row: Benchmark, options: Options) -> Stream:
    """The images as they are, then fixed shuffles of their pixels."""
    pool = read_pool(name, row, options)
    domains = permutations(options.tasks or row.tasks or 1, math.prod(pool.train.shape), options.seed)
    return domain_incremental(name, pool, options, domains)


def rotated(name: str, row: Benchmark, options: Options) -> Stream:
    """The images turned in equal steps."""
    return domain_incremental(name, read_pool(name, row, options), options, rotations(options.tasks or row.tasks or 1))


def domains(name: str, row: Benchmark, options: DomainOptions) -> Stream:
    """One task a domain of image files, tested on held-out files of its own."""
    with BadData(name, options.skip_bad) as bad:
        files = read_data(str(row.data), bad, options.root)
        if not isinstance(files, ImageFiles):
            raise TypeError(f"{name}: domains are made of image files, not of arrays")
        names = files.group_names[: options.tasks]
        wanted = [file for file in files.files if file.group < len(names)]
        marked = replace(files, files=hold_out(wanted, options.test_fraction, options.seed))
        pool = Pool.of(shrunk(load(marked, str(row.data), options, bad), options.shrink, name))
    tasks = by_group(pool, names, [tuple(range(len(pool.class_names)))] * len(names), domains=True)
    augment = augment_of(row.augment, pool.train.shape, pool.mean, pool.std, row.brightness, options.shrink)
    metadata = {"scenario": "domain-incremental", "domains": list(names), "test_fraction": options.test_fraction}
    return assemble(name, pool, options, tasks, metadata, augment=augment)


def sessions(name: str, row: Benchmark, options: Core50Options) -> Stream:
    """One task a session, tested on held-out frames of its own; the official test frames are ``extra_tests``."""
    with BadData(name, options.skip_bad) as bad:
        files = read_data(str(row.data), bad, options.root)
        if not isinstance(files, ImageFiles):
            raise TypeError(f"{name}: sessions are made of image files, not of arrays")
        official = {file.group for file in files.files if file.test}
        training = [group for group in range(len(files.group_names)) if group not in official]
        order = class_order(options.session_order, len(training), options.seed)
        training = [training[index] for index in order][: options.tasks]
        wanted = [file for file in files.files if file.test or file.group in training]
        marked = replace(files, files=held_out(wanted, options))
        pool = Pool.of(load(marked, str(row.data), options, bad), in_order=True)
    names, shape = [files.group_names[group] for group in training], (3, options.size, options.size)
    return assemble(
        name,
        pool,
        options,
        by_group(pool, names, [tuple(range(len(pool.class_names)))] * len(names), domains=True),
        {
            "scenario": "domain-incremental",
            "domains": names,
            "holdout": options.holdout,
            "holdout_fraction": options.holdout_fraction,
        },
        augment=augment_of(row.augment, shape, pool.mean, pool.std, row.brightness),
        prepare=ResizeCentre(options.size, pool.mean, pool.std, options.test_resize),
        shape=shape,
        extra_tests={"official": concat([pool.groups[files.group_names[group]][1] for group in sorted(official)])},
    )


def held_out(files: Sequence[ImageFile], options: Core50Options) -> list[ImageFile]:
    """The files, with some of every video (the frames in one folder) marked as those that test its task."""
    generator = np.random.RandomState(options.seed)
    marked: list[ImageFile] = []
    for _, video in groupby(files, lambda file: file.path.parent):
        frames = list(video)
        if not frames[0].test:
            count = len(frames)
            tested = count_held_out(count, options.holdout_fraction)
            tail = options.holdout == "tail"
            drawn = set(range(count - tested, count) if tail else generator.permutation(count)[:tested].tolist())
            frames = [replace(file, test=index in drawn) for index, file in enumerate(frames)]
        marked += frames
    return marked


def folder(name: str, row: Benchmark, options: FolderOptions) -> Stream:
    """Tasks by folder; or, from one folder of classes, ``tasks`` tasks (by default of two classes)."""
    name = f"folder:{options.path}"
    nested = {"auto": None, "classes": False}.get(options.layout, True)
    with BadData(name, options.skip_bad) as bad:
        reader = ImageReader(options.mode, options.size)
        files = read_folder(options.path.expanduser(), bad, reader, nested, options.test_fraction, options.seed)
        pool = Pool.of(load(files, "folder", options, bad), in_order=True)
    augment = augment_of(options.augment, pool.train.shape, pool.mean, pool.std)
    names = list(pool.groups)
    if not names:
        return class_incremental(
            name, pool, options, tasks=row.tasks or max(1, len(pool.class_names) // 2), augment=augment
        )
    if options.tasks not in (None, len(names)) or options.class_order != "ascending":
        raise ValueError(f"{name}: its {len(names)} folders are the tasks; tasks and class_order are for classes")
    classes = [tuple(sorted({*train.classes, *test.classes})) for train, test in pool.groups.values()]
    shared = len(names) > 1 and len(set(classes)) == 1
    domains = options.layout == "domains" or (options.layout == "auto" and shared)
    scenario = "domain-incremental" if domains else "class-incremental"
    tasks = by_group(pool, names, classes, domains)
    return assemble(name, pool, options, tasks, {"scenario": scenario, "tasks": names}, augment=augment)


def by_group(pool: Pool, names: Sequence[str], classes: Sequence[tuple[int, ...]], domains: bool) -> list[Task]:
    """One task a group of the pool, each with its classes; the group is its domain where all have the same."""
    return [
        Task(group, *pool.groups[group], mine, group if domains else None)
        for group, mine in zip(names, classes, strict=True)
    ]


SCENARIOS: dict[str, Callable[[str, Benchmark, Any], Stream]] = {
    "split": split,
    "permuted": permuted,
    "rotated": rotated,
    "sessions": sessions,
    "domains": domains,
    "folder": folder,
}
