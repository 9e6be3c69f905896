"""The user's own folders of images: which file belongs to which task and class, and which of them are held out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tmln.data.bad_data import BadData, DataError
from tmln.data.image_files import ImageFile, ImageFiles, Reader, part_of

DROPPINGS = ("thumbs.db", "desktop.ini")


@dataclass(frozen=True)
class Found:
    """One image and the names of the folders it was in; ``task`` is empty where there is one level."""

    path: Path
    task: str
    label: str
    test: bool


def read_folder(
    root: Path, bad: BadData, read: Reader, nested: bool | None = None, fraction: float = 0.2, seed: int = 0
) -> ImageFiles:
    """Every file below PATH, or below PATH/train and PATH/test: PATH/task/class/image (``nested``) or PATH/class/image.

    ``nested`` None looks for a second level of folders. Groups are the tasks; none where there is one level. Without a
    PATH/test, ``fraction`` of each class in each task is held out.
    """
    if not root.is_dir():
        raise DataError(f"{root}: no such folder")
    split = (root / "train").is_dir() and (root / "test").is_dir()
    first = root / "train" if split else root
    if nested is None:
        nested = any(path.is_dir() for place in entries(first) if place.is_dir() for path in entries(place))
    found = walk(first, nested, False, bad)
    found += walk(root / "test", nested, True, bad) if split else []
    labels = tuple(sorted({item.label for item in found}, key=natural))
    tasks = tuple(sorted({item.task for item in found}, key=natural))
    files = [ImageFile(item.path, labels.index(item.label), tasks.index(item.task), item.test) for item in found]
    return ImageFiles(files if split else hold_out(files, fraction, seed), labels, read, tasks if nested else ())


def entries(folder: Path) -> list[Path]:
    """What a folder holds, in natural order ("task 2" before "task 10"), without systems' droppings."""
    try:
        found = [path for path in folder.iterdir() if path.name[0] != "." and path.name.lower() not in DROPPINGS]
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror})") from error
    return sorted(found, key=lambda path: natural(path.name))


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A key for sorting: ``week2`` comes before ``week10``."""
    parts = re.findall("[0-9]+|[^0-9]+", name)
    return tuple((0, int(part), part) if part.isascii() and part.isdigit() else (1, 0, part) for part in parts)


def folders(place: Path, bad: BadData) -> list[Path]:
    """The sub-folders; files among them are complaints."""
    found = []
    for path in entries(place):
        if path.is_dir():
            found.append(path)
        else:
            bad.add(path, "a file where folders of images are expected")
    if not found:
        raise DataError(f"{place}: holds no folders of images")
    return found


def walk(root: Path, nested: bool, test: bool, bad: BadData) -> list[Found]:
    """All files below task/class (``nested``) or class folders; empty class folders are complaints."""
    found = []
    for task in folders(root, bad) if nested else [None]:
        for place in folders(task or root, bad):
            files = entries(place)
            if not files:
                bad.add(place, "an empty class")
            for path in files:
                if path.is_dir():
                    bad.add(path, "a folder where images are expected")
                else:
                    found.append(Found(path, task.name if task else "", place.name, test))
    return found


def hold_out(files: Sequence[ImageFile], fraction: float, seed: int) -> list[ImageFile]:
    """Mark a random ``fraction`` of each class in each group as its test images, leaving one to train on."""
    generator = np.random.RandomState(seed)
    tested: set[int] = set()
    kinds: dict[tuple[int, int], list[int]] = {}
    for index, file in enumerate(files):
        kinds.setdefault((file.group, file.label), []).append(index)
    for members in kinds.values():
        tested.update(generator.permutation(members)[: part_of(len(members), fraction)].tolist())
    return [replace(file, test=index in tested) for index, file in enumerate(files)]
