"""Reading a whole data set to judge it: what ``tmln data check`` runs on an unpacked copy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tmln.data.bad import BadData, DataError
from tmln.streams.cifar import CIFAR10, CIFAR100, Cifar, read_cifar
from tmln.streams.core50 import FRAMES, read_frame, read_videos
from tmln.streams.mnist import read_mnist
from tmln.streams.split import Pool
from tmln.streams.tiny_imagenet import READER, list_files, read_names


def _counted(pool: Pool) -> str:
    return f"{len(pool.train):,} training and {len(pool.test):,} test images, {len(pool.class_names)} classes"


def _cifar(kind: Cifar) -> Callable[[Path], str]:
    return lambda folder: _counted(read_cifar(folder, kind, BadData(kind.data, skip=False)))


def _mnist(folder: Path) -> str:
    names = tuple(str(label) for label in range(10))
    pool = read_mnist(folder, names, 0.0, 1.0, BadData("mnist", skip=False))
    if (len(pool.train), len(pool.test)) != (60_000, 10_000):
        raise DataError(f"{folder}: {_counted(pool)}, not 60,000 and 10,000")
    return _counted(pool)


def _tiny_imagenet(folder: Path) -> str:
    names = read_names(folder)
    files = list_files(folder, list(names), BadData("tiny-imagenet", skip=False))
    tested = sum(file.test for file in files)
    if (len(files) - tested, tested) != (100_000, 10_000):
        raise DataError(f"{folder}: {len(files) - tested:,} training images and {tested:,} others")
    for file in files:
        READER(file.path)
    return "100,000 training and 10,000 test images, 200 classes"


def _core50(folder: Path) -> str:
    videos = read_videos(folder, BadData("core50", skip=False))
    for session, expected in FRAMES.items():
        frames = [path for video in videos if video.session == session for path in video.frames]
        if len(frames) != expected:
            raise DataError(f"{folder / f's{session}'}: {len(frames):,} frames, not {expected:,}")
        for path in frames:
            read_frame(path)
    return f"{sum(FRAMES.values()):,} frames in 11 sessions"


READERS: dict[str, Callable[[Path], str]] = {
    "cifar10": _cifar(CIFAR10),
    "cifar100": _cifar(CIFAR100),
    "mnist": _mnist,
    "fashion-mnist": _mnist,
    "tiny-imagenet": _tiny_imagenet,
    "core50": _core50,
}
