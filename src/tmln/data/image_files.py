"""Labelled image files: selected before they are read, then read once, in memory or mapped."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tmln.data.dataset import Arrays, Colour
from tmln.data.images import Pixels
from tmln.data.reading import BadData, DataError
from tmln.progress import track
from tmln.writing import writing

Reader: TypeAlias = Callable[[Path], Pixels]

IN_MEMORY = 1 << 30
"""Bytes up to which images are kept in memory."""
READ_AHEAD = 1 << 26  # bytes of images that are read ahead
WARN_ABOVE = 1 << 28  # bytes of images
IMAGENET: tuple[Colour, Colour] = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
GREY: tuple[Colour, Colour] = ((0.449,), (0.226,))  # ImageNet's, averaged over the channels

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ImageFile:
    """One file, its class, its group (a task, a session), and whether it is a test image."""

    path: Path
    label: int
    group: int = 0
    test: bool = False


@dataclass(frozen=True)
class ImageFiles:
    """The files of a data set and their reader.

    ``colours`` are mean and standard deviation, by default those of ImageNet.
    """

    files: Sequence[ImageFile]
    class_names: tuple[str, ...]
    read: Reader
    group_names: tuple[str, ...] = ()
    colours: tuple[Colour, Colour] | None = None

    def counts(self) -> dict[str, int]:
        """Return the number of files in each group, or without groups in training and test set."""
        if self.group_names:
            return dict(Counter(self.group_names[file.group] for file in self.files))
        return dict(Counter("test" if file.test else "training" for file in self.files))

    def limit_per_class(self, per_class: int | None, per_class_test: int | None) -> ImageFiles:
        """Keep at most so many files of each class in each group, evenly spaced."""
        kinds: dict[tuple[int, int, bool], list[ImageFile]] = defaultdict(list)
        for file in self.files:
            kinds[file.group, file.label, file.test].append(file)
        kept = [
            members[index]
            for (_, _, test), members in kinds.items()
            for index in pick_evenly(len(members), per_class_test if test else per_class)
        ]
        return replace(self, files=kept)

    def load(self, bad: BadData, cache: Path, limit: int | None = None) -> Arrays:
        """Read all files; those that ``bad`` lets pass are left out."""
        pixels, kept = load_images([file.path for file in self.files], self.read, bad, cache, limit)
        sound = [self.files[row] for row in kept]
        folders: dict[Path, int] = {}
        mean, std = self.colours or (GREY if pixels.shape[-1] == 1 else IMAGENET)
        return Arrays(
            pixels,
            np.array([file.label for file in sound], np.int64),
            np.array([file.test for file in sound], np.bool_),
            self.class_names,
            mean,
            std,
            np.array([file.group for file in sound], np.int64),
            self.group_names,
            np.array(kept, np.int64),
            np.array([folders.setdefault(file.path.parent, len(folders)) for file in sound], np.int64),
        )


def pick_evenly(total: int, wanted: int | None) -> list[int]:
    """Return ``wanted`` of the numbers 0..total-1, evenly spaced from 0; None or too many: all."""
    count = total if wanted is None else min(wanted, total)
    return [index * total // count for index in range(count)]


def count_held_out(count: int, fraction: float) -> int:
    """Return how many of ``count`` are held out: rounded half to even, within 1..count-1."""
    return min(max(1, round(fraction * count)), count - 1)


def load_images(
    files: Sequence[Path], read: Reader, bad: BadData, cache: Path, limit: int | None = None
) -> tuple[Pixels, list[int]]:
    """Read images of equal shape.

    Args:
        files: the paths.
        read: reader of one image.
        bad: where unreadable images are reported.
        cache: folder of the memory-mapped file.
        limit: bytes above which images are mapped instead of kept in memory.

    Returns: The images [N, H, W, C] and the numbers of the rows that were read. All have the shape
        of the first readable image.
    """
    shape = (len(files), *_find_shape(files, read))
    _warn_if_large(len(files), shape[1:])
    if math.prod(shape) > (IN_MEMORY if limit is None else limit):
        return _load_mapped(files, read, bad, cache, shape)
    array = np.empty(shape, np.uint8)
    return array, _fill(array, files, read, bad)


def _warn_if_large(count: int, shape: tuple[int, ...]) -> None:
    """Warn of long reading, and name the option that shortens it."""
    size = count * math.prod(shape)
    if size > WARN_ABOVE:
        half = max(32, min(shape[:2]) // 2)
        smaller = size * half**2 // (shape[0] * shape[1])
        log.warning(
            "reading %s images of %s, %.1f GB; --set benchmark.size=%d would make that %.1f GB",
            f"{count:,}",
            "x".join(map(str, shape)),
            size / 1e9,
            half,
            smaller / 1e9,
        )


def _find_shape(files: Sequence[Path], read: Reader) -> tuple[int, ...]:
    first: DataError | None = None
    for path in files:
        try:
            return read(path).shape
        except DataError as error:
            first = first or error
    raise DataError(f"no readable image among {len(files)} file(s){f', first {first}' if first else ''}")


def _load_mapped(
    files: Sequence[Path], read: Reader, bad: BadData, cache: Path, shape: tuple[int, ...]
) -> tuple[NDArray[np.uint8], list[int]]:
    """Read images into a mapped file, named by a hash of their paths, sizes and times."""
    path = cache / f"{_fingerprint(files, read)}.npy"
    notes = path.with_suffix(".json")
    known = _read_cached(path, notes, shape)
    if known is None:
        part = path.with_suffix(f".{os.getpid()}.part")
        mine = BadData(bad.what, bad.skip)
        try:
            with writing(path):
                cache.mkdir(parents=True, exist_ok=True)
                array = np.lib.format.open_memmap(part, mode="w+", dtype=np.uint8, shape=shape)
                _reserve(part)
            kept = _fill(array, files, read, mine)
            with writing(path):
                array.flush()
                del array
                notes.write_text(json.dumps({"kept": kept, "bad": mine.found}), encoding="utf-8")
                os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
        known = kept, mine.found
    for complaint in known[1]:
        bad.add(complaint)
    # Copy-on-write: torch needs writable memory, and the file must not change.
    return np.load(path, mmap_mode="c"), known[0]


def _reserve(path: Path) -> None:
    """Allocate the whole file: a mapped page that finds the disk full would kill the process."""
    if hasattr(os, "posix_fallocate"):
        with open(path, "rb+") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


def _read_cached(path: Path, notes: Path, shape: tuple[int, ...]) -> tuple[list[int], list[str]] | None:
    """Return the rows and problems of a file made before; None if there is none of ours."""
    try:
        known = json.loads(notes.read_bytes())
        kept, complaints = known["kept"], known["bad"]
        rows = isinstance(kept, list) and all(type(row) is int and 0 <= row < shape[0] for row in kept)
        if not rows or not isinstance(complaints, list) or not all(isinstance(text, str) for text in complaints):
            return None
        mapped = np.load(path, mmap_mode="r")
    except (OSError, ValueError, TypeError, LookupError, RecursionError, EOFError):
        return None
    return (kept, complaints) if mapped.dtype == np.uint8 and mapped.shape == shape else None


def _fill(array: Pixels, files: Sequence[Path], read: Reader, bad: BadData) -> list[int]:
    """Write each readable image into its row; return the rows that were written."""
    kept = []
    images = read_all(files, read, math.prod(array.shape[1:]))
    for index, pixels in zip(track(range(len(files)), "reading images"), images, strict=True):
        if isinstance(pixels, DataError):
            bad.add(str(pixels))
        elif pixels.shape != array.shape[1:]:
            shape, expected = ("x".join(map(str, sizes)) for sizes in (pixels.shape, array.shape[1:]))
            bad.add(files[index], f"{shape} pixels and channels, others {expected}; size and mode make them equal")
        else:
            array[index] = pixels
            kept.append(index)
    return kept


def read_all(files: Sequence[Path], read: Reader, size: int = 1 << 20) -> Iterator[Pixels | DataError]:
    """Yield images of ``size`` bytes in order, read ahead by threads; for a bad one its error."""
    ahead = max(os.cpu_count() or 1, min(256, READ_AHEAD // max(size, 1)))

    def attempt(path: Path) -> Pixels | DataError:
        try:
            return read(path)
        except DataError as error:
            return error

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, len(files), ahead):
            yield from pool.map(attempt, files[start : start + ahead])


def _fingerprint(files: Sequence[Path], read: Reader) -> str:
    digest = hashlib.sha256(repr(read).encode())
    for path in files:
        digest.update(f"{path}\0{_describe(path)}\0".encode())
    return digest.hexdigest()[:24]


def _describe(path: Path) -> str:
    try:
        state = path.stat()
    except OSError:  # reported when it is read
        return "none"
    return f"{state.st_size}\0{state.st_mtime_ns}"
