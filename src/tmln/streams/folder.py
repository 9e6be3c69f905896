"""``folder:PATH``: the user's own images, one sub-folder a task (or domain) and class, or one a class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tmln.data.bad import BadData
from tmln.data.foldertree import natural, read_tree
from tmln.data.images import ImageReader
from tmln.data.root import data_root
from tmln.streams.augment import IMAGENET_MEAN, IMAGENET_STD, ResizedCropFlip, ShiftFlip
from tmln.streams.complete import complete
from tmln.streams.filelist import ImageFile, Labelled, chosen, load_files
from tmln.streams.normalise import Normalise
from tmln.streams.options import SplitOptions
from tmln.streams.split import Pool, class_incremental, irregular
from tmln.streams.stream import Augment, Stream, Task

Layout = Literal["auto", "tasks", "domains", "classes"]
GREY_MEAN, GREY_STD = (0.449,), (0.226,)  # ImageNet's, averaged over the channels


@dataclass(frozen=True, kw_only=True)
class FolderOptions(SplitOptions):
    """What a folder of images takes besides."""

    path: Path
    """PATH/task/class/image or PATH/class/image; or PATH/train and PATH/test of these"""
    layout: Layout = "auto"
    """what the sub-folders are; auto looks whether there are one or two levels of them"""
    test_fraction: float = 0.2
    """part of each class in each task that is held out at random, where there is no PATH/test"""
    mode: Literal["L", "RGB"] | None = None
    """colours to convert images to; None: all have one mode already"""
    size: int | None = None
    """pixels a side to fit images to; None: all have one size already"""
    augment: Literal["none", "shift-flip", "resized-crop"] = "none"
    """how training images are varied"""
    memory_limit: int = 1 << 30
    """bytes of images kept in memory; more go to a memory-mapped file under the data root"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.test_fraction < 1.0:
            raise ValueError(f"test_fraction is between 0 and 1, not {self.test_fraction}")


def folder(options: FolderOptions) -> Stream:
    """Tasks by folder; or, from one folder of classes, ``tasks`` tasks (by default of two classes)."""
    name = f"folder:{options.path}"
    nested = {"auto": None, "classes": False}.get(options.layout, True)
    with BadData(name, options.skip_bad) as bad:
        found = read_tree(options.path.expanduser(), nested, options.test_fraction, options.seed, bad)
        labels = tuple(sorted({item.label for item in found}, key=natural))
        groups = tuple(sorted({item.task for item in found}, key=natural))
        files = [ImageFile(item.path, labels.index(item.label), groups.index(item.task), item.test) for item in found]
        files = chosen(files, options.per_class, options.per_class_test)
        cache = data_root(options.root) / "prepared" / "folder"
        reader = ImageReader(options.mode, options.size)
        images = load_files(files, reader, bad, cache, options.memory_limit)
    grey = images.samples.shape[0] == 1
    mean, std = (GREY_MEAN, GREY_STD) if grey else (IMAGENET_MEAN, IMAGENET_STD)
    pool = Pool(images.part(False), images.part(True), labels, mean, std)
    augment = _augment(options, pool)
    if groups == ("",):
        return class_incremental(name, pool, options, tasks=max(1, len(labels) // 2), augment=augment)
    return _by_folder(name, groups, images, pool, augment, options)


def _by_folder(
    name: str, groups: tuple[str, ...], images: Labelled, pool: Pool, augment: Augment, options: FolderOptions
) -> Stream:
    """One task a folder; where all folders hold the same classes, or the user says so, they are domains."""
    if options.tasks not in (None, len(groups)) or options.class_order != "ascending":
        raise ValueError(f"{name}: its {len(groups)} folders are the tasks; tasks and class_order are for classes")
    parts = [(images.part(False, [index]), images.part(True, [index])) for index in range(len(groups))]
    classes = [tuple(sorted({*train.classes, *test.classes})) for train, test in parts]
    shared = len(groups) > 1 and len(set(classes)) == 1
    domains = options.layout == "domains" or (options.layout == "auto" and shared)
    tasks = [
        Task(group, train, test, mine, group if domains else None)
        for group, (train, test), mine in zip(groups, parts, classes, strict=True)
    ]
    with BadData(name, options.skip_bad) as bad:
        tasks = list(complete(tasks, pool.class_names, bad))
    return Stream(
        name=name,
        tasks=irregular(tasks, options),
        class_names=pool.class_names,
        shape=pool.train.shape,
        augment=augment,
        prepare=Normalise(pool.mean, pool.std),
        mean=pool.mean,
        std=pool.std,
        metadata={
            "scenario": "domain-incremental" if domains else "class-incremental",
            "tasks": list(groups),
        },
    )


def _augment(options: FolderOptions, pool: Pool) -> Augment:
    if options.augment == "none":
        return Normalise(pool.mean, pool.std)
    if options.augment == "shift-flip":
        return ShiftFlip(pool.mean, pool.std)
    _, height, width = pool.train.shape
    if height != width:
        raise ValueError(f"resized-crop makes square images, these are {height}x{width}: give a size")
    return ResizedCropFlip(height, pool.mean, pool.std)
