"""PACS: four domains of seven classes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.data import made
from tmln.data.domains import DOMAINS, PACS_CLASSES, read_pacs
from tmln.data.reading import BadData, DataError


def test_groups_are_domains_from_life_to_line(tmp_path: Path) -> None:
    files = read_pacs(made.make_pacs(tmp_path, pictures=2), BadData("pacs", skip=False))
    assert files.group_names == tuple(DOMAINS) == ("photo", "art_painting", "cartoon", "sketch")
    assert files.class_names == PACS_CLASSES
    assert Counter((file.group, file.label) for file in files.files) == {(d, c): 2 for d in range(4) for c in range(7)}
    file = files.files[-1]
    assert files.read(file.path)[0, 0].tolist() == [30, 60, 10]
    assert sum(DOMAINS.values()) == 9991


def test_larger_pictures_are_fitted(tmp_path: Path) -> None:
    folder = made.make_pacs(tmp_path, pictures=1)
    (folder / "photo" / "dog" / "0000.png").write_bytes(made.encoded((1, 2, 3), (227, 227)))
    files = read_pacs(folder, BadData("pacs", skip=False))
    assert files.read(files.files[0].path).shape == (64, 64, 3)


def test_a_stranger_is_a_complaint(tmp_path: Path) -> None:
    folder = made.make_pacs(tmp_path, pictures=1)
    (folder / "sketch" / "cat").mkdir()
    (folder / "sketch" / "cat" / "0.png").write_bytes(made.encoded((1, 2, 3), (64, 64)))
    with pytest.raises(DataError, match=r"cat.0.png: not of a class of PACS"), BadData("pacs", skip=False) as bad:
        read_pacs(folder, bad)
