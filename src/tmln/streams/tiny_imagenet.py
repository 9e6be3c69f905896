"""Split Tiny-ImageNet: 200 classes of 64x64 images in 10 tasks of 20, tested on the validation set."""

from __future__ import annotations

from pathlib import Path

from tmln.data.bad import BadData, DataError
from tmln.data.images import ImageReader
from tmln.data.root import data_root
from tmln.streams.augment import ShiftFlip
from tmln.streams.data import locate
from tmln.streams.filelist import ImageFile, chosen, load_files
from tmln.streams.options import SplitOptions
from tmln.streams.split import Pool, class_incremental
from tmln.streams.stream import Stream

# Of the training images, as in Mammoth.
MEAN, STD = (0.4802, 0.4480, 0.3975), (0.2770, 0.2691, 0.2821)
READER = ImageReader(mode="RGB")  # some of the files are grey


def read_names(folder: Path) -> dict[str, str]:
    """WordNet identifiers in ascending order, each with its first word if there is one."""
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
    """Training files by class folder; validation files by annotation or class folder."""
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


def split_tiny_imagenet(options: SplitOptions) -> Stream:
    """Ten tasks of twenty classes."""
    name = "split-tiny-imagenet"
    with BadData(name, options.skip_bad) as bad:
        folder = locate("tiny-imagenet", options.root)
        names = read_names(folder)
        files = chosen(list_files(folder, list(names), bad), options.per_class, options.per_class_test)
        images = load_files(files, READER, bad, data_root(options.root) / "prepared" / "tiny-imagenet")
    pool = Pool(images.part(False), images.part(True), tuple(names.values()), MEAN, STD)
    return class_incremental(name, pool, options, tasks=10, augment=ShiftFlip(MEAN, STD))
