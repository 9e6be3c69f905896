"""CUB-200-2011 in both layouts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.data import made
from tmln.data import DATA
from tmln.data.cub200 import read_cub200
from tmln.data.reading import BadData, DataError
from tmln.data.registry import find


def read(folder: Path, skip: bool = False) -> tuple[Counter[tuple[int, bool]], tuple[str, ...]]:
    with BadData("cub200", skip=skip) as bad:
        files = read_cub200(folder, bad)
    return Counter((file.label, file.test) for file in files.files), files.class_names


def test_folders_of_species(tmp_path: Path) -> None:
    folder = made.make_cub200(tmp_path, species=12)
    counts, names = read(folder)
    assert counts == {(label, test): 1 if test else 2 for label in range(12) for test in (False, True)}
    assert names[:2] == ("Bird of kind 0", "Bird of kind 1")
    assert names[11] == "Bird of kind 11"
    assert find(DATA["cub200"], tmp_path) == folder


def test_the_official_layout(tmp_path: Path) -> None:
    """Images 1, 3 and 5 are for training; the species are ordered by number: 1, 2, 10."""
    folder = made.make_official_cub200(tmp_path)
    assert find(DATA["cub200"], tmp_path) == folder
    counts, names = read(folder)
    assert counts == {(label, test): 1 for label in range(3) for test in (False, True)}
    assert names == ("Bird 1", "Bird 2", "Bird 10")
    files = read_cub200(folder, BadData("cub200", skip=False))
    third = files.files[4]
    assert (third.label, third.test, third.path.name) == (2, False, "Bird_10_0.jpg")
    pixels = files.read(third.path)
    assert pixels.shape == (128, 128, 3)
    assert abs(int(pixels[64, 64, 0]) - 160) < 4  # JPEG rounds


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("images.txt", "1 001.Bird_1/none.jpg\n", "image 1 is not there: '001.Bird_1/none.jpg'"),
        ("images.txt", "1 ../images.txt\n", "image 1 is not there"),
        ("images.txt", "1\n", "a line is a number and a value, not '1'"),
        ("train_test_split.txt", "1 1\n", "does not say whether image 2 is for training"),
        ("train_test_split.txt", "1 yes\n", "does not say whether image 1 is for training"),
    ],
)
def test_wrong_lists_are_named(file: str, text: str, message: str, tmp_path: Path) -> None:
    folder = made.make_official_cub200(tmp_path)
    (folder / file).write_text(text)
    with pytest.raises(DataError, match=message):
        read(folder)


def test_a_missing_list_is_named(tmp_path: Path) -> None:
    folder = made.make_official_cub200(tmp_path)
    (folder / "train_test_split.txt").unlink()
    with pytest.raises(DataError, match=r"train_test_split\.txt: cannot be read"):
        read(folder)
