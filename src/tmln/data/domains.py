"""Data sets of image files in several domains: CORe50 and PACS."""

from __future__ import annotations

import re
from pathlib import Path

from tmln.data.dataset import DataSet, RemoteFile
from tmln.data.folder import list_labelled_files
from tmln.data.image_files import ImageFile, ImageFiles
from tmln.data.images import ImageReader
from tmln.data.reading import BadData

CATEGORIES = (
    "plug adapter", "mobile phone", "scissors", "light bulb", "can", "glass", "ball", "marker", "cup",
    "remote control",
)  # fmt: skip
FRAMES = (14989, 14986, 14992, 14995, 14966, 14989, 14994, 14984, 14994, 14986, 14991)
SESSIONS = {number: f"session {number}" for number in range(1, 12)}
TEST_SESSIONS = (3, 7, 10)
FRAME_NAME = re.compile(r"C_(\d\d)_(\d\d)_(\d\d\d)\.png")


def read_core50(folder: Path, bad: BadData) -> ImageFiles:
    """List all frames in s<session>/o<object>/, video by video; groups are sessions.

    Other files and missing videos are reported. The frames of the official test sessions are test
    images; which others are held out is the stream's choice.
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

DOMAINS = {"photo": 1670, "art_painting": 2048, "cartoon": 2344, "sketch": 3929}  # from photographs to drawings
PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
PACS_SIZE = 64  # pixels a side; the originals have 227


def read_pacs(folder: Path, bad: BadData) -> ImageFiles:
    """List all images in DOMAIN/CLASS/; groups are domains. The stream holds some of them out."""
    files = []
    for group, domain in enumerate(DOMAINS):
        for found in list_labelled_files(folder / domain, nested=False, test=False, bad=bad):
            if found.label in PACS_CLASSES:
                files.append(ImageFile(found.path, PACS_CLASSES.index(found.label), group))
            else:
                bad.add(found.path, f"not of a class of PACS ({', '.join(PACS_CLASSES)})")
    return ImageFiles(files, PACS_CLASSES, ImageReader(mode="RGB", size=PACS_SIZE), tuple(DOMAINS))


PACS = DataSet(
    "PACS",
    "9,991 images of 7 classes in 4 domains, read at 64x64",
    read_pacs,
    DOMAINS,
    layouts=dict.fromkeys(("pacs", "PACS", "PACS/kfold", "kfold"), tuple(DOMAINS)),
    home="https://sketchx.eecs.qmul.ac.uk/research/cross-domain-pacs",
)
