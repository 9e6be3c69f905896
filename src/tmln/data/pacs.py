"""PACS (Li et al. 2017): seven classes as photographs, art paintings, cartoons and sketches."""

from __future__ import annotations

from pathlib import Path

from tmln.data.bad_data import BadData
from tmln.data.dataset import DataSet
from tmln.data.folder import walk
from tmln.data.image_files import ImageFile, ImageFiles
from tmln.data.images import ImageReader

DOMAINS = {"photo": 1670, "art_painting": 2048, "cartoon": 2344, "sketch": 3929}  # from life to line
CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
SIZE = 64  # pixels a side; the originals have 227


def read_pacs(folder: Path, bad: BadData) -> ImageFiles:
    """All pictures below DOMAIN/CLASS/, of any size; groups are domains. Who tests, a stream decides."""
    files = []
    for group, domain in enumerate(DOMAINS):
        for found in walk(folder / domain, nested=False, test=False, bad=bad):
            if found.label in CLASSES:
                files.append(ImageFile(found.path, CLASSES.index(found.label), group))
            else:
                bad.add(found.path, f"not of a class of PACS ({', '.join(CLASSES)})")
    return ImageFiles(files, CLASSES, ImageReader(mode="RGB", size=SIZE), tuple(DOMAINS))


PACS = DataSet(
    "PACS",
    "9,991 pictures of 7 classes in 4 domains, read at 64x64",
    read_pacs,
    DOMAINS,
    layouts=dict.fromkeys(("pacs", "PACS", "PACS/kfold", "kfold"), tuple(DOMAINS)),
    home="https://sketchx.eecs.qmul.ac.uk/research/cross-domain-pacs",
)
