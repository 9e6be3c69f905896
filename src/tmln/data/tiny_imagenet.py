"""Tiny-ImageNet (Stanford CS231n): 200 classes of 64x64 images, tested on the validation set."""

from __future__ import annotations

from pathlib import Path

from tmln.data.dataset import DataSet, RemoteFile
from tmln.data.image_files import ImageFile, ImageFiles
from tmln.data.images import ImageReader
from tmln.data.reading import BadData, DataError

READER = ImageReader(mode="RGB")  # some of the files are grey
COLOURS = (0.4802, 0.4480, 0.3975), (0.2770, 0.2691, 0.2821)  # of the training images, as in Mammoth


def read_tiny_imagenet(folder: Path, bad: BadData) -> ImageFiles:
    """List all files of an unpacked copy; classes are in the order of their WordNet identifiers."""
    names = read_names(folder)
    return ImageFiles(list_files(folder, list(names), bad), tuple(names.values()), READER, colours=COLOURS)


def read_names(folder: Path) -> dict[str, str]:
    """Return the WordNet identifiers in ascending order, each with its first word if it has one."""
    identifiers = sorted((folder / "wnids.txt").read_text(encoding="utf-8").split())
    if not identifiers or len(set(identifiers)) != len(identifiers):
        raise DataError(f"{folder / 'wnids.txt'}: names no class, or one twice")
    words = {}
    if (folder / "words.txt").exists():
        for line in (folder / "words.txt").read_text(encoding="utf-8").splitlines():
            identifier, _, text = line.partition("\t")
            words[identifier] = text.split(",")[0]
    return {identifier: words.get(identifier, identifier) for identifier in identifiers}


def list_files(folder: Path, identifiers: list[str], bad: BadData) -> list[ImageFile]:
    """List training files by class folder, validation files by annotation or class folder."""
    label_of = {identifier: label for label, identifier in enumerate(identifiers)}
    files = []
    for identifier, label in label_of.items():
        for split in ("train", "val"):
            place = folder / split / identifier
            place = place / "images" if (place / "images").is_dir() else place
            if place.is_dir():
                images = (path for path in sorted(place.iterdir()) if path.suffix != ".txt")
                files += [ImageFile(path, label, test=split == "val") for path in images]
            elif split == "train":
                bad.add(place, "missing")
    notes = folder / "val" / "val_annotations.txt"
    if notes.exists() and not any(file.test for file in files):
        for number, line in enumerate(notes.read_text(encoding="utf-8").splitlines(), 1):
            name, identifier = (line.split("\t") + [""])[:2]
            path = folder / "val" / "images" / name
            if identifier not in label_of or not path.is_file():
                bad.add(notes, f"line {number} names no image of a known class: {line!r}")
            else:
                files.append(ImageFile(path, label_of[identifier], test=True))
    return files


TINY_IMAGENET = DataSet(
    "Tiny-ImageNet",
    "110,000 64x64 colour images, 200 classes",
    read_tiny_imagenet,
    {"training": 100_000, "test": 10_000},
    (
        RemoteFile(
            "tiny-imagenet-200.zip",
            ("http://cs231n.stanford.edu/tiny-imagenet-200.zip",),
            248100043,
            "90528d7ca1a48142e341f4ef8d21d0de",
        ),
    ),
    dict.fromkeys(("tiny-imagenet-200", "tiny-imagenet/tiny-imagenet-200"), ("wnids.txt", "train", "val")),
)
