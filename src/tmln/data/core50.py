"""CORe50 (Lomonaco and Maltoni 2017): 50 objects of 10 categories, a video of each in 11 sessions."""

from __future__ import annotations

import re
from pathlib import Path

from tmln.data.bad_data import BadData
from tmln.data.dataset import DataSet, RemoteFile
from tmln.data.image_files import ImageFile, ImageFiles
from tmln.data.images import ImageReader

CATEGORIES = (
    "plug adapter", "mobile phone", "scissors", "light bulb", "can", "glass", "ball", "marker", "cup",
    "remote control",
)  # fmt: skip
FRAMES = (14989, 14986, 14992, 14995, 14966, 14989, 14994, 14984, 14994, 14986, 14991)
SESSIONS = {number: f"session {number}" for number in range(1, 12)}
TEST_SESSIONS = (3, 7, 10)
FRAME_NAME = re.compile(r"C_(\d\d)_(\d\d)_(\d\d\d)\.png")


def read_core50(folder: Path, bad: BadData) -> ImageFiles:
    """All frames below s<session>/o<object>/, video by video; strangers among them and missing videos are complaints.

    Groups are sessions. The frames of the official test sessions test; who tests among the others, a stream decides.
    """
    files: list[ImageFile] = []
    for session in SESSIONS:
        for item in range(1, 51):
            place = folder / f"s{session}" / f"o{item}"
            if not place.is_dir():
                bad.add(place, "missing")
                continue
            before = len(files)
            for path in sorted(place.iterdir()):
                match = FRAME_NAME.fullmatch(path.name)
                if match is None or (int(match[1]), int(match[2])) != (session, item):
                    bad.add(path, f"not a frame of session {session}, object {item}")
                else:
                    files.append(ImageFile(path, (item - 1) // 5, session - 1, session in TEST_SESSIONS))
            if len(files) == before:
                bad.add(place, "holds no frames")
    return ImageFiles(files, CATEGORIES, ImageReader(shape=(128, 128, 3)), tuple(SESSIONS.values()))


CORE50 = DataSet(
    "CORe50",
    "164,866 128x128 frames of 50 objects in 11 sessions",
    read_core50,
    dict(zip(SESSIONS.values(), FRAMES, strict=True)),
    (
        RemoteFile(
            "core50_128x128.zip",
            ("http://bias.csr.unibo.it/maltoni/download/core50/core50_128x128.zip",),
            5892103007,  # compared with one public copy only
            "745f3373fed08d69343f1058ee559e13",
        ),
    ),
    dict.fromkeys(("core50_128x128", "core50/core50_128x128", "core50"), tuple(f"s{session}" for session in SESSIONS)),
)
