"""CUB-200-2011 (Wah et al. 2011): 11,788 photographs of 200 species of birds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath

from tmln.data.dataset import DataSet, RemoteFile
from tmln.data.folder import natural_key, read_folder
from tmln.data.image_files import ImageFile, ImageFiles
from tmln.data.images import ImageReader
from tmln.data.reading import BadData, DataError

READER = ImageReader(mode="RGB", size=128)  # some of the files are grey
LISTS = ("images.txt", "train_test_split.txt")  # of the official layout, beside the folder images


def read_cub200(folder: Path, bad: BadData) -> ImageFiles:
    """List all images of the official layout, or of FOLDER/train/SPECIES and FOLDER/test/SPECIES.

    Classes are in the order of their numbers, which begin the names of folders.
    """
    official = (folder / LISTS[0]).exists()
    files = list_official(folder, bad) if official else read_folder(folder, bad, READER, nested=False)
    names = tuple(name.partition(".")[2].replace("_", " ") or name for name in files.class_names)
    return replace(files, class_names=names if len(set(names)) == len(names) else files.class_names)


def list_official(folder: Path, bad: BadData) -> ImageFiles:
    """List the images that images.txt names, with the roles of train_test_split.txt."""
    paths, training = (read_list(folder / name) for name in LISTS)
    labels = sorted({PurePosixPath(path).parent.name for path in paths.values()}, key=natural_key)
    files = []
    for number, path in paths.items():
        place = folder / "images" / path
        if ".." in PurePosixPath(path).parts or not place.is_file():
            bad.add(folder / LISTS[0], f"image {number} is not there: {path!r}")
        elif training.get(number) not in ("0", "1"):
            bad.add(folder / LISTS[1], f"does not say whether image {number} is for training")
        else:
            label = labels.index(PurePosixPath(path).parent.name)
            files.append(ImageFile(place, label, test=training[number] == "0"))
    return ImageFiles(files, tuple(labels), READER)


def read_list(path: Path) -> dict[str, str]:
    """Return the lines of a list by their first word."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error
    parts = [line.split(maxsplit=1) for line in lines if line.strip()]
    if odd := next((part for part in parts if len(part) != 2), None):
        raise DataError(f"{path}: a line is a number and a value, not {' '.join(odd)!r}")
    return {number: value.strip() for number, value in parts}


CUB200 = DataSet(
    "CUB-200-2011",
    "11,788 photographs of 200 species of birds, read at 128x128",
    read_cub200,
    {"training": 5_994, "test": 5_794},
    (
        RemoteFile(
            "CUB_200_2011.tgz",
            ("https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",),
            1150585339,
            "97eceeb196236b17998738112f37df78",
        ),
    ),
    {"cub200": ("train", "test"), **dict.fromkeys(("CUB_200_2011", "cub200/CUB_200_2011"), (*LISTS, "images"))},
    home="https://www.vision.caltech.edu/datasets/cub_200_2011/",
)
