"""What all ways of making tasks share: images averaged into smaller ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tmln.data.dataset import Arrays
from tmln.streams import make_stream
from tmln.streams.augment import ShiftFlip
from tmln.streams.train_test import shrink_images


def arrays(pixels: NDArray[np.uint8]) -> Arrays:
    count = len(pixels)
    return Arrays(pixels, np.zeros(count, np.int64), np.zeros(count, np.bool_), ("one",))


def test_by_hand() -> None:
    pixels = np.array([[[0, 1, 10, 20], [2, 3, 30, 40]]], np.uint8)
    assert shrink_images(arrays(pixels), 2, "x").pixels.tolist() == [[[2, 25]]]  # 1.5 and 25; halves to even


@pytest.mark.parametrize("shape", [(3, 6, 9), (2, 6, 6, 3), (1025, 4, 4, 1)])
def test_each_pixel_is_the_mean_of_its_block(shape: tuple[int, ...]) -> None:
    factor = 2 if shape[0] == 1025 else 3
    pixels = np.random.RandomState(0).randint(0, 256, shape).astype(np.uint8)
    found = shrink_images(arrays(pixels), factor, "x").pixels
    assert found.shape == (shape[0], shape[1] // factor, shape[2] // factor, *shape[3:])
    for n, row, column in [(0, 0, 0), (shape[0] - 1, 1, 1)]:
        block = pixels[n, factor * row : factor * (row + 1), factor * column : factor * (column + 1)]
        assert (found[n, row, column] == np.rint(block.mean(axis=(0, 1), dtype=np.float64))).all()


def test_one_changes_nothing_and_blocks_must_fit() -> None:
    same = arrays(np.zeros((1, 5, 5), np.uint8))
    assert shrink_images(same, 1, "x") is same
    with pytest.raises(ValueError, match="split-cifar10: images of 5x5 pixels have no blocks of 2x2; shrink=2"):
        shrink_images(same, 2, "split-cifar10")


@pytest.mark.parametrize(("name", "size"), [("split-cifar10", 32), ("pacs", 64)])
def test_a_shrunk_stream_is_shifted_less(name: str, size: int, tiny_root: Path) -> None:
    stream = make_stream(name, root=tiny_root, shrink=4)
    assert stream.shape == (3, size // 4, size // 4)
    assert isinstance(stream.augment, ShiftFlip)
    assert stream.augment.padding == 1
    whole = make_stream(name, root=tiny_root)
    assert isinstance(whole.augment, ShiftFlip)
    assert whole.augment.padding == 4
    assert torch.equal(stream[0].test.y, whole[0].test.y)
