"""CORe50 (Lomonaco and Maltoni 2017), domain-incremental: 8 sessions as tasks, 10 categories of objects."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from tmln.data.bad import BadData, DataError
from tmln.data.images import ImageReader, Pixels
from tmln.data.root import data_root
from tmln.streams.augment import BRIGHTNESS, IMAGENET_MEAN, IMAGENET_STD, ResizeCentre, ResizedCropFlip
from tmln.streams.complete import complete
from tmln.streams.data import locate
from tmln.streams.filelist import ImageFile, chosen, load_files
from tmln.streams.options import Options
from tmln.streams.split import RUN_SEED, class_order, irregular
from tmln.streams.stream import Stream, Task

CATEGORIES = (
    "plug adapter", "mobile phone", "scissors", "light bulb", "can", "glass", "ball", "marker", "cup",
    "remote control",
)  # fmt: skip
TRAIN_SESSIONS = (1, 2, 4, 5, 6, 8, 9, 11)
TEST_SESSIONS = (3, 7, 10)
FRAMES = dict(
    zip(
        range(1, 12),
        (14989, 14986, 14992, 14995, 14966, 14989, 14994, 14984, 14994, 14986, 14991),
        strict=True,
    )
)
READER = ImageReader()
FRAME_NAME = re.compile(r"C_(\d\d)_(\d\d)_(\d\d\d)\.png")


@dataclass(frozen=True, kw_only=True)
class Core50Options(Options):
    """What CORe50 takes besides."""

    session_order: str = "ascending"
    """order of the training sessions: ascending, seeded, run-seed (each run by its own seed) or seed:7"""
    holdout: Literal["tail", "random"] = "tail"
    """a task's test frames: the last of every video, or random ones, whose neighbours are trained on"""
    holdout_fraction: float = 0.2
    """how many of the frames"""
    size: int = 224
    """pixels a side after augmentation"""
    test_resize: int | None = None
    """shorter side before the centre crop of test frames; by default the crop's own: nothing is cut off"""
    memory_limit: int = 1 << 30
    """bytes of frames kept in memory; more go to a memory-mapped file under the data root"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.session_order not in ("ascending", "seeded", RUN_SEED) and not self.session_order.startswith("seed:"):
            raise ValueError(f"session_order is ascending, seeded, {RUN_SEED} or seed:7, not {self.session_order!r}")
        if not 0.0 < self.holdout_fraction < 1.0:
            raise ValueError(f"holdout_fraction is between 0 and 1, not {self.holdout_fraction}")
        if self.test_resize is not None and self.test_resize < self.size:
            raise ValueError(f"test_resize is at least size={self.size}, not {self.test_resize}")


@dataclass(frozen=True)
class Video:
    """The frames of one object in one session, in time."""

    session: int
    item: int
    frames: tuple[Path, ...]

    @property
    def category(self) -> int:
        return (self.item - 1) // 5


def read_videos(folder: Path, bad: BadData) -> list[Video]:
    """All videos below s<session>/o<object>/; strangers among the files and missing videos are complaints."""
    videos = []
    for session in range(1, 12):
        for item in range(1, 51):
            place = folder / f"s{session}" / f"o{item}"
            if not place.is_dir():
                bad.add(place, "missing")
                continue
            frames = []
            for path in sorted(place.iterdir()):
                match = FRAME_NAME.fullmatch(path.name)
                if match is None or (int(match[1]), int(match[2])) != (session, item):
                    bad.add(path, f"not a frame of session {session}, object {item}")
                else:
                    frames.append(path)
            if frames:
                videos.append(Video(session, item, tuple(frames)))
            else:
                bad.add(place, "holds no frames")
    return videos


def held_out(frames: int, options: Core50Options, generator: np.random.RandomState) -> list[bool]:
    """Which frames of a video test its task."""
    tested = min(max(1, round(options.holdout_fraction * frames)), frames - 1)
    if options.holdout == "tail":
        return [index >= frames - tested for index in range(frames)]
    chosen = set(generator.permutation(frames)[:tested].tolist())
    return [index in chosen for index in range(frames)]


def core50(options: Core50Options) -> Stream:
    """Training sessions as tasks, each tested on held-out frames; sessions 3, 7, 10 as ``extra_tests``."""
    sessions = list(TRAIN_SESSIONS)
    sessions = [sessions[index] for index in class_order(options.session_order, len(sessions), options.seed)]
    sessions = sessions[: options.tasks]
    with BadData("core50", options.skip_bad) as bad:
        videos = read_videos(locate("core50", options.root), bad)
        files = chosen(labelled(videos, sessions, options), options.per_class, options.per_class_test)
        cache = data_root(options.root) / "prepared" / "core50"
        frames = load_files(files, read_frame, bad, cache, options.memory_limit)
        classes = tuple(range(len(CATEGORIES)))
        parts = [
            Task(name, frames.part(False, [session]), frames.part(True, [session]), classes, name)
            for session, name in ((session, f"session {session}") for session in sessions)
        ]
        tasks = complete(parts, CATEGORIES, bad)
    return Stream(
        name="core50",
        tasks=irregular(tasks, options),
        class_names=CATEGORIES,
        shape=(3, options.size, options.size),
        augment=ResizedCropFlip(options.size, IMAGENET_MEAN, IMAGENET_STD, brightness=BRIGHTNESS),
        prepare=ResizeCentre(options.size, IMAGENET_MEAN, IMAGENET_STD, options.test_resize),
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        extra_tests={"official": frames.part(True, TEST_SESSIONS)},
        metadata={
            "scenario": "domain-incremental",
            "domains": [f"session {session}" for session in sessions],
            "holdout": options.holdout,
            "holdout_fraction": options.holdout_fraction,
        },
    )


def labelled(videos: list[Video], sessions: list[int], options: Core50Options) -> list[ImageFile]:
    """The frames of the sessions that are needed, each with its category and its role."""
    generator = np.random.RandomState(options.seed)
    files = []
    for video in videos:
        official = video.session in TEST_SESSIONS
        if official or video.session in sessions:
            count = len(video.frames)
            tested = [True] * count if official else held_out(count, options, generator)
            files += [
                ImageFile(path, video.category, video.session, test)
                for path, test in zip(video.frames, tested, strict=True)
            ]
    return files


def read_frame(path: Path) -> Pixels:
    pixels = READER(path)
    if pixels.shape != (128, 128, 3):
        raise DataError(f"{path}: {pixels.shape} pixels and channels, a frame has (128, 128, 3)")
    return pixels
