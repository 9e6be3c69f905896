"""The user's folders of images: the task and class of every file, and which files are held out."""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tmln.data.image_files import ImageFile, ImageFiles, Reader, count_held_out
from tmln.data.reading import BadData, DataError

SYSTEM_FILES = ("thumbs.db", "desktop.ini")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LabelledFile:
    """One image and the names of its folders; ``task`` is empty if there is one level."""

    path: Path
    task: str
    label: str
    test: bool


def read_folder(
    root: Path, bad: BadData, read: Reader, nested: bool | None = None, fraction: float = 0.2, seed: int = 0
) -> ImageFiles:
    """List the images in ROOT/task/class (``nested``) or ROOT/class, or in ROOT/train and test.

    Args:
        root: the folder.
        bad: where problems are reported.
        read: reader of one image.
        nested: whether there are two levels of folders; None looks for a second level.
        fraction: share of each class in each task that is held out, if there is no ROOT/test.
        seed: seed of that choice.

    Returns:
        The files; their groups are the tasks, none if there is one level of folders.
    """
    if not root.is_dir():
        raise DataError(f"{root}: no such folder")
    split = (root / "train").is_dir() and (root / "test").is_dir()
    first = root / "train" if split else root
    if nested is None:
        nested = has_domains(first)
    found = list_labelled_files(first, nested, False, bad)
    found += list_labelled_files(root / "test", nested, True, bad) if split else []
    labels = tuple(sorted({item.label for item in found}, key=natural_key))
    tasks = tuple(sorted({item.task for item in found}, key=natural_key))
    files = [ImageFile(item.path, labels.index(item.label), tasks.index(item.task), item.test) for item in found]
    return ImageFiles(files if split else hold_out(files, fraction, seed), labels, read, tasks if nested else ())


def has_domains(root: Path) -> bool:
    """Return whether the folders in ``root`` hold folders of classes, as most of them do."""
    places = [
        [path.is_dir() for path in place.iterdir() if path.name[0] != "." and not find_defect(path)]
        for place in list_entries(root, warn=False)
        if place.is_dir()
    ]
    return sum(any(place) for place in places) > sum(bool(place) and not any(place) for place in places)


def list_entries(folder: Path, warn: bool = True) -> list[Path]:
    """Return the entries of a folder in natural order ("task 2" before "task 10").

    Hidden files and files of the system are left out silently; what can be neither an image nor a
    folder is left out with a warning, if ``warn``.
    """
    try:
        found = [path for path in folder.iterdir() if path.name[0] != "." and path.name.lower() not in SYSTEM_FILES]
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror})") from error
    defects = {path: find_defect(path) for path in found}
    for path, defect in defects.items():
        if defect and warn:
            log.warning("%s: left out (%s)", path, defect)
    return sorted((path for path in found if not defects[path]), key=lambda path: natural_key(path.name))


def find_defect(path: Path) -> str:
    """Return why a path is neither an image nor a folder, else "".

    Pipes, devices and loops of links have a defect; a missing file has not, reading it will say so.
    """
    try:
        path.stat()
    except OSError as error:  # any other is a problem of reading the file
        return "a loop of links" if error.errno == errno.ELOOP else ""
    if path.is_dir():
        loop = path.is_symlink() and any(path.samefile(parent) for parent in path.absolute().parents)
        return "a link to a folder that contains it" if loop else ""
    return "" if path.is_file() else "not a regular file"


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sorting key by which ``week2`` comes before ``week10``."""
    parts = re.findall("[0-9]+|[^0-9]+", name)
    return tuple((0, int(part), part) if part.isascii() and part.isdigit() else (1, 0, part) for part in parts)


def list_folders(place: Path, bad: BadData) -> list[Path]:
    """Return the sub-folders of a folder, and report files among them."""
    found = []
    for path in list_entries(place):
        if path.is_dir():
            found.append(path)
        else:
            bad.add(path, "a file where folders of images are expected")
    if not found:
        raise DataError(f"{place}: holds no folders of images")
    return found


def list_labelled_files(root: Path, nested: bool, test: bool, bad: BadData) -> list[LabelledFile]:
    """Return all files in task/class (``nested``) or class folders; report empty class folders."""
    found = []
    for task in list_folders(root, bad) if nested else [None]:
        if task is not None and bad.skip and not any(path.is_dir() for path in list_entries(task)):
            bad.add(task, "holds no folders of images")
            continue
        for place in list_folders(task or root, bad):
            files = list_entries(place)
            if not files:
                bad.add(place, "an empty class")
            for path in files:
                if path.is_dir():
                    bad.add(path, "a folder where images are expected")
                else:
                    found.append(LabelledFile(path, task.name if task else "", place.name, test))
    return found


def hold_out(files: Sequence[ImageFile], fraction: float, seed: int) -> list[ImageFile]:
    """Mark a random ``fraction`` of each class in each group as test images; one is always left."""
    generator = np.random.RandomState(seed)
    test: set[int] = set()
    kinds: dict[tuple[int, int], list[int]] = {}
    for index, file in enumerate(files):
        kinds.setdefault((file.group, file.label), []).append(index)
    for members in kinds.values():
        test.update(generator.permutation(members)[: count_held_out(len(members), fraction)].tolist())
    return [replace(file, test=index in test) for index, file in enumerate(files)]
