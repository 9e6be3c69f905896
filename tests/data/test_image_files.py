"""Many files as one array: the same in memory and memory-mapped, sound or with bad ones among them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.data import made
from tmln.data import BadData, BadDataWarning, DataError, DataSet, ImageFiles
from tmln.data.domains import CORE50
from tmln.data.image_files import load_images, pick_evenly
from tmln.data.images import ImageReader
from tmln.data.registry import find
from tmln.data.tiny_imagenet import TINY_IMAGENET

LIMITS = pytest.mark.parametrize("limit", [1 << 20, 0], ids=["memory", "mapped"])


def files(folder: Path, count: int = 5) -> list[Path]:
    paths = [folder / f"{index}.png" for index in range(count)]
    for index, path in enumerate(paths):
        path.write_bytes(made.encoded((index, 0, 0), (4, 3)))
    return paths


@LIMITS
def test_all_images_in_order(limit: int, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    rows, kept = load_images(files(tmp_path), ImageReader(), BadData("x", False), cache, limit)
    assert kept == [0, 1, 2, 3, 4]
    assert rows.shape == (5, 3, 4, 3)
    assert rows[[4, 1], 2, 3, 0].tolist() == [4, 1]
    assert cache.exists() == (limit == 0)


@LIMITS
def test_bad_ones(limit: int, tmp_path: Path) -> None:
    paths = files(tmp_path)
    paths[0].write_bytes(b"junk")
    paths[3].write_bytes(made.encoded((3, 0, 0), (4, 4)))
    cache = tmp_path / "cache"
    with pytest.raises(DataError, match=r"0.png: not an image"):
        load_images(paths, ImageReader(), BadData("x", False), cache, limit)
    assert not any(cache.glob("*")) if cache.exists() else True  # nothing half-made stays
    for _ in range(2):  # the second time from the mapped file: it complains as the first time did
        with pytest.warns(BadDataWarning, match=r"left out 2 bad.*0.png.*3.png: 4x4x3 .* others 3x4x3"):  # noqa: SIM117
            with BadData("x", True) as bad:
                rows, kept = load_images(paths, ImageReader(), bad, cache, limit)
        assert kept == [1, 2, 4]
        assert rows[kept, 0, 0, 0].tolist() == [1, 2, 4]
    with pytest.raises(DataError, match=r"0.png: not an image"):
        load_images(paths, ImageReader(), BadData("x", False), cache, limit)


def test_the_mapped_file_is_made_once_and_anew_when_images_change(tmp_path: Path) -> None:
    paths, cache = files(tmp_path), tmp_path / "cache"
    read: list[Path] = []

    class Counting(ImageReader):
        def __call__(self, path: Path) -> np.ndarray:
            read.append(path)
            return super().__call__(path)

    def load() -> np.ndarray:
        rows, kept = load_images(paths, Counting(), BadData("x", False), cache, limit=0)
        return rows[kept]

    first = load()
    assert len(read) == 6  # one for the shape
    assert np.array_equal(load(), first)
    assert len(read) == 7
    paths[2].write_bytes(made.encoded((99, 0, 0), (4, 3)))
    os.utime(paths[2], ns=(1, 1))
    assert load()[2, 0, 0, 0] == 99
    rows, _ = load_images(paths, Counting(), BadData("x", False), cache, limit=0)
    rows[0] = 7  # copied on writing: the file stays
    assert load()[0, 0, 0, 0] == 0


def test_no_image_at_all(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    with pytest.raises(DataError, match=r"no readable image among 1 file.*first .*a: not an image"):
        load_images([tmp_path / "a"], ImageReader(), BadData("x", True), tmp_path)
    with pytest.raises(DataError, match="no readable image among 0 file"):
        load_images([], ImageReader(), BadData("x", True), tmp_path)


@LIMITS
def test_a_link_to_nowhere(limit: int, tmp_path: Path) -> None:
    paths = files(tmp_path)
    paths[1].unlink()
    paths[1].symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"1.png: cannot be read"):
        load_images(paths, ImageReader(), BadData("x", False), tmp_path / "cache", limit)


@pytest.mark.parametrize(
    "notes",
    ['{"kept": [9], "bad": []}', '{"kept": [0.5], "bad": []}', '{"kept": [0], "bad": [1]}', "[" * 200_000, "7", "{"],
    ids=["beyond", "half", "no text", "deep", "number", "torn"],
)
def test_a_cache_that_is_not_ours_is_made_again(notes: str, tmp_path: Path) -> None:
    paths, cache = files(tmp_path), tmp_path / "cache"
    first, _ = load_images(paths, ImageReader(), BadData("x", False), cache, limit=0)
    (file,) = cache.glob("*.json")
    file.write_text(notes)
    rows, kept = load_images(paths, ImageReader(), BadData("x", False), cache, limit=0)
    assert kept == [0, 1, 2, 3, 4]
    np.save(file.with_suffix(".npy"), np.zeros((5, 3, 4, 3), np.float64))
    rows, kept = load_images(paths, ImageReader(), BadData("x", False), cache, limit=0)
    assert np.array_equal(rows[kept], first[kept])


def test_evenly() -> None:
    assert pick_evenly(10, 4) == [0, 2, 5, 7]
    assert pick_evenly(3, 5) == pick_evenly(3, None) == [0, 1, 2]
    assert pick_evenly(0, 5) == []


@pytest.mark.parametrize("data", [CORE50, TINY_IMAGENET])
def test_a_reader_is_named_alike_in_every_process(data: DataSet, made_root: Path) -> None:
    """A mapped file is named by what it was made of: with an address in it, each process would make its own."""
    folder = find(data, made_root)
    assert folder is not None
    held = data.read(folder, BadData("x", False))
    assert isinstance(held, ImageFiles)
    assert repr(held.read).startswith("ImageReader(mode=")
