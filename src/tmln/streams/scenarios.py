"""How data become tasks: by class, permutation, rotation, domain, session or folder."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import torch

from tmln.data import BadData, ImageFile, ImageFiles, locate, read_data
from tmln.data.folder import hold_out, read_folder
from tmln.data.image_files import count_held_out, pick_evenly
from tmln.data.images import ImageReader
from tmln.data.texts import DOMAINS, ORDERS, read_domains
from tmln.models.text_model import read_tokenizer
from tmln.streams.assemble import assemble
from tmln.streams.augment import ResizeCentre, make_augment
from tmln.streams.benchmarks import Benchmark
from tmln.streams.incremental import (
    make_permutations,
    make_rotations,
    resolve_class_order,
    split_by_class,
    split_by_domain,
)
from tmln.streams.options import (
    Core50Options,
    DomainOptions,
    FolderOptions,
    Options,
    OwnOptions,
    SplitOptions,
    TextDomainOptions,
    TextOptions,
)
from tmln.streams.samples import concat, select_classes
from tmln.streams.stream import Augment, Stream, Task
from tmln.streams.train_test import TrainTestData, load_files, read_at_size, read_train_test, shrink_images
from tmln.suggest import did_you_mean


def choose_augment(
    row: Benchmark, options: Options, pool: TrainTestData, shape: tuple[int, ...] | None = None
) -> Augment | None:
    """Return the augmentation that the options ask for; ``auto`` is the benchmark's own."""
    kind = row.augment if options.augment == "auto" else options.augment
    if isinstance(options, (TextOptions, TextDomainOptions)) and kind != "none":
        raise ValueError(f"augment={kind} varies images, and these are texts: leave it out")
    shrink = getattr(options, "shrink", 1)
    return make_augment(kind, shape or pool.train.shape, pool.mean, pool.std, crop=row.crop, shrink=shrink)


def make_split(name: str, row: Benchmark, options: SplitOptions) -> Stream:
    """Make class-incremental tasks in a given order of classes."""
    pool = read_train_test(name, row, options)
    augment = choose_augment(row, options, pool)
    stream = split_by_class(name, pool, options, tasks=row.tasks or 1, augment=augment)
    if pool.unknown is None or stream.heads:
        return stream
    most = options.per_class_test and options.per_class_test * stream.classes
    some = torch.tensor(pick_evenly(len(pool.unknown), most))
    return replace(stream, extra_tests={"unknown": pool.unknown.subset(some)})


def make_permuted(name: str, row: Benchmark, options: Options) -> Stream:
    """Make tasks of the original images, then of fixed permutations of their pixels."""
    if options.augment not in ("auto", "none"):
        raise ValueError(f"{name}: its pixels are permuted, so that augment={options.augment} makes no sense; use none")
    pool = read_train_test(name, row, options)
    domains = make_permutations(options.tasks or row.tasks or 1, math.prod(pool.train.shape), options.seed)
    return split_by_domain(name, pool, options, domains)


def make_rotated(name: str, row: Benchmark, options: Options) -> Stream:
    """Make tasks of images rotated in equal steps."""
    pool = read_train_test(name, row, options)
    domains = make_rotations(options.tasks or row.tasks or 1)
    return split_by_domain(name, pool, options, domains, augment=choose_augment(row, options, pool))


def make_domains(name: str, row: Benchmark, options: DomainOptions) -> Stream:
    """Make one task per domain of image files, tested on held-out files of the domain."""
    with BadData(name, options.skip_bad) as bad:
        files = read_data(str(row.data), bad, options.root)
        if not isinstance(files, ImageFiles):
            raise TypeError(f"{name}: domains are made of image files, not of arrays")
        names = files.group_names[: options.tasks]
        wanted = [file for file in files.files if file.group < len(names)]
        marked = replace(read_at_size(files, options.size), files=hold_out(wanted, options.test_fraction, options.seed))
        pool = TrainTestData.from_arrays(
            shrink_images(load_files(marked, str(row.data), options, bad), options.shrink, name)
        )
    tasks = make_group_tasks(pool, names, [tuple(range(len(pool.class_names)))] * len(names), domains=True)
    augment = choose_augment(row, options, pool)
    metadata = {"scenario": "domain-incremental", "domains": list(names), "test_fraction": options.test_fraction}
    return assemble(name, pool, options, tasks, metadata, augment=augment)


def make_text_domains(name: str, row: Benchmark, options: TextDomainOptions) -> Stream:
    """Make one task per domain of texts, with the classes of the domain."""
    names = order_domains(options)[: options.tasks]
    with BadData(name, options.skip_bad) as bad:
        texts = read_domains(locate(str(row.data), options.root), bad, names)
    pool = TrainTestData.from_texts(texts, options.length, read_tokenizer(options.tokenizer))
    classes = [train.classes for train, _ in pool.groups.values()]
    groups = {
        group: (
            select_classes(train, mine, options.per_class),
            select_classes(test, mine, options.per_class_test),
        )
        for (group, (train, test)), mine in zip(pool.groups.items(), classes, strict=True)
    }
    tasks = make_group_tasks(replace(pool, groups=groups), names, classes, domains=True)
    metadata = {"scenario": "domain-incremental", "domains": names}
    return assemble(name, pool, options, tasks, metadata, augment=choose_augment(row, options, pool))


def order_domains(options: TextDomainOptions) -> list[str]:
    """Return the domains that are asked for, in their order.

    >>> order_domains(TextDomainOptions()), order_domains(TextDomainOptions(order="agnews,yelp"))
    (['yelp', 'amazon', 'dbpedia', 'agnews'], ['agnews', 'yelp'])
    """
    order = [word.strip() for word in ORDERS.get(options.order, options.order).split(",")]
    requested = [word.strip() for word in options.domains.split(",")]
    for word in (*order, *requested):
        if word not in DOMAINS:
            raise ValueError(f"text-domains has no domain {word!r}{did_you_mean(word, DOMAINS)} ({', '.join(DOMAINS)})")
    names = [word for word in dict.fromkeys(order) if word in requested]
    if not names:
        raise ValueError(f"none of domains={options.domains} is in order={options.order}")
    return names


def make_sessions(name: str, row: Benchmark, options: Core50Options) -> Stream:
    """Make one task per session, tested on held-out frames.

    ``extra_tests`` are the official test frames.
    """
    if options.augment == "shift-flip":
        raise ValueError(f"{name}: frames are resized to {options.size} pixels; use augment=crop-flip or none")
    with BadData(name, options.skip_bad) as bad:
        files = read_data(str(row.data), bad, options.root)
        if not isinstance(files, ImageFiles):
            raise TypeError(f"{name}: sessions are made of image files, not of arrays")
        official = {file.group for file in files.files if file.test}
        training = [group for group in range(len(files.group_names)) if group not in official]
        order = resolve_class_order(options.session_order, len(training), options.seed)
        training = [training[index] for index in order][: options.tasks]
        wanted = [file for file in files.files if file.test or file.group in training]
        marked = replace(files, files=hold_out_frames(wanted, options))
        pool = TrainTestData.from_arrays(load_files(marked, str(row.data), options, bad), in_order=True)
    names, shape = [files.group_names[group] for group in training], (3, options.size, options.size)
    prepare = ResizeCentre(options.size, pool.mean, pool.std, options.test_resize)
    return assemble(
        name,
        pool,
        options,
        make_group_tasks(pool, names, [tuple(range(len(pool.class_names)))] * len(names), domains=True),
        {
            "scenario": "domain-incremental",
            "domains": names,
            "holdout": options.holdout,
            "holdout_fraction": options.holdout_fraction,
        },
        augment=choose_augment(row, options, pool, shape) or prepare,
        prepare=prepare,
        shape=shape,
        extra_tests={"official": concat([pool.groups[files.group_names[group]][1] for group in sorted(official)])},
    )


def hold_out_frames(files: Sequence[ImageFile], options: Core50Options) -> list[ImageFile]:
    """Mark some frames of every video (the files in one folder) as test images of its task."""
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


def make_folder(name: str, row: Benchmark, options: FolderOptions) -> Stream:
    """Make tasks of folders, or of the classes in one folder (by default two classes per task)."""
    name = f"folder:{options.path}"
    nested = {"auto": None, "classes": False}.get(options.layout, True)
    with BadData(name, options.skip_bad) as bad:
        reader = ImageReader(options.mode, options.size)
        files = read_folder(options.path.expanduser(), bad, reader, nested, options.test_fraction, options.seed)
        pool = TrainTestData.from_arrays(load_files(files, "folder", options, bad), in_order=True)
    augment = choose_augment(row, options, pool)
    names = list(pool.groups)
    if not names:
        return split_by_class(
            name, pool, options, tasks=row.tasks or max(1, len(pool.class_names) // 2), augment=augment
        )
    by_class = options.class_order != "ascending" or options.first or options.task_classes
    if options.tasks not in (None, len(names)) or by_class:
        raise ValueError(
            f"{name}: its {len(names)} folders are the tasks; tasks, first, task_classes and "
            "class_order are for classes"
        )
    classes = [tuple(sorted({*train.classes, *test.classes})) for train, test in pool.groups.values()]
    shared = len(names) > 1 and len(set(classes)) == 1
    domains = options.layout == "domains" or (options.layout == "auto" and shared)
    scenario = "domain-incremental" if domains else "class-incremental"
    tasks = make_group_tasks(pool, names, classes, domains)
    return assemble(name, pool, options, tasks, {"scenario": scenario, "tasks": names}, augment=augment)


def make_group_tasks(
    pool: TrainTestData, names: Sequence[str], classes: Sequence[tuple[int, ...]], domains: bool
) -> list[Task]:
    """Make one task per group; the group is its domain if all tasks have the same classes."""
    return [
        Task(group, *pool.groups[group], mine, group if domains else None)
        for group, mine in zip(names, classes, strict=True)
    ]


def make_own(name: str, row: Benchmark, options: OwnOptions) -> Stream:
    """Make tasks of the classes in data of one's own."""
    from tmln.streams.own_benchmark import make_own_stream

    return make_own_stream(options)


SCENARIOS: dict[str, Callable[[str, Benchmark, Any], Stream]] = {
    "split": make_split,
    "permuted": make_permuted,
    "rotated": make_rotated,
    "sessions": make_sessions,
    "domains": make_domains,
    "text-domains": make_text_domains,
    "folder": make_folder,
    "own": make_own,
}
